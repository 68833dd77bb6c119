"""Requests of clients and tools to brokers and name servers, one typed method each. Source: MQClientAPIImpl (RocketMQ 4.9.8).

Every method raises RequestError for a response other than success, RemotingConnectError without a connection,
RemotingTimeoutError without a response, and RemotingProtocolError for a response of another form.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import orjson
from attrs import frozen

from twinlog.cluster.remoting import fastjson, headers
from twinlog.cluster.remoting.calls import SUCCESS, Caller, Response, response
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError, RequestError
from twinlog.cluster.remoting.header_fields import RequestHeader
from twinlog.cluster.remoting.names import AUTO_CREATE_TOPIC, TAG
from twinlog.cluster.remoting.route import (
    BrokerAddresses,
    MessageQueue,
    TopicRoute,
    queue_of_key,
    queue_to_json,
    read_cluster,
    read_queue,
    read_route,
)
from twinlog.store.errors import StoreError
from twinlog.store.record.message import decode_message

if TYPE_CHECKING:
    from twinlog.cluster.client.messages import ReceivedMessage
    from twinlog.cluster.client.subscription import Subscription
    from twinlog.cluster.remoting.member_status import MemberStatus
    from twinlog.store.integrity.digest import RangeDigests

DEFAULT_TOPIC, DEFAULT_TOPIC_QUEUES = AUTO_CREATE_TOPIC, 4
TOOLS_GROUP = "TOOLS_CONSUMER"  # Exists on every broker from the start.
COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4  # Bits of a pull's sysFlag (PullSysFlag).
HOLD_CHECK_MS = 10_000  # A broker checks only every 5 s whether it has held a pull for long enough.


class SendStatus(Enum):
    """Safety of a stored message: SEND_OK, or the guarantee that it lacks. Source: SendStatus.java."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


class PullStatus(Enum):
    """The outcome of a pull. Source: PullStatus.java."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MSG = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MSG = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


_SENT_CODES = frozenset(status.value for status in SendStatus)
_PULL_CODES = frozenset(status.value for status in PullStatus)
_OR_UNKNOWN = SUCCESS | {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
_OR_ERROR = SUCCESS | {ResponseCode.SYSTEM_ERROR}


@frozen
class SendResponse:
    """The response to a send that the broker has stored."""

    status: SendStatus
    queue_id: int
    queue_offset: int
    offset_message_id: str
    remark: str | None


@frozen
class PullResponse:
    """The response to a pull; `records` are as in the broker's commit log."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    records: bytes | memoryview


@frozen
class QueueOffsets:
    """One queue's first offset, next offset, and the store time of its last message (ms, 0: none)."""

    min_offset: int
    max_offset: int
    last_update_ms: int


@frozen
class StoredRecord:
    """Bytes `start` to `end` of a broker's log: a record or, with a `problem`, none that is sound. `data` may be cut."""

    start: int
    end: int
    problem: str | None
    data: bytes


def read_sent(command: RemotingCommand) -> SendResponse:
    """The response to a send. Raises RequestError when the broker has not stored the message, or RemotingProtocolError."""
    answer = response(command, _SENT_CODES)
    header = answer.header(headers.responses.SendMessageResponse)
    remark = None if answer.is_success else answer.remark
    return SendResponse(SendStatus(answer.code), header.queue_id, header.queue_offset, header.msg_id, remark)


