"""Requests about offsets of queues and consumers."""

from typing import ClassVar

from attrs import field

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I32, I64, RequestHeader, header, wire


@header
class QueryConsumerOffset(RequestHeader):
    """14"""

    code: ClassVar[RequestCode] = RequestCode.QUERY_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: I32
    set_zero_if_not_found: bool | None = None  # 5.x
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@header
class UpdateConsumerOffset(RequestHeader):
    """15"""

    code: ClassVar[RequestCode] = RequestCode.UPDATE_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: I32
    commit_offset: I64
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@header
class SearchOffsetByTimestamp(RequestHeader):
    """29"""

    code: ClassVar[RequestCode] = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    topic: str
    queue_id: I32
    timestamp: I64
    boundary_type: str | None = None  # 5.x: LOWER, UPPER
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@header
class GetMaxOffset(RequestHeader):
    """30: the queue offset that the next message will get."""

    code: ClassVar[RequestCode] = RequestCode.GET_MAX_OFFSET
    topic: str
    queue_id: I32
    committed: bool | None = None  # 5.x
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@header
class GetMinOffset(RequestHeader):
    """31"""

    code: ClassVar[RequestCode] = RequestCode.GET_MIN_OFFSET
    topic: str
    queue_id: I32
    broker_name: str | None = field(default=None, metadata=wire("bname"))


@header
class GetEarliestMsgStoretime(RequestHeader):
    """32"""

    code: ClassVar[RequestCode] = RequestCode.GET_EARLIEST_MSG_STORETIME
    topic: str
    queue_id: I32
    broker_name: str | None = field(default=None, metadata=wire("bname"))
