"""Status of a member: the body of request 20001 and of `/v1/node`, as frozen classes with their JSON. No I/O.

Offsets and sizes are bytes. None: not known, or not said by a member of another version; what a member of ours always says is
never None in what it sends. A member whose role never changes leaves out ROLE_KEYS.
"""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from twinlog.store.epoch_file import EpochId
from twinlog.store.role_file import GroupRecord, Scheduled
from twinlog.store.util.plain import from_plain, to_plain

SCHEMA = 1


@frozen(kw_only=True)
class FindingStatus:
    """Difference between this slave's log and its master's. `kind`: one of ha/compare/finding.py."""

    kind: str
    offset: int | None = None
    text: str = ""
    is_error: bool | None = None


@frozen(kw_only=True)
class MasterLinkStatus:
    """Replication from the master, on a slave. `proven_offset`: every byte below it equals the master's, by digests."""

    address: str | None = None
    ha_address: str | None = None
    local_address: str | None = None  # This slave's end of the connection: the master knows the slave by it.
    tls: bool | None = None
    state: str = "idle"
    last_error: str | None = None
    finding: FindingStatus | None = None
    master_max_offset: int | None = None
    proven_offset: int | None = None
    unverified_bytes: int = 0


@frozen(kw_only=True)
class SlaveStatus:
    """A slave's connection, as its master sees it. `verified`: the slave is a member of ours and has said how it flushes."""

    address: str = ""
    member_id: str | None = None  # None: it did not say who it is.
    tls: bool | None = None  # Its HA connection uses it.
    state: str = ""
    ack_offset: int | None = None  # -1 before the slave's first request.
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    admitted: bool = False
    counted: bool = False
    in_sync: bool | None = None
    suspended: bool = False
    stalled: bool = False
    reason: str | None = None
    sent_offset: int | None = None
    verified: bool | None = None
    rate_bytes_per_second: int | float | None = None


@frozen(kw_only=True)
class KnownSlaveStatus:
    """A slave that was connected once. `away_since_ms`: 0 while it is connected; `given_up`: what it lacks is deleted."""

    ip: str
    ack_offset: int
    away_since_ms: int = 0
    given_up: bool = False


@frozen(kw_only=True)
class RefusedStatus:
    """Replication connections refused to one IP for one cause."""

    ip: str
    cause: str
    why: str
    count: int
    seconds_ago: int


@frozen(kw_only=True)
class DivergentStatus:
    """Bytes cut from the log and kept in a directory of their own."""

    path: str
    first: int
    size: int
    why: str
    when_ms: int


@frozen(kw_only=True)
class PolicyStatus:
    """Rule for SEND_OK, on a master. `words`: the rule as one sentence; numbers of members include the master."""

    words: str | None = None
    level: str | None = None
    in_sync_replicas: int | None = None
    min_in_sync_replicas: int | None = None
    needed: int | None = None
    in_sync: int | None = None
    members: int | None = None
    warnings: tuple[str, ...] = ()


@frozen(kw_only=True)
class SecurityStatus:
    """Access control of a member: counts and file names, never a key. The counts are None without access control."""

    acl_enable: bool = False
    signs: bool = False
    readable_by_others: tuple[str, ...] = ()
    accounts: int | None = None
    admins: int | None = None
    admins_without_signature: int | None = None
    white_for_all: bool | None = None
    refused_requests: int | None = None


@frozen(kw_only=True)
class EpochStatus:
    """Epoch of the last master that this member followed, or was."""

    epoch: int
    winner: str = ""  # Its id.
    start_offset: int = 0
    winner_label: str = ""  # Its name and address then; "": not known.
    decided_by: str = ""  # person, group; "": not known, or nobody had to.
    reason: str = ""


@frozen(kw_only=True)
class LeaseStatus:
    """A master's lease. `remaining_ms` None: it never ends."""

    held: bool
    remaining_ms: int | None = None
    why: str | None = None


@frozen(kw_only=True)
class StandingStatus:
    """Standing of a member as the next master. `rank` 0: it would be next; None: `against` speaks against it."""

    member_id: str
    rank: int | None = None
    against: str = ""


@frozen(kw_only=True)
class EtcdFindingStatus:
    """A problem on a member's way to etcd. `level`: critical, warning or note; `subject`: an endpoint, or several."""

    level: str
    cause: str
    subject: str
    what: str
    fix: str = ""


@frozen(kw_only=True)
class EtcdStatus:
    """etcd as a member sees it, and the group's record there. `why`: why it cannot be relied on now; null: it can."""

    cluster: str | None = None  # Id of etcd's cluster, hexadecimal.
    prefix: str | None = None  # etcdPrefix.
    why: str | None = None
    since_ms: int | None = None  # Since when it says so.
    refused: bool = False  # etcd answers, and what it holds must not be used: `why` says why.
    no_place: str | None = None  # What in the member's configuration contradicts the in-sync set in etcd.
    version: int | None = None  # Of the record that was read, or written, last.
    epoch: int | None = None
    in_sync: tuple[str, ...] = ()  # Member ids.
    master: str | None = None  # Id of the member that told etcd lately that it serves.
    changed_ms: int | None = None  # When this member saw the in-sync set change last; null: not since its start.
    change_why: str | None = None  # Why, if this member changed it.
    why_not_changed: str | None = None  # Why the set stays, although a member lacks behind.
    findings: tuple[EtcdFindingStatus, ...] | None = None  # Of the way to each endpoint; only where it was asked for.


