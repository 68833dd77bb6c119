"""Requests about offsets of queues and consumers."""

from attrs import field

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I32, I64, RequestHeader, request_header, wire


@request_header(RequestCode.QUERY_CONSUMER_OFFSET)
class QueryConsumerOffset(RequestHeader):
    """14"""

    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None  # 5.x
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@request_header(RequestCode.UPDATE_CONSUMER_OFFSET)
class UpdateConsumerOffset(RequestHeader):
    """15"""

    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@request_header(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
class SearchOffsetByTimestamp(RequestHeader):
    """29"""

    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: str | None = None  # 5.x: LOWER, UPPER
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@request_header(RequestCode.GET_MAX_OFFSET)
class GetMaxOffset(RequestHeader):
    """30: the queue offset that the next message will get."""

    topic: str
    queue_id: I32
    committed: bool | None = None  # 5.x
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@request_header(RequestCode.GET_MIN_OFFSET)
class GetMinOffset(RequestHeader):
    """31"""

    topic: str
    queue_id: I32
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@request_header(RequestCode.GET_EARLIEST_MSG_STORETIME)
class GetEarliestMsgStoretime(RequestHeader):
    """32"""

    topic: str
    queue_id: I32
    broker_name: str | None = field(default=None, metadata=wire("bname"))
