"""What brokers answer to clients, parsed: frozen values. Source: MQClientAPIImpl (RocketMQ 4.9.8)."""

from enum import Enum

from attrs import frozen

from twinlog.cluster.remoting.codes import ResponseCode


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
