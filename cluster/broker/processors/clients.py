"""Requests of clients: heartbeats (34, 35), members of groups (38), filters (46), queue locks (41, 42), producers (328); and
requests that only a consumer can answer, forwarded to it (223, 307, 309).

Sources: ClientManageProcessor, ConsumerManageProcessor, AdminBrokerProcessor.callConsumer, Broker2Client.getConsumeStatus
(RocketMQ 4.9.8), ProducerManager (4.9.7).
"""

from typing import Any

import structlog
import trio
from attrs import define

from twinlog.cluster.broker.filter.consumer_filters import HEARTBEAT_CHARACTERS_MAX, compile_expression
from twinlog.cluster.broker.filter.expression import SelectorError
from twinlog.cluster.broker.filter.tags import SubscriptionData
from twinlog.cluster.broker.peers.client_calls import ClientCalls
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.processors.offset import refuse_old_client
from twinlog.cluster.broker.processors.pull import not_supported
from twinlog.cluster.broker.roles.gate import Gate, gated
from twinlog.cluster.broker.roles.locks import QueueLocks
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.tables.clients import ClientConnections, ClientInfo
from twinlog.cluster.broker.tables.tables import BrokerTables
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingError, RemotingTimeoutError, RequestError
from twinlog.cluster.remoting.headers import clients as h
from twinlog.cluster.remoting.headers.broker_admin import GetAllProducerInfo, InvokeBrokerToGetConsumerStatus
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.cluster.remoting.route import UNIT_SUBSCRIPTION, MessageQueue, queue_to_json
from twinlog.store.errors import MessageFormatError
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import decode_message

log = structlog.get_logger(__name__)

CLIENT_ID_LENGTH_MAX = 1024
STATUS_MS_MAX = 5_000
STATUS_BYTES_MAX = 256 * 1024  # Of one client's response, which is parsed on the event loop.
FORWARD_SINCE_VERSION = 62  # V3_1_8_SNAPSHOT
CLIENT_ID_SHOWN_MAX = 255
_ID_LENGTHS = (32, 56)  # Store host with an IPv4 or an IPv6 address, and the log's offset: hex digits.


