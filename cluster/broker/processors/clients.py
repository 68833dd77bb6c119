"""Requests of clients: heartbeats (34, 35), members of groups (38), filters (46), queue locks (41, 42), producers (328).

Sources: ClientManageProcessor.java, ConsumerManageProcessor.java, AdminBrokerProcessor.java (RocketMQ
4.9.8), ProducerManager.java (4.9.7).
"""

from typing import Any

from attrs import define

from twinlog.cluster.broker.filter.consumer_filters import HEARTBEAT_CHARACTERS_MAX, compile_expression
from twinlog.cluster.broker.filter.expression import SelectorError
from twinlog.cluster.broker.filter.tags import TAG, SubscriptionData
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.processors.pull import not_supported
from twinlog.cluster.broker.roles.gate import Gate, gated
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.tables.clients import ClientConnections, ClientInfo
from twinlog.cluster.broker.tables.tables import BrokerTables
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers import clients as h
from twinlog.cluster.remoting.headers.broker_admin import GetAllProducerInfo
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.cluster.remoting.route import UNIT_SUBSCRIPTION, MessageQueue, queue_to_json
from twinlog.store.message_store import MessageStore

CLIENT_ID_LENGTH_MAX = 1024


@define(eq=False)
class ClientProcessor:
    """Heartbeats, group members and queue locks."""

    settings: Settings
    store: MessageStore
    tables: BrokerTables
    connections: ClientConnections
    gate: Gate

    def heart_beat(self, header: h.HeartBeat, request: Request) -> Reply:
        """Register or refresh the client in each of its groups; create the retry topics of consumers."""
        if len(request.body) > names.HEARTBEAT_BYTES_MAX:
            remark = f"a heartbeat of {len(request.body)} bytes; at most {names.HEARTBEAT_BYTES_MAX} are allowed"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        beat = shared.json_object(request)
        command = request.command
        client = ClientInfo(
            request.connection,
            shared.text(beat, "clientID")[:CLIENT_ID_LENGTH_MAX],
            command.language,
            command.version,
            self.tables.consumers.now(),
        )
        consumers = [(_group(data), data, _subscriptions(data)) for data in shared.objects(beat, "consumerDataSet")]
        producers = [_group(data) for data in shared.objects(beat, "producerDataSet")]
        characters_left = HEARTBEAT_CHARACTERS_MAX
        for group, data, subscriptions in consumers:
            self._register_consumer(group, data, subscriptions, client)
            if self.settings.config.enable_property_filter:
                characters_left = self.tables.filters.register(group, subscriptions, characters_left)
        for group in producers:
            self.tables.producers.register(group, client)
        self.connections.watch(request.connection)
        return Reply(ext=None)

    def _register_consumer(
        self,
        group: str,
        data: dict[str, Any],
        subscriptions: list[SubscriptionData],
        client: ClientInfo[Connection],
    ) -> None:
        config = self.tables.groups.find(group)
        if config is not None and not self.store.config.is_slave:  # A slave's topics are its master's.
            sys_flag = UNIT_SUBSCRIPTION if data.get("unitMode") is True else 0
            self.tables.topics.create_in_send_back(names.retry_topic(group), config.retry_queues, sys_flag=sys_flag)
        self.tables.consumers.register(
            group,
            client,
            subscriptions,
            consume_type=str(data.get("consumeType") or "CONSUME_PASSIVELY"),
            message_model=str(data.get("messageModel") or "CLUSTERING"),
            consume_from_where=str(data.get("consumeFromWhere") or "CONSUME_FROM_LAST_OFFSET"),
            notify=config is None or config.notify_consumer_ids_changed_enable,
        )

    def unregister_client(self, header: h.UnregisterClient, request: Request) -> Reply:
        """Remove the client from its groups; the other members of a consumer group are notified."""
        if header.producer_group:
            self.tables.producers.unregister(header.producer_group, request.connection)
        if header.consumer_group:
            config = self.tables.groups.table.get(header.consumer_group)
            self.tables.consumers.unregister(
                header.consumer_group,
                request.connection,
                notify=config is None or config.notify_consumer_ids_changed_enable,
            )
        return Reply.success()

    def get_consumer_list_by_group(self, header: h.GetConsumerListByGroup, request: Request) -> Reply:
        """Return the client ids of a group, among which its queues are shared."""
        info = self.tables.consumers.find(header.consumer_group)
        if info is None:
            group = header.consumer_group[: names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return Reply.success(fastjson.dumps({"consumerIdList": info.client_ids}))

    def check_client_config(self, header: h.CheckClientConfig, request: Request) -> Reply:
        """Check a consumer's filter before it starts; code 23 with the reason if it is invalid."""
        subscription = shared.json_object(request).get("subscriptionData")
        kind = subscription.get("expressionType") if isinstance(subscription, dict) else None
        if not isinstance(subscription, dict) or not kind or kind == TAG:
            return Reply(ext=None)
        if not self.settings.config.enable_property_filter:
            raise RequestError(ResponseCode.SYSTEM_ERROR, not_supported(str(kind)))
        try:
            compile_expression(str(subscription.get("subString") or ""), str(kind))
        except SelectorError as error:
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector. {error}") from None
        return Reply(ext=None)

    def get_all_producer_info(self, header: GetAllProducerInfo, request: Request) -> Reply:
        """Return the connected producers by group, with the time of their last heartbeat in ms."""
        now, now_ms = self.tables.producers.now(), self.store.now_ms()
        groups = {
            group: [
                {
                    "clientId": client.client_id,
                    "language": client.language,
                    "lastUpdateTimestamp": now_ms - round((now - client.last_seen) * 1000),
                    "remoteIP": f"/{client.connection.remote_address}",  # As Java writes a socket's address.
                    "version": client.version,
                }
                for client in clients.values()
            ]
            for group, clients in self.tables.producers.groups.items()
        }
        return shared.json_reply({"data": groups})

    @gated
    def lock_batch_mq(self, header: h.LockBatchMq, request: Request) -> Reply:
        """Lock queues for a client; the response lists those that it now holds."""
        group, client_id, queues = _read(request)
        granted = self.tables.locks.lock(group, client_id, queues)
        return shared.json_reply({"lockOKMQSet": [queue_to_json(queue) for queue in granted]})

    @gated
    def unlock_batch_mq(self, header: h.UnlockBatchMq, request: Request) -> Reply:
        """Release the locks of a client."""
        self.tables.locks.unlock(*_read(request))
        return Reply(ext=None)


def _group(data: dict[str, Any], key: str = "groupName") -> str:
    group = shared.text(data, key)
    names.require_group(group)
    return group


def _subscriptions(data: dict[str, Any]) -> list[SubscriptionData]:
    try:
        subscriptions = [SubscriptionData.read(item) for item in shared.objects(data, "subscriptionDataSet")]
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"a subscription cannot be read: {error!r}") from None
    for subscription in subscriptions:
        names.require_topic(subscription.topic)
    return subscriptions


def _read(request: Request) -> tuple[str, str, list[MessageQueue]]:
    value = shared.json_object(request)
    group, client_id = _group(value, "consumerGroup"), shared.text(value, "clientId")
    return group, client_id, [_queue(item) for item in shared.objects(value, "mqSet")]


def _queue(item: dict[str, Any]) -> MessageQueue:
    topic, queue_id = shared.text(item, "topic"), item.get("queueId")
    names.require_topic(topic)
    if not isinstance(queue_id, int):
        raise RequestError(ResponseCode.SYSTEM_ERROR, "queueId is not a number")
    return MessageQueue(topic, shared.text(item, "brokerName"), queue_id)
