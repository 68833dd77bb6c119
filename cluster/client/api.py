"""One typed function for each request that clients and tools make. Source: MQClientAPIImpl (RocketMQ 4.9.8).

Each raises RequestError for an answer other than success, RemotingConnectError without a connection and
RemotingTimeoutError without an answer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

import orjson
from attrs import frozen

from cluster.client.route import BrokerAddresses, MessageQueue, TopicRoute, read_cluster, read_route
from cluster.remoting import fastjson
from cluster.remoting.codes import RequestCode, ResponseCode
from cluster.remoting.command import RemotingCommand
from cluster.remoting.errors import RemotingConnectError, RemotingError, RemotingProtocolError, RequestError
from store.digest import DIGEST_SIZE
from store.errors import StoreError
from store.message import decode_message
from store.range_digests import RangeDigests, group_count

T = TypeVar("T")

DEFAULT_TOPIC, DEFAULT_TOPIC_QUEUES = "TBW102", 4
TOOLS_GROUP = "TOOLS_CONSUMER"  # Exists on every broker from the start.
SUSPEND, SUBSCRIPTION = 2, 4  # Bits of a pull's sysFlag (PullSysFlag).


class Caller(Protocol):
    """What is needed of RemotingClient."""

    async def request(self, address: str, command: RemotingCommand, *, timeout_ms: int = 3000) -> RemotingCommand: ...


class SendStatus(Enum):
    """How far a message got that the broker has written. Source: SendStatus.java."""

    SEND_OK = ResponseCode.SUCCESS
    FLUSH_DISK_TIMEOUT = ResponseCode.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = ResponseCode.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


class PullStatus(Enum):
    """What became of a pull. Source: PullStatus.java."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MSG = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MSG = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


@frozen
class Sent:
    """A broker's answer to a message that it has written."""

    status: SendStatus
    queue_id: int
    queue_offset: int
    offset_message_id: str
    remark: str | None


@frozen
class Pulled:
    """A broker's answer to a pull; `records` are as in its commit log."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    records: bytes | memoryview


@frozen
class QueueOffsets:
    """One queue's first offset, next offset, and when its last message was stored (ms, 0: none)."""

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