@define(eq=False)
class ClientProcessor:
    """Heartbeats, group members and queue locks; requests forwarded to consumers."""

    settings: Settings
    store: MessageStore
    tables: BrokerTables
    connections: ClientConnections
    client_calls: ClientCalls
    gate: Gate
    locks: QueueLocks

    def heart_beat(self, header: h.HeartBeat, request: Request) -> Reply:
        """Register or refresh the client in each of its groups; create the retry topics of consumers."""
        if len(request.body) > names.HEARTBEAT_BYTES_MAX:
            remark = f"a heartbeat of {len(request.body)} bytes; at most {names.HEARTBEAT_BYTES_MAX} are allowed"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        beat = shared.json_object(request)
        command = request.command
        client_id, now = shared.text(beat, "clientID")[:CLIENT_ID_LENGTH_MAX], self.tables.consumers.now()
        client = ClientInfo(request.connection, client_id, command.language, command.version, now)
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
        return Reply()

    def _register_consumer(
        self,
        group: str,
        data: dict[str, Any],
        subscriptions: list[SubscriptionData],
        client: ClientInfo,
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
        if not isinstance(subscription, dict) or not kind or kind == names.TAG:
            return Reply()
        if not self.settings.config.enable_property_filter:
            raise RequestError(ResponseCode.SYSTEM_ERROR, not_supported(str(kind)))
        try:
            compile_expression(str(subscription.get("subString") or ""), str(kind))
        except SelectorError as error:
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector. {error}") from None
        return Reply()

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
    def lock_batch_mq(self, header: h.LockBatchMq, request: Request) -> Reply | None:
        """Lock queues for a client; the response lists those that it now holds."""
        granted = self.locks.lock(*_read(request), lambda queues: request.reply(_locked(queues)))
        return _locked(granted) if granted is not None else None

    @gated
    def unlock_batch_mq(self, header: h.UnlockBatchMq, request: Request) -> Reply:
        """Release the locks of a client."""
        self.locks.unlock(*_read(request))
        return Reply()

    async def get_consumer_running_info(self, header: h.GetConsumerRunningInfo, request: Request) -> Reply:
        """Return the queues of a consumer, and its threads' stacks if asked for."""
        ext = dict(request.command.ext or {})
        return await self._ask(header.consumer_group, header.client_id, RemotingCommand(header.code, ext=ext))

    async def consume_message_directly(self, header: h.ConsumeMessageDirectly, request: Request) -> Reply:
        """Have a consumer consume one message of this log, and return its result."""
        ext = dict(request.command.ext or {}) | {"brokerName": self.settings.config.broker_name}
        body = self._record(header.msg_id)
        return await self._ask(
            header.consumer_group, header.client_id, RemotingCommand(header.code, ext=ext, body=body)
        )

    def _record(self, msg_id: str | None) -> bytes:
        try:
            if msg_id is None or len(msg_id) not in _ID_LENGTHS:
                raise ValueError
            record = self.store.message_at(int(msg_id[-16:], 16))
            if record is None:
                raise ValueError
            decode_message(record, check_crc=False)
        except (ValueError, MessageFormatError):
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"message {(msg_id or '')[:56]} is not in this log") from None
        return bytes(record)

    async def _ask(self, group: str, client_id: str | None, command: RemotingCommand) -> Reply:
        """Forward a request to a client of a group, and return its response unchanged."""
        info = self.tables.consumers.find(group)
        client = info.find_client(client_id) if info is not None and client_id else None
        shown = f"{group[: names.GROUP_LENGTH_MAX]}> <{(client_id or 'null')[:CLIENT_ID_SHOWN_MAX]}"
        if client is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{shown}> not online")
        if client.version < FORWARD_SINCE_VERSION:
            remark = (
                f"The Consumer <{client.client_id}> Version <{client.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        try:
            answer = await self.client_calls.call(client.connection, command)
        except RequestError:
            raise
        except RemotingTimeoutError as error:
            remark = f"consumer <{shown}> Timeout: {error}"
            raise RequestError(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except RemotingError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"invoke consumer <{shown}> Exception: {error}") from None
        return Reply(answer.code, answer.remark, answer.ext, bytes(answer.body))

    async def get_consumer_status(self, header: InvokeBrokerToGetConsumerStatus, request: Request) -> Reply:
        """Return the progress that each member reports; members that do not respond in time are left out."""
        info = self.tables.consumers.find(header.group)
        if info is None:
            group = header.group[: names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]")
        asked = [each for each in info.clients.values() if header.client_addr in (None, "", each.client_id)]
        for client in asked:
            refuse_old_client(client.version)
        reported: dict[str, Any] = {}
        async with trio.open_nursery() as nursery:
            for client in asked:
                nursery.start_soon(self._ask_status, header, client, reported)
        return shared.json_reply({"consumerTable": reported, "messageQueueTable": {}})

    async def _ask_status(
        self,
        header: InvokeBrokerToGetConsumerStatus,
        client: ClientInfo,
        reported: dict[str, Any],
    ) -> None:
        question = h.GetConsumerStatusFromClient(header.topic, header.group)
        command = question.command()
        try:
            answer = await self.client_calls.call(client.connection, command, timeout_ms=STATUS_MS_MAX)
            if answer.code == ResponseCode.SUCCESS and 0 < len(answer.body) <= STATUS_BYTES_MAX:
                reported[client.client_id] = _queues(fastjson.loads(bytes(answer.body)))
        except (RemotingError, ValueError) as error:
            log.warning("a consumer did not report its progress", client=client.client_id, why=str(error)[:200])


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


def _locked(queues: list[MessageQueue]) -> Reply:
    return shared.json_reply({"lockOKMQSet": [queue_to_json(queue) for queue in queues]})


def _queue(item: dict[str, Any]) -> MessageQueue:
    topic, queue_id = shared.text(item, "topic"), item.get("queueId")
    names.require_topic(topic)
    if not isinstance(queue_id, int):
        raise RequestError(ResponseCode.SYSTEM_ERROR, "queueId is not a number")
    return MessageQueue(topic, shared.text(item, "brokerName"), queue_id)


def _queues(value: Any) -> dict[str, int]:
    """Read a client's table of offsets. Raises ValueError."""
    table = value.get("messageQueueTable") if isinstance(value, dict) else None
    if not isinstance(table, dict) or not all(isinstance(offset, int) for offset in table.values()):
        raise ValueError("no messageQueueTable")
    return {_queue_key(key): offset for key, offset in table.items()}


def _queue_key(key: str) -> str:
    """Read a queue that is a map key: fastjson writes an object, other clients a string."""
    if isinstance(key, fastjson.ObjectKey):
        return key
    fields = fastjson.loads(key)
    if not isinstance(fields, dict):
        raise ValueError("a key is not a queue")
    return fastjson.ObjectKey.of(fields)
