"""Requests between twinlog members, and the one of RocketMQ 5 that they add to."""

from typing import ClassVar

from attrs import field

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I32, I64, RequestHeader, header, wire


@header
class GetMemberStatus(RequestHeader):
    """20001, between twinlog members only: role, offsets and slaves of a broker."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_MEMBER_STATUS


@header
class BlockDigests(RequestHeader):
    """20002, between twinlog members only: digests of bytes `start` to `end` of the log, see store/integrity/range_digests.py."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_BLOCK_DIGESTS
    start: I64
    end: I64
    blocks_per_digest: I32 = 1


@header
class RecordAtOffset(RequestHeader):
    """20003, between twinlog members only: the record that a byte of the log belongs to, sound or not."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_RECORD_AT
    offset: I64


@header
class GetBrokerEpoch(RequestHeader):
    """1007: the epochs of a broker's log. RocketMQ 5 has no fields; a twinlog member that follows says who it is, and which end
    of an HA connection is its own: it compares the logs by itself.
    """

    code: ClassVar[RequestCode] = RequestCode.GET_BROKER_EPOCH
    member: str | None = field(default=None, metadata=wire("twinlogMember"))
    ha_address: str | None = field(default=None, metadata=wire("twinlogHaAddress"))
    broker_id: I64 | None = field(default=None, metadata=wire("twinlogBrokerId"))
    name: str | None = field(default=None, metadata=wire("twinlogName"))
    ha_end: str | None = field(default=None, metadata=wire("twinlogHaEnd"))


@header
class AskLease(RequestHeader):
    """20004, between twinlog members only: a master asks whether it still is one. The body is JSON."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_LEASE


@header
class AskPromise(RequestHeader):
    """20005, between twinlog members only: a candidate asks for a member's word. The body is JSON."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_PROMISE


@header
class AskRoleChange(RequestHeader):
    """20006, of twinlog only: a role change, its parts and what belongs to it. The body is JSON, `op` says which."""

    code: ClassVar[RequestCode] = RequestCode.TWINLOG_ROLE_CHANGE
