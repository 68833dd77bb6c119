"""12, 33, 321: messages by key or offset, and units of a queue. Source: QueryMessageProcessor.java (RocketMQ 4.9.8)."""

from typing import Any

from attrs import define

from twinlog.cluster.broker.consume.visibility import Queues
from twinlog.cluster.broker.filter.consumer_filters import ConsumerFilterManager
from twinlog.cluster.broker.filter.tags import SubscriptionData
from twinlog.cluster.broker.tables.clients import ConsumerManager
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.header_fields import encode_header_fields
from twinlog.cluster.remoting.headers.broker_admin import QueryConsumeQueue
from twinlog.cluster.remoting.headers.messages import QueryMessage, ViewMessageById
from twinlog.cluster.remoting.headers.responses import QueryMessageResponse
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_ext import is_ext_address
from twinlog.store.queue.layout import Unit
from twinlog.store.read.get_message import as_i32


@define(eq=False)
class QueryProcessor:
    """Messages by key or offset, and units of a queue."""

    store: MessageStore
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    queues: Queues

    async def query_message(self, header: QueryMessage, request: Request) -> Reply:
        """Return the newest messages of a topic with a key; the client drops those that only share its hash."""
        count_max = self.store.config.default_query_max_num if header.unique_key_query else header.max_num
        found = await self.store.query(
            header.topic, header.key, count_max, header.begin_timestamp, header.end_timestamp
        )
        ext = encode_header_fields(QueryMessageResponse(found.index_timestamp, found.index_phy_offset))
        if not found.records:
            remark = "can not find message, maybe time range not correct"
            return Reply(ResponseCode.QUERY_NOT_FOUND, remark, ext)
        return Reply(ext=ext, body=found.records)

    def view_message_by_id(self, header: ViewMessageById, request: Request) -> Reply:
        """Return the record at the commit log offset of a message id."""
        record = self.store.message_at(header.offset)
        if record is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        return Reply(body=[record])

    def query_consume_queue(self, header: QueryConsumeQueue, request: Request) -> Reply:
        """Return `count` units from `index` on, with a group's subscription.

        An index outside of the queue is a success without units and with a remark; RocketMQ leaves out the body, which its
        mqadmin cannot read.
        """
        topic = (header.topic or "")[: names.TOPIC_LENGTH_MAX]
        queue = self.queues.find(topic, header.queue_id)
        if queue is None or not queue.files.files:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{topic} is not exist!")
        end = self.queues.shown_end(topic, header.queue_id)
        body: dict[str, Any] = {"maxQueueIndex": end, "minQueueIndex": queue.min_offset}
        subscription = None
        if header.consumer_group is not None:
            subscription = self.consumers.find_subscription(header.consumer_group, topic)
            body |= self._filter(header.consumer_group, topic, subscription)
        remark = None
        if queue.min_offset <= header.index < end:
            last = min(end, header.index + min(max(header.count, 0), COUNT_MAX))
            units = ((offset, queue.unit(offset)) for offset in range(header.index, last))
            body["queueData"] = [_unit(queue, unit, subscription) for _, unit in units if unit is not None]
        else:
            remark = f"Index {header.index} of {header.queue_id}@{topic} is not exist!"
        return Reply(remark=remark, body=fastjson.dumps(dict(sorted(body.items()))))

    def _filter(self, group: str, topic: str, subscription: SubscriptionData | None) -> dict[str, Any]:
        """Return a group's subscription; filterData is a text for people."""
        if subscription is None:
            return {"filterData": f"{group[: names.GROUP_LENGTH_MAX]}@{topic} is not online!"}
        data = self.filters.get(topic, group)
        text = fastjson.pretty(data.to_json()) if data is not None else "null"
        return {"filterData": text, "subscriptionData": subscription.to_json()}


COUNT_MAX = 1024  # Ours: a response of some 100 KB.


def _unit(queue: ConsumeQueue, unit: Unit, subscription: SubscriptionData | None) -> dict[str, Any]:
    """Return a unit's ConsumeQueueData. As in RocketMQ the filter is evaluated only if the queue has an extension."""
    data: dict[str, Any] = {
        "eval": False,
        "physicOffset": unit.phy_offset,
        "physicSize": unit.size,
        "tagsCode": unit.tags_code,
    }
    if not is_ext_address(unit.tags_code):
        return data
    more = queue.ext.unit(unit.tags_code) if queue.ext is not None else None
    if more is None:
        return {**data, "msg": f"Cq extend not exist!addr: {unit.tags_code}"}
    kept = {"msgStoreTime": more.store_timestamp, "tagsCode": more.tags_code}
    data["extendDataJson"] = fastjson.dumps(kept).decode()
    wanted = subscription.wanted if subscription is not None else frozenset()
    data["eval"] = wanted is None or as_i32(more.tags_code) in wanted
    return dict(sorted(data.items()))
