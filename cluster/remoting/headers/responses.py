"""Headers of responses."""

from attrs import field

from twinlog.cluster.remoting.header_fields import I32, I64, ResponseHeader, header, wire


@header
class SendMessageResponse(ResponseHeader):
    """To 10, 310, 320, also with codes 10, 11 and 12. msg_id is the offset message id; of a batch, a comma list."""

    msg_id: str
    queue_id: I32
    queue_offset: I64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None  # 5.x
    region_id: str | None = field(default=None, metadata=wire("MSG_REGION"))
    trace_on: bool | None = field(default=None, metadata=wire("TRACE_ON"))


@header
class PullMessageResponse(ResponseHeader):
    """To 11 and 361, with codes 0, 19, 20 and 21."""

    suggest_which_broker_id: I64
    next_begin_offset: I64
    min_offset: I64
    max_offset: I64


@header
class OffsetResponse(ResponseHeader):
    """To 14, 29, 30 and 31."""

    offset: I64


@header
class QueryMessageResponse(ResponseHeader):
    """To 12."""

    index_last_update_timestamp: I64
    index_last_update_phyoffset: I64


@header
class BlockDigestsResponse(ResponseHeader):
    """To 20002: the range of the digests in the body, which may be less than requested."""

    start: I64
    end: I64
    blocks_per_digest: I32


@header
class RecordAtOffsetResponse(ResponseHeader):
    """To 20003: bytes `start` to `end` of the log, in the body; with a problem they are no valid record."""

    start: I64
    end: I64
    problem: str | None = None


@header
class MemberChallengeResponse(ResponseHeader):
    """To 20007. `boot_id`: of the process that answers; `member`: its member id."""

    nonce: str
    boot_id: str
    member: str


@header
class GetKVConfigResponse(ResponseHeader):
    """To 101."""

    value: str | None = None


@header
class RegisterBrokerResponse(ResponseHeader):
    """To 103; both are set only for a slave whose master is registered."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
