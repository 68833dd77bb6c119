"""43, 45, 200, 201, 203, 204, 207, 208, 225, 300, 303, 317, 352: groups, their members, offsets and progress.

Source: AdminBrokerProcessor.java (RocketMQ 4.9.8).
"""

import time
from collections.abc import Iterable
from typing import Any

import trio
from attrs import define

from twinlog.cluster.broker.consume.visibility import Queues
from twinlog.cluster.broker.delay.service import ScheduleMessageService
from twinlog.cluster.broker.group.lost_tables import LostTables
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.clients import ClientInfo
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.broker.tables.tables import GROUPS, BrokerTables
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers import broker_admin as h
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.cluster.remoting.route import MessageQueue, key_of_queue
from twinlog.store.message_store import MessageStore

GROUPS_MAX = 10_000  # Of one request.
TOPICS_ASKED_MAX = 1_000  # Ours: of one request 208.


@define(eq=False)
class GroupAdminProcessor:
    """Groups: create, change, show and delete; their members, offsets and progress."""

    settings: Settings
    store: MessageStore
    tables: BrokerTables
    stats: BrokerStatsManager
    queues: Queues
    schedule: ScheduleMessageService
    lost_tables: LostTables
    gate: Gate

    async def update_and_create_subscription_group(
        self, header: h.UpdateAndCreateSubscriptionGroup, request: Request
    ) -> Reply:
        """Create or change a group; answered when it is saved."""
        return await self._update([shared.json_object(request)])

    async def update_and_create_subscription_group_list(
        self, header: h.UpdateAndCreateSubscriptionGroupList, request: Request
    ) -> Reply:
        """Create or change many groups, for mqadmin of 5.x: all of them, or none."""
        items = shared.objects(shared.json_object(request), "groupConfigList")
        if len(items) > GROUPS_MAX:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{len(items)} groups; {GROUPS_MAX} at most in one request")
        return await self._update(items)

    async def _update(self, items: list[dict[str, Any]]) -> Reply:
        shared.require_changeable(self.store.config, self.gate)
        try:
            configs = [SubscriptionGroupConfig.read(item) for item in items]
        except (TypeError, ValueError) as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        for config in configs:
            self.tables.groups.update(config)
        await shared.save(self.tables.groups_writer)
        return Reply()

    async def delete_subscription_group(self, header: h.DeleteSubscriptionGroup, request: Request) -> Reply:
        """Delete a group, and its offsets if asked for; its retry and dead letter topics stay."""
        shared.require_changeable(self.store.config, self.gate)
        self.tables.groups.delete(header.group_name)
        self.stats.group_deleted(header.group_name)
        if header.remove_offset or header.clean_offset:
            self.tables.offsets.remove_group(header.group_name)
        await shared.save(self.tables.groups_writer)
        return Reply()

    def get_subscription_group_config(self, header: h.GetSubscriptionGroupConfig, request: Request) -> Reply:
        """Return one group, for mqadmin of 5.x."""
        config = self.tables.groups.table.get(header.group)
        if config is None:
            group = header.group[: names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group[{group}] not exist")
        return shared.json_reply(config.to_json())

    def get_all_subscription_group_config(self, header: h.GetAllSubscriptionGroupConfig, request: Request) -> Reply:
        """Return the whole table, which slaves copy."""
        return shared.json_reply(self.lost_tables.marked(GROUPS, self.tables.groups.to_json()))

    def get_all_consumer_offset(self, header: h.GetAllConsumerOffset, request: Request) -> Reply:
        """Return the whole table, which slaves copy."""
        return shared.json_reply(self.tables.offsets.to_json())

    def get_all_delay_offset(self, header: h.GetAllDelayOffset, request: Request) -> Reply:
        """Return the progress of delayed messages by level, which slaves copy."""
        return shared.json_reply(self.schedule.to_json())

    def get_consumer_connection_list(self, header: h.GetConsumerConnectionList, request: Request) -> Reply:
        """Return the members of a consumer group and their subscriptions."""
        info = self.tables.consumers.find(header.consumer_group)
        if info is None:
            group = header.consumer_group[: names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        return shared.json_reply(
            {
                "connectionSet": _connections(info.clients.values()),
                "consumeFromWhere": info.consume_from_where,
                "consumeType": info.consume_type,
                "messageModel": info.message_model,
                "subscriptionTable": {topic: data.to_json() for topic, data in info.subscriptions.items()},
            }
        )

    def get_producer_connection_list(self, header: h.GetProducerConnectionList, request: Request) -> Reply:
        """Return the members of a producer group."""
        clients = self.tables.producers.groups.get(header.producer_group)
        if clients is None:
            group = header.producer_group[: names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return shared.json_reply({"connectionSet": _connections(clients.values())})

    def get_consume_stats(self, header: h.GetConsumeStats, request: Request) -> Reply:
        """Return the visible end and the group's offset for each queue of its topics."""
        listed = dict.fromkeys(topic for topic in (header.topic_list or "").split(";") if topic)
        wanted = [header.topic] if header.topic else list(listed)
        if len(wanted) > TOPICS_ASKED_MAX:
            remark = f"topicList has {len(wanted)} topics; at most {TOPICS_ASKED_MAX} are allowed in one request"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        wanted = wanted or self.tables.offsets.topics_of(header.consumer_group)
        topics = self._topics_of(header.consumer_group, wanted)
        return shared.json_reply(self._consume_stats(header.consumer_group, topics))

    async def get_broker_consume_stats(self, header: h.GetBrokerConsumeStats, request: Request) -> Reply:
        """Return the progress of all groups in each topic; with isOrder only in ordered topics."""
        groups, total = [], 0
        for group in list(self.tables.groups.table):
            topics = self._topics_of(group, self.tables.offsets.topics_of(group))
            stats = [
                self._consume_stats(group, [topic], written=True)
                for topic in topics
                if topic.order or not header.is_order
            ]
            queues = [queue for each in stats for queue in each["offsetTable"].values()]
            total += sum(queue["brokerOffset"] - queue["consumerOffset"] for queue in queues)
            groups.append({group: stats})
            await trio.lowlevel.checkpoint()  # There may be thousands of groups.
        return shared.json_reply({"brokerAddr": self.settings.address, "consumeStatsList": groups, "totalDiff": total})

    def query_consume_time_span(self, header: h.QueryConsumeTimeSpan, request: Request) -> Reply:
        """Return the times of each queue's first and last message, and of the last one that the group consumed."""
        topic = shared.find_topic(self.tables.topics, header.topic)
        spans = [self._span(topic.name, header.group, queue_id) for queue_id in range(topic.write_queues)]
        return shared.json_reply({"consumeTimeSpanSet": spans})

    def _span(self, topic: str, group: str, queue_id: int) -> dict[str, Any]:
        """Return a QueueTimeSpan. Times are ms, -1 for none.

        RocketMQ reports a delay of more than fifty years if nothing is consumed yet; here it is that of the first message.
        """
        begin, end = self.store.queue(topic, queue_id).min_offset, self.queues.shown_end(topic, queue_id)
        consumed = self.tables.offsets.query(group, topic, queue_id)

        def stored(offset: int) -> int:
            return self.store.store_timestamp(topic, queue_id, offset)

        first = stored(begin) if end > begin else -1
        last = stored(consumed - 1) if consumed > 0 else first
        waiting = stored(max(consumed, begin)) if consumed < end else -1
        times = {
            "consumeTimeStamp": last,
            "maxTimeStamp": stored(end - 1) if end > begin else -1,
            "minTimeStamp": first,
        }
        span: dict[str, Any] = {
            "delayTime": self.store.now_ms() - waiting if waiting >= 0 else 0,
            "messageQueue": {"brokerName": self.settings.config.broker_name, "queueId": queue_id, "topic": topic},
            **times,
            **{f"{name}Str": _time_text(ms) for name, ms in times.items()},
        }
        return dict(sorted(span.items()))

    def _topics_of(self, group: str, topics: list[str]) -> list[TopicConfig]:
        """Return the existing ones of `topics`; if the group has members, only those that it subscribes to."""
        info = self.tables.consumers.find(group)
        subscriptions = info.subscriptions if info is not None else {}
        found = [topic for name in topics if (topic := self.tables.topics.select(name)) is not None]
        return [topic for topic in found if not subscriptions or topic.name in subscriptions]

    def _consume_stats(self, group: str, topics: list[TopicConfig], *, written: bool = False) -> dict[str, Any]:
        """Return the ConsumeStats of these topics. `written`: over the write queues instead of the read queues."""
        table: dict[str, dict[str, int]] = {}
        for topic in topics:
            for queue_id in range(topic.write_queues if written else topic.read_queues):
                queue = MessageQueue(topic.name, self.settings.config.broker_name, queue_id)
                table[key_of_queue(queue)] = self._progress(group, topic.name, queue_id)
        tps = sum(self.stats.group_get_tps(group, topic.name) for topic in topics)
        return {"consumeTps": float(tps), "offsetTable": table}

    def _progress(self, group: str, topic: str, queue_id: int) -> dict[str, int]:
        consumed = max(self.tables.offsets.query(group, topic, queue_id), 0)
        last = self.store.store_timestamp(topic, queue_id, consumed - 1) if consumed else 0
        end = self.queues.shown_end(topic, queue_id)
        return {"brokerOffset": end, "consumerOffset": consumed, "lastTimestamp": max(last, 0)}

    def query_topic_consume_by_who(self, header: h.QueryTopicConsumeByWho, request: Request) -> Reply:
        """Return the groups that subscribe to a topic or have offsets in it."""
        tables, topic = self.tables, header.topic
        groups = [*tables.consumers.groups_of_topic(topic), *tables.offsets.groups_of(topic)]
        return shared.json_reply({"groupList": list(dict.fromkeys(groups))})


def _time_text(ms: int) -> str:
    """Format a time in this machine's time zone, as mqadmin does."""
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(ms // 1000))}:{ms % 1000:03}"


def _connections(clients: Iterable[ClientInfo]) -> list[dict[str, Any]]:
    return [
        {
            "clientAddr": client.connection.remote_address,
            "clientId": client.client_id,
            "language": client.language,
            "version": client.version,
        }
        for client in clients
    ]