@frozen
class ClientApi:
    """Requests over one RemotingClient; `namesrv` are asked in turn until one answers."""

    client: Caller
    namesrv: tuple[str, ...]
    timeout_ms: int = 3000

    # ---- Name server

    async def topic_route(self, topic: str) -> TopicRoute | None:
        """None when no broker has the topic."""
        try:
            answer = await self._ask_namesrv(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        except RequestError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        return _understood(lambda: read_route(topic, fastjson.loads(answer.body)))

    async def cluster(self) -> tuple[BrokerAddresses, ...]:
        """Every broker group that is registered."""
        answer = await self._ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO, None)
        return _understood(lambda: read_cluster(fastjson.loads(answer.body)))

    async def topics(self) -> tuple[str, ...]:
        """The names of all topics."""
        answer = await self._ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None)
        return _understood(lambda: tuple(sorted(fastjson.loads(answer.body).get("topicList", ()))))

    async def _ask_namesrv(self, code: RequestCode, ext: dict[str, str] | None) -> RemotingCommand:
        failure: RemotingError | None = None
        for address in self.namesrv:
            try:
                return await self._call(address, code, ext)
            except RequestError:
                raise  # An answer; the others would give the same.
            except RemotingError as error:
                failure = error
        raise failure or RemotingConnectError("", "no name server is configured")

    # ---- Broker

    async def send(
        self,
        address: str,
        queue: MessageQueue,
        *,
        group: str,
        properties: str,
        body: bytes,
        born_timestamp: int,
        flag: int = 0,
    ) -> Sent:
        """Request 310: one message to one queue of the broker at `address`."""
        ext = {
            "a": group,
            "b": queue.topic,
            "c": DEFAULT_TOPIC,
            "d": str(DEFAULT_TOPIC_QUEUES),
            "e": str(queue.queue_id),
            "f": "0",
            "g": str(born_timestamp),
            "h": str(flag),
            "i": properties,
            "j": "0",
            "k": "false",
            "m": "false",
            "n": queue.broker_name,
        }
        codes = [status.value for status in SendStatus]
        answer = await self._call(address, RequestCode.SEND_MESSAGE_V2, ext, body, expected=codes)
        fields = answer.ext or {}
        return _understood(
            lambda: Sent(
                SendStatus(answer.code),
                int(fields["queueId"]),
                int(fields["queueOffset"]),
                fields["msgId"],
                answer.remark if answer.code else None,
            )
        )

    async def pull(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        *,
        group: str = TOOLS_GROUP,
        expression: str = "*",
        count_max: int = 32,
        suspend_ms: int = 0,
    ) -> Pulled:
        """Request 11 with its own subscription; `suspend_ms` is how long the broker may wait for something new."""
        ext = {
            "consumerGroup": group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(count_max),
            "sysFlag": str(SUBSCRIPTION | (SUSPEND if suspend_ms else 0)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(suspend_ms),
            "subscription": expression,
            "subVersion": "0",
            "expressionType": "TAG",
        }
        codes = [status.value for status in PullStatus]
        timeout_ms = self.timeout_ms + suspend_ms
        answer = await self._call(address, RequestCode.PULL_MESSAGE, ext, expected=codes, timeout_ms=timeout_ms)
        fields = answer.ext or {}
        return _understood(
            lambda: Pulled(
                PullStatus(answer.code),
                int(fields["nextBeginOffset"]),
                int(fields["minOffset"]),
                int(fields["maxOffset"]),
                int(fields.get("suggestWhichBrokerId", 0)),
                answer.body if answer.code == ResponseCode.SUCCESS else b"",
            )
        )

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """The offset that the queue's next message will get."""
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, queue)

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """The offset of the queue's first message that is still there."""
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, queue)

    async def _offset(self, address: str, code: RequestCode, queue: MessageQueue) -> int:
        answer = await self._call(address, code, _queue_fields(queue))
        return _understood(lambda: int((answer.ext or {})["offset"]))

    async def committed_offset(self, address: str, queue: MessageQueue, group: str) -> int | None:
        """Where the group goes on in this queue; None when it never said."""
        ext = {"consumerGroup": group, **_queue_fields(queue)}
        expected = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._call(address, RequestCode.QUERY_CONSUMER_OFFSET, ext, expected=expected)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return _understood(lambda: int((answer.ext or {})["offset"]))

    async def commit_offset(self, address: str, queue: MessageQueue, group: str, offset: int) -> None:
        """Let the group go on at `offset` in this queue."""
        ext = {"consumerGroup": group, **_queue_fields(queue), "commitOffset": str(offset)}
        await self._call(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    async def topic_stats(self, address: str, topic: str) -> dict[MessageQueue, QueueOffsets]:
        """Request 202: the offsets of the topic's queues on one broker."""
        answer = await self._call(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        return _understood(lambda: _read_stats(fastjson.loads(answer.body)))

    async def runtime_info(self, address: str) -> dict[str, str]:
        """Request 28: what a broker says about itself, RocketMQ's or ours."""
        answer = await self._call(address, RequestCode.GET_BROKER_RUNTIME_INFO, None)
        return _understood(lambda: dict(fastjson.loads(answer.body)["table"]))

    async def broker_config(self, address: str) -> str:
        """Request 26: all options of a broker, RocketMQ's or ours, as `key=value` lines."""
        answer = await self._call(address, RequestCode.GET_BROKER_CONFIG, None)
        return _understood(lambda: bytes(answer.body).decode())

    async def member_status(self, address: str) -> dict[str, Any] | None:
        """Request 20001: a twinlog member's status; None when the broker does not know the request."""
        expected = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        answer = await self._call(address, RequestCode.TWINLOG_MEMBER_STATUS, None, expected=expected)
        if answer.code != ResponseCode.SUCCESS:
            return None
        return _understood(lambda: dict(orjson.loads(answer.body)))

    async def block_digests(
        self, address: str, start: int, end: int, *, blocks_per_digest: int = 1
    ) -> RangeDigests | None:
        """Request 20002: digests of a range of the log, or of its first part; None when the broker does not know the request."""
        ext = {"start": str(start), "end": str(end), "blocksPerDigest": str(blocks_per_digest)}
        expected = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        answer = await self._call(address, RequestCode.TWINLOG_BLOCK_DIGESTS, ext, expected=expected)
        if answer.code != ResponseCode.SUCCESS:
            return None
        return _understood(lambda: _read_digests(answer, RangeDigests(start, end, blocks_per_digest, ())))

    async def record_at(self, address: str, offset: int) -> StoredRecord | None:
        """Request 20003: what a byte of the log belongs to; None when the broker does not know the request."""
        expected = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        ext = {"offset": str(offset)}
        answer = await self._call(address, RequestCode.TWINLOG_RECORD_AT, ext, expected=expected)
        if answer.code != ResponseCode.SUCCESS:
            return None
        fields = answer.ext or {}
        return _understood(
            lambda: StoredRecord(int(fields["start"]), int(fields["end"]), fields.get("problem"), bytes(answer.body))
        )

    async def role_change(
        self, address: str, body: Mapping[str, Any], *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """Request 20006, of twinlog only: a role change, or what belongs to it; `op` says which."""
        answer = await self._call(
            address, RequestCode.TWINLOG_ROLE_CHANGE, None, orjson.dumps(body), timeout_ms=timeout_ms
        )
        return _understood(lambda: dict(orjson.loads(answer.body)))

    async def epochs(self, address: str) -> bytes:
        """Request 1007: the epochs of a member's log, as JSON."""
        answer = await self._call(address, RequestCode.GET_BROKER_EPOCH, None)
        return bytes(answer.body)

    async def view_message(self, address: str, offset: int) -> bytes | None:
        """Request 33: the record that begins at an offset of the log, as it is stored; None when none does.

        RocketMQ takes whatever lies there for the size of a record: code 1 follows, or no body, or rubbish.
        """
        expected = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
        answer = await self._call(address, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}, expected=expected)
        record = bytes(answer.body)
        return record if answer.code == ResponseCode.SUCCESS and _is_record(record, offset) else None

    async def _call(
        self,
        address: str,
        code: RequestCode,
        ext: dict[str, str] | None,
        body: bytes = b"",
        *,
        expected: Iterable[int] = (ResponseCode.SUCCESS,),
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        command = RemotingCommand(code, ext=ext, body=body)
        answer = await self.client.request(address, command, timeout_ms=timeout_ms or self.timeout_ms)
        if answer.code not in expected:
            raise RequestError(answer.code, answer.remark or "no reason given")
        return answer


def name_servers(text: str) -> tuple[str, ...]:
    """The addresses in `one:9876;two:9876`, each once; a missing port is 9876."""
    parts = (part.strip() for part in text.replace(",", ";").split(";"))
    return tuple(dict.fromkeys(part if ":" in part else f"{part}:9876" for part in parts if part))


def _queue_fields(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id)}


def _read_stats(body: Mapping[str, Any]) -> dict[MessageQueue, QueueOffsets]:
    table = {}
    for key, value in body["offsetTable"].items():
        queue = orjson.loads(key.encode())
        offsets = QueueOffsets(int(value["minOffset"]), int(value["maxOffset"]), int(value["lastUpdateTimestamp"]))
        table[MessageQueue(queue["topic"], queue["brokerName"], int(queue["queueId"]))] = offsets
    return table


def _read_digests(answer: RemotingCommand, asked: RangeDigests) -> RangeDigests:
    fields, body = answer.ext or {}, bytes(answer.body)
    end, size = int(fields["end"]), int(fields["blocksPerDigest"])
    count = group_count(asked.start, end, size)
    fits = int(fields["start"]) == asked.start < end <= asked.end and size == asked.blocks_per_digest
    if not fits or len(body) != count * DIGEST_SIZE:
        raise ValueError(f"{len(body)} bytes of digests of {fields} for a question about {asked}")
    digests = tuple(body[at : at + DIGEST_SIZE] for at in range(0, len(body), DIGEST_SIZE))
    return RangeDigests(asked.start, end, size, digests)


def _is_record(data: bytes, offset: int) -> bool:
    """Whether these bytes are one record that says that it lies there; its body may be damaged."""
    try:
        message = decode_message(data, check_crc=False)
    except StoreError:
        return False
    return message.phy_offset == offset and int.from_bytes(data[:4]) == len(data)


def _understood(read: Callable[[], T]) -> T:
    """Read an answer. Raises RemotingProtocolError when it is not what RocketMQ would have sent."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RemotingProtocolError(f"an answer has not the expected form: {type(error).__name__}: {error}") from error


def addresses_of(groups: Sequence[BrokerAddresses]) -> list[tuple[BrokerAddresses, int, str]]:
    """Every member as (its group, brokerId, address)."""
    return [(group, broker_id, address) for group in groups for broker_id, address in group.addresses.items()]