@frozen(kw_only=True)
class AutoFailoverStatus:
    """Failover without a person, as one member sees it. Counts are since its start."""

    mode: str = "off"  # off, members, etcd: as its record says.
    configured: str = "off"  # As its broker.conf says what a group begins with.
    after_ms: int | None = None
    lease_ms: int | None = None
    witnesses: tuple[str, ...] | None = None  # autoFailoverWitness, or else the name servers.
    decision: str = "stay"  # stay, wait, ask, run
    why: str = ""
    heard_ms: int | None = None  # Since it heard its master last; None: it serves itself.
    suspected: bool = False  # Its master may be gone.
    tried: int = 0
    won: int = 0
    given_up: int = 0
    why_given_up: str | None = None  # The last one.
    elections: int = 0  # Automatic ones of the group that it has seen in the last 10 minutes.
    held_off_ms: int = 0
    standings: tuple[StandingStatus, ...] = ()  # The next master first; (): a slave that does not suspect its master.
    why_nobody: str | None = None  # Why nobody could be elected now, by the standings.


@frozen(kw_only=True)
class ReachStatus:
    """Result of trying another member's address: reached, refused, timed out, name unknown, another member, no answer."""

    member_id: str
    name: str
    use: str  # requests, replication
    address: str
    result: str
    why: str | None = None
    found: str | None = None  # Id of the member that answers there.


@frozen(kw_only=True)
class MemberStatus:
    """One broker at one moment."""

    schema: int = SCHEMA
    now_ms: int | None = None
    boot_ms: int | None = None
    name: str | None = None
    member_id: str | None = None  # By which its group knows it.
    made_ms: int | None = None  # When the id was made, and under which address.
    made_address: str | None = None
    cluster: str | None = None
    group: str | None = None
    broker_id: int | None = None
    role: str | None = None  # SYNC_MASTER, ASYNC_MASTER, SLAVE.
    address: str | None = None
    ha_address: str | None = None
    member_address: str | None = None  # For requests of other members, where that is another one than `address`.
    state: str | None = None
    why_not_writable: str | None = None
    file_size: int | None = None
    min_offset: int | None = None
    max_offset: int | None = None
    flushed_offset: int | None = None
    confirmed_offset: int | None = None
    dispatched_offset: int | None = None
    damaged_bytes: int | None = None
    lost_bytes: int | None = None
    lost_start_bytes: int | None = None
    missing_tables: tuple[str, ...] = ()
    in_doubt_bytes: int | None = None
    commit_log_disk_ratio: float | None = None
    rate_bytes_per_second: int | float | None = None
    waiting_messages: int | None = None
    ack_wait_p50_seconds: float | None = None
    ack_wait_p99_seconds: float | None = None
    divergent: tuple[DivergentStatus, ...] = ()
    ack_policy: str | None = None
    policy: PolicyStatus | None = None
    ack_mode: str | None = None
    slaves: tuple[SlaveStatus, ...] | None = None
    retention_held_by: KnownSlaveStatus | None = None
    away: tuple[KnownSlaveStatus, ...] = ()
    refused: Mapping[str, int] = {}
    refused_last: tuple[RefusedStatus, ...] = ()
    master: MasterLinkStatus | None = None
    security: SecurityStatus | None = None
    secret_ids: tuple[str, ...] | None = None  # Of the group secrets that it accepts, the one that it signs with first.
    secret_required: bool | None = None  # Members without a secret are refused.
    visibility: str | None = None
    reach: tuple[ReachStatus, ...] | None = None  # Of the group's other members; only where it was asked for.
    # ROLE_KEYS
    epoch: EpochStatus | None = None
    promised: EpochId | None = None
    role_state: str | None = None
    role_why: str | None = None
    lease: LeaseStatus | None = None
    silent: Mapping[str, float] = {}  # Members of the group by address, with the seconds since they were last heard.
    group_record: GroupRecord | None = None
    etcd: EtcdStatus | None = None  # None: it knows none, or is of a version that does not.
    auto_failover: AutoFailoverStatus | None = None  # None: without a record, or of a version that does not elect.
    whole: bool | None = None
    role_change: Mapping[str, Any] | None = None  # ChangeState of cluster/broker/peers/role_messages.py, as JSON.
    last_pause_ms: float | None = None
    scheduled: Scheduled | None = None
    paused: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The body, for a JSON encoder."""
        body: dict[str, Any] = to_plain(self)
        if body["security"] is not None:
            body["security"] = {key: value for key, value in body["security"].items() if value is not None}
        left_out = ROLE_KEYS if self.role_state is None else frozenset[str]()
        return {key: body[key] for key in body if key not in left_out or (key == "etcd" and self.etcd is not None)}

    @classmethod
    def from_json(cls, body: object) -> "MemberStatus":
        """The reverse. Unknown keys, and a group record of a later version, are skipped. Raises ValueError."""
        try:
            return from_plain(cls, body)
        except ValueError:
            if not isinstance(body, dict) or body.get("groupRecord") is None:
                raise
            return from_plain(cls, {**body, "groupRecord": None})


ROLE_KEYS = frozenset(
    {
        "epoch",
        "promised",
        "roleState",
        "roleWhy",
        "lease",
        "silent",
        "groupRecord",
        "autoFailover",
        "etcd",
        "whole",
        "roleChange",
        "lastPauseMs",
        "scheduled",
        "paused",
    }
)

NO_STATUS = MemberStatus()  # Of a broker that does not answer, or is RocketMQ.