@frozen
class ClientApi:
    """Requests over one RemotingClient. `namesrv` are asked in turn until one answers."""

    client: Caller
    namesrv: tuple[str, ...]
    timeout_ms: int = 3000

    async def call(
        self,
        address: str,
        header: RequestHeader,
        body: bytes = b"",
        *,
        expected: Collection[int] = SUCCESS,
        timeout_ms: int | None = None,
    ) -> Response:
        """Send any request and wait for its response, whose code is one of those expected."""
        command = header.command(body)
        return response(await self.client.request(address, command, timeout_ms=timeout_ms or self.timeout_ms), expected)

    async def oneway(
        self, address: str, header: RequestHeader, body: bytes = b"", *, remark: str | None = None
    ) -> None:
        """Send any request that is not answered."""
        await self.client.oneway(address, header.command(body, remark=remark), timeout_ms=self.timeout_ms)

    # ---- Name servers

    async def call_namesrv(self, header: RequestHeader) -> Response:
        """Send a request to the first name server that answers."""
        failure: RemotingError | None = None
        for address in self.namesrv:
            try:
                return await self.call(address, header)
            except RequestError:
                raise  # A response; the other name servers would give the same.
            except RemotingError as error:
                failure = error
        raise failure or RemotingConnectError("", "no name server is configured")

    async def topic_route(self, topic: str) -> TopicRoute | None:
        """None when no broker has the topic."""
        try:
            answer = await self.call_namesrv(headers.namesrv.GetRouteInfoByTopic(topic))
        except RequestError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return answer.json(lambda data: read_route(topic, data))

    async def cluster(self) -> tuple[BrokerAddresses, ...]:
        """Every broker group that is registered."""
        return (await self.call_namesrv(headers.namesrv.GetBrokerClusterInfo())).json(read_cluster)

    async def topics(self) -> tuple[str, ...]:
        """The names of all topics."""
        answer = await self.call_namesrv(headers.namesrv.GetAllTopicListFromNameserver())
        return answer.json(lambda body: tuple(sorted(body.get("topicList", ()))))

    # ---- Messages

    async def send(self, address: str, header: "headers.messages.SendMessageV2", body: bytes) -> SendResponse:
        """Send messages or a reply (310, 320, 325) to the broker's queue that the header names."""
        command = header.command(body)
        return read_sent(await self.client.request(address, command, timeout_ms=self.timeout_ms))

    async def pull(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        *,
        group: str = TOOLS_GROUP,
        expression: str | None = "*",
        kind: str = TAG,
        version: int = 0,
        count_max: int = 32,
        suspend_ms: int = 0,
        commit_offset: int | None = None,
    ) -> PullResponse:
        """Read messages from `offset` on (11); the broker waits up to `suspend_ms` for new ones.

        With `expression` None the subscription in the group's heartbeats counts, of that `version` or a later one.
        """
        flag = (SUSPEND if suspend_ms else 0) | (SUBSCRIPTION if expression is not None else 0)
        header = headers.messages.PullMessage(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count_max,
            sys_flag=flag | (COMMIT if commit_offset else 0),
            commit_offset=commit_offset or 0,
            suspend_timeout_millis=suspend_ms,
            sub_version=version,
            subscription=expression,
            expression_type=kind,
        )
        timeout_ms = self.timeout_ms + (suspend_ms + HOLD_CHECK_MS if suspend_ms else 0)
        answer = await self.call(address, header, expected=_PULL_CODES, timeout_ms=timeout_ms)
        fields = answer.header(headers.responses.PullMessageResponse)
        return PullResponse(
            PullStatus(answer.code),
            fields.next_begin_offset,
            fields.min_offset,
            fields.max_offset,
            fields.suggest_which_broker_id,
            answer.body if answer.is_success else b"",
        )

    async def send_back(
        self, address: str, message: "ReceivedMessage", *, group: str, delay_level: int, times_max: int
    ) -> None:
        """Let the group get the message again later, or move it to its dead letters (36)."""
        header = headers.messages.ConsumerSendMsgBack(
            offset=message.phy_offset,
            group=group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.queue.topic,
            max_reconsume_times=times_max,
            broker_name=message.queue.broker_name,
        )
        await self.call(address, header)

    async def view_message(self, address: str, offset: int) -> bytes | None:
        """The record that begins at an offset of the log, as it is stored; None when none does (33).

        RocketMQ reads any bytes at the offset as the size of a record: the response has code 1, no body, or garbage.
        """
        answer = await self.call(address, headers.messages.ViewMessageById(offset), expected=_OR_ERROR)
        record = bytes(answer.body)
        return record if answer.is_success and _is_record(record, offset) else None

    # ---- Offsets

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """The offset that the queue's next message will get."""
        return await self._offset(address, headers.offsets.GetMaxOffset(queue.topic, queue.queue_id))

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """The offset of the queue's first message that is still there."""
        return await self._offset(address, headers.offsets.GetMinOffset(queue.topic, queue.queue_id))

    async def offset_at(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset near a store time (29); RocketMQ 4.9 takes the nearest, 5.x the first at or after it."""
        return await self._offset(
            address, headers.offsets.SearchOffsetByTimestamp(queue.topic, queue.queue_id, timestamp_ms)
        )

    async def _offset(self, address: str, header: RequestHeader) -> int:
        return (await self.call(address, header)).header(headers.responses.OffsetResponse).offset

    async def committed_offset(self, address: str, queue: MessageQueue, group: str) -> int | None:
        """The group's next offset in this queue; None without a commit."""
        header = headers.offsets.QueryConsumerOffset(group, queue.topic, queue.queue_id)
        answer = await self.call(address, header, expected=SUCCESS | {ResponseCode.QUERY_NOT_FOUND})
        return answer.header(headers.responses.OffsetResponse).offset if answer.is_success else None

    async def commit_offset(self, address: str, queue: MessageQueue, group: str, offset: int) -> None:
        """Let the group go on at `offset` in this queue."""
        await self.call(address, headers.offsets.UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset))

    async def commit_offset_oneway(self, address: str, queue: MessageQueue, group: str, offset: int) -> None:
        """The same without waiting for a response, as consumers do every five seconds."""
        await self.oneway(address, headers.offsets.UpdateConsumerOffset(group, queue.topic, queue.queue_id, offset))

    async def topic_stats(self, address: str, topic: str) -> dict[MessageQueue, QueueOffsets]:
        """The offsets of the topic's queues on one broker (202)."""
        return (await self.call(address, headers.broker_admin.GetTopicStatsInfo(topic))).json(_read_stats)

    # ---- Consumer groups

    async def heartbeat(self, address: str, body: bytes) -> None:
        """Register the client and its groups at a broker (34)."""
        await self.call(address, headers.clients.HeartBeat(), body)

    async def unregister(self, address: str, client_id: str, *, producer: str = "", consumer: str = "") -> None:
        """Take the client out of one group (35)."""
        await self.call(address, headers.clients.UnregisterClient(client_id, producer or None, consumer or None))

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """The client ids of a group's connected members (38)."""
        answer = await self.call(address, headers.clients.GetConsumerListByGroup(group), expected=_OR_ERROR)
        return answer.json(lambda body: list(map(str, body["consumerIdList"]))) if answer.is_success else []

    async def check_filter(self, address: str, client_id: str, group: str, subscription: "Subscription") -> None:
        """Let the broker check a filter (46). Raises RequestError: 1 for none at all, 23 for this one."""
        body = {"clientId": client_id, "group": group, "subscriptionData": subscription.to_json()}
        await self.call(address, headers.clients.CheckClientConfig(), fastjson.dumps(body))

    async def lock(
        self, address: str, client_id: str, group: str, queues: Iterable[MessageQueue]
    ) -> frozenset[MessageQueue]:
        """Lock queues of one broker at its master (41); returns those that are this client's now."""
        answer = await self.call(address, headers.clients.LockBatchMq(), _lock_body(client_id, group, queues))
        return answer.json(lambda body: frozenset(map(read_queue, body.get("lockOKMQSet", ()))))

    async def unlock(self, address: str, client_id: str, group: str, queues: Iterable[MessageQueue]) -> None:
        """Give up locks (42)."""
        await self.oneway(address, headers.clients.UnlockBatchMq(), _lock_body(client_id, group, queues))

    # ---- Brokers

    async def runtime_info(self, address: str) -> dict[str, str]:
        """The state and counters of a broker, RocketMQ's or ours (28)."""
        return (await self.call(address, headers.broker_admin.GetBrokerRuntimeInfo())).json(
            lambda body: dict(body["table"])
        )

    async def broker_config(self, address: str) -> str:
        """All options of a broker, RocketMQ's or ours, as `key=value` lines (26)."""
        return (await self.call(address, headers.broker_admin.GetBrokerConfig())).read(bytes.decode)

    async def member_status(self, address: str, *, reach: bool = False) -> "MemberStatus | None":
        """A twinlog member's status (20001); None when the broker does not know the request. `reach`: see GetMemberStatus."""
        from twinlog.cluster.remoting.member_status import MemberStatus  # 30 ms, and applications ask for none.

        header = headers.members.GetMemberStatus(reach or None)
        answer = await self.call(address, header, expected=_OR_UNKNOWN)
        return answer.json(MemberStatus.from_json) if answer.is_success else None

    async def block_digests(
        self, address: str, start: int, end: int, *, blocks_per_digest: int = 1
    ) -> "RangeDigests | None":
        """Digests of a range of the log, or of its first part (20002); None when the broker does not know the request."""
        header = headers.members.BlockDigests(start, end, blocks_per_digest)
        answer = await self.call(address, header, expected=_OR_UNKNOWN)
        if not answer.is_success:
            return None
        fields = answer.header(headers.responses.BlockDigestsResponse)
        return answer.read(lambda body: _read_digests(header, fields, body))

    async def record_at(self, address: str, offset: int) -> StoredRecord | None:
        """The record that a byte of the log belongs to (20003); None when the broker does not know the request."""
        answer = await self.call(address, headers.members.RecordAtOffset(offset), expected=_OR_UNKNOWN)
        if not answer.is_success:
            return None
        fields = answer.header(headers.responses.RecordAtOffsetResponse)
        return StoredRecord(fields.start, fields.end, fields.problem, bytes(answer.body))

    async def role_change(
        self, address: str, body: Mapping[str, Any], *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """A step of a role change, or a question about one (20006); `op` says which."""
        answer = await self.call(address, headers.members.ChangeRole(), orjson.dumps(body), timeout_ms=timeout_ms)
        return answer.json(dict)

    async def epochs(self, address: str) -> bytes:
        """The epochs of a member's log, as JSON (1007)."""
        return bytes((await self.call(address, headers.members.GetBrokerEpoch())).body)


def _read_stats(body: Mapping[str, Any]) -> dict[MessageQueue, QueueOffsets]:
    return {
        queue_of_key(key): QueueOffsets(int(at["minOffset"]), int(at["maxOffset"]), int(at["lastUpdateTimestamp"]))
        for key, at in body["offsetTable"].items()
    }


def _lock_body(client_id: str, group: str, queues: Iterable[MessageQueue]) -> bytes:
    return fastjson.dumps({"clientId": client_id, "consumerGroup": group, "mqSet": list(map(queue_to_json, queues))})


def _read_digests(
    asked: "headers.members.BlockDigests", fields: "headers.responses.BlockDigestsResponse", body: bytes
) -> "RangeDigests":
    from twinlog.store.integrity.digest import DIGEST_SIZE, RangeDigests, group_count  # As above.

    count = group_count(asked.start, fields.end, fields.blocks_per_digest)
    fits = fields.start == asked.start < fields.end <= asked.end and fields.blocks_per_digest == asked.blocks_per_digest
    if not fits or len(body) != count * DIGEST_SIZE:
        raise ValueError(f"{len(body)} bytes of digests of {fields} as the response to {asked}")
    digests = tuple(body[at : at + DIGEST_SIZE] for at in range(0, len(body), DIGEST_SIZE))
    return RangeDigests(asked.start, fields.end, fields.blocks_per_digest, digests)


def _is_record(data: bytes, offset: int) -> bool:
    """True when these bytes are one record of that offset; its body may be damaged."""
    try:
        message = decode_message(data, check_crc=False)
    except StoreError:
        return False
    return message.phy_offset == offset and int.from_bytes(data[:4]) == len(data)


def name_servers(given: str | Iterable[str]) -> tuple[str, ...]:
    """The addresses in `one:9876;two:9876`, each once; a missing port is 9876. Those of a list are left as they are."""
    if not isinstance(given, str):
        return tuple(given)
    parts = (part.strip() for part in given.replace(",", ";").split(";"))
    return tuple(dict.fromkeys(part if ":" in part else f"{part}:9876" for part in parts if part))


def addresses_of(groups: Sequence[BrokerAddresses]) -> list[tuple[BrokerAddresses, int, str]]:
    """Every member as (its group, brokerId, address)."""
    return [(group, broker_id, address) for group in groups for broker_id, address in group.addresses.items()]
