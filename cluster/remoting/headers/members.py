"""Requests between twinlog members, and to name servers (20001 to 20008), and 1007 of RocketMQ 5, to which they add fields."""

from attrs import field

from twinlog.cluster.remoting.codes import RequestCode
from twinlog.cluster.remoting.header_fields import I32, I64, RequestHeader, request_header, wire


@request_header(RequestCode.TWINLOG_MEMBER_STATUS)
class GetMemberStatus(RequestHeader):
    """20001: role, offsets and slaves of a broker. `reach`: with what it finds at addresses of its group and etcd."""

    reach: bool | None = field(default=None, metadata=wire("twinlogReach"))


@request_header(RequestCode.TWINLOG_BLOCK_DIGESTS)
class BlockDigests(RequestHeader):
    """20002: digests of bytes `start` to `end` of the log, see store/integrity/range_digests.py."""

    start: I64
    end: I64
    blocks_per_digest: I32 = 1


@request_header(RequestCode.TWINLOG_RECORD_AT)
class RecordAtOffset(RequestHeader):
    """20003: the record that a byte of the log belongs to, valid or not."""

    offset: I64


@request_header(RequestCode.GET_BROKER_EPOCH)
class GetBrokerEpoch(RequestHeader):
    """1007: the epochs of a broker's log. RocketMQ 5 has no fields; a twinlog slave identifies itself and its end of the HA
    connection: it compares the logs itself.
    """

    member: str | None = field(default=None, metadata=wire("twinlogMember"))
    ha_address: str | None = field(default=None, metadata=wire("twinlogHaAddress"))
    broker_id: I64 | None = field(default=None, metadata=wire("twinlogBrokerId"))
    name: str | None = field(default=None, metadata=wire("twinlogName"))
    ha_end: str | None = field(default=None, metadata=wire("twinlogHaEnd"))
    member_id: str | None = field(default=None, metadata=wire("twinlogMemberId"))
    codes: str | None = field(default=None, metadata=wire("twinlogRegisterCodes"))  # With "," between, the newest last.
    member_address: str | None = field(default=None, metadata=wire("twinlogMemberAddress"))


@request_header(RequestCode.TWINLOG_LEASE)
class RenewLease(RequestHeader):
    """20004: a master renews its lease at a voter. The body is JSON."""


@request_header(RequestCode.TWINLOG_PROMISE)
class RequestVote(RequestHeader):
    """20005: a candidate requests a member's vote. The body is JSON."""


@request_header(RequestCode.TWINLOG_ROLE_CHANGE)
class ChangeRole(RequestHeader):
    """20006: a role change, one of its steps, or a question about it. The body is JSON, `op` says which."""


@request_header(RequestCode.TWINLOG_MEMBER_CHALLENGE)
class GetMemberChallenge(RequestHeader):
    """20007: what this connection's signatures are bound to, see remoting/member_auth.py. Code 3: there is no group secret."""

    nonce: str


@request_header(RequestCode.TWINLOG_WITNESS)
class HearsMaster(RequestHeader):
    """20008: does a name server hear a group's master? It asks the same of the broker that registered as that, over the
    connection on which this registered. Both answers are JSON: WitnessReport, MasterAnswer of ha/election/witness.py.
    """

    cluster_name: str
    broker_name: str
