"""Members of a cluster and their state, from their answers. Pure: answers in, frozen results out.

What is not known is None, never 0. Offsets and sizes in bytes, times in seconds.
"""

from collections.abc import Mapping, Sequence

from attrs import evolve, field, frozen

from twinlog.cluster.observe.elections import GroupFailover
from twinlog.cluster.observe.in_sync_status import InSyncSet
from twinlog.cluster.remoting.member_status import NO_STATUS, MasterLinkStatus, MemberStatus, SlaveStatus
from twinlog.cluster.remoting.route import BrokerAddresses
from twinlog.cluster.user_errors import NOT_FOUND, USAGE, UserError


@frozen(kw_only=True)
class Member:
    """One broker process as it is now. `state`: what it does, in a word or two."""

    name: str
    cluster: str
    group: str
    broker_id: int
    address: str
    role: str  # master, slave
    state: str
    ha_address: str | None = None
    member_address: str | None = None  # For requests of other members; null: the same as for clients.
    ack_policy: str | None = None
    min_offset: int | None = None
    written_offset: int | None = None
    flushed_offset: int | None = None
    confirmed_offset: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    rate_bytes_per_second: float | None = None
    ack_p50_seconds: float | None = None  # Median of producers' wait for slaves in the last minute.
    ack_p99_seconds: float | None = None
    slaves_counted: int | None = None  # How many slaves' acknowledgements count for producers, on a master.
    reason: str | None = None  # Why it is unreachable, or what else there is to say.
    warnings: tuple[str, ...] = ()  # Of what its acknowledgements mean, in sentences.
    epoch: int | None = None  # Of the last master that it has followed, or been.
    member_id: str | None = None  # Who it is, whatever its address; null: a RocketMQ broker, or twinlog 0.2.
    made_ms: int | None = None  # When its id was made, ms since 1970, and under which address.
    made_address: str | None = None
    # Group secrets that it accepts, the one that it signs with first; null: not said.
    secret_ids: tuple[str, ...] | None = None
    ha_tls: bool | None = None  # Whether a slave's connection to its master uses TLS; null: not said.
    is_registered: bool = True  # False: asked because its group keeps it in mind, or somebody named its address.


@frozen
class MemberList:
    """Every member that the name server knows, masters first in each group; `issues` are sentences."""

    members: tuple[Member, ...]
    issues: tuple[str, ...]
    notes: tuple[str, ...] = ()  # What is under way, planned or paused; and who elects by itself.
    failovers: tuple[GroupFailover, ...] = ()  # Of groups with a record.
    in_sync_sets: tuple[InSyncSet, ...] = ()  # Of groups whose record etcd keeps.


class NoMemberError(UserError):
    """No member has this name."""

    exit_status = USAGE
    http_status = NOT_FOUND
    next_step = "See who is there with: twinlog list"

    def __init__(self, name: str) -> None:
        super().__init__(f"no member is called {name}")
        self.name = name


ROLE_NAMES = {"SYNC_MASTER": "master", "ASYNC_MASTER": "master", "SLAVE": "slave"}
STATE_NAMES = {"idle": "without master", "retrying": "connecting"}  # The rest are words already.
ROLE_STATES = ("starting", "holding", "fenced", "waiting")  # Of a role change; more specific than the store's state.
FINE_STATES = ("streaming", "serving")  # What went wrong last is over in these.
NO_MASTERS = ("starting", "fenced", "waiting")  # In these states a member serves nobody, whatever role it had.


def state_text(state: str, role_state: str | None) -> str:
    """State of a member of ours: `state` of its store or replication, unless its role state is more specific."""
    if role_state in ROLE_STATES and state not in ("failed", "paused"):
        state = role_state
    return STATE_NAMES.get(state, state)


def member_of_status(member: Member, status: MemberStatus) -> Member:
    """A twinlog member, by its answer to TWINLOG_MEMBER_STATUS."""
    role = status.role or member.role
    role = ROLE_NAMES.get(role, role.lower())
    state = state_text(status.state or "unknown", status.role_state)
    last_error = status.master.last_error if status.master is not None and state not in FINE_STATES else None
    return evolve(
        member,
        name=_name(member, status.name),
        role=role,
        state=state,
        ha_address=status.ha_address,
        member_address=status.member_address,
        ack_policy=status.ack_policy,
        min_offset=status.min_offset,
        written_offset=status.max_offset,
        flushed_offset=status.flushed_offset,
        confirmed_offset=status.confirmed_offset,
        rate_bytes_per_second=status.rate_bytes_per_second,
        ack_p50_seconds=status.ack_wait_p50_seconds,
        ack_p99_seconds=status.ack_wait_p99_seconds,
        slaves_counted=None
        if status.slaves is None or role != "master"
        else sum(each.counted for each in status.slaves),
        warnings=status.policy.warnings if status.policy is not None else (),
        reason=status.why_not_writable or (status.role_why if state == status.role_state else None) or last_error,
        epoch=status.epoch.epoch if status.epoch is not None else None,
        member_id=status.member_id,
        made_ms=status.made_ms,
        made_address=status.made_address,
        secret_ids=status.secret_ids,
        ha_tls=status.master.tls if status.master is not None and role == "slave" else None,
    )


def _name(member: Member, name: str | None) -> str:
    """A store root called GROUP-NUMBER gives its member a permanent name; other directory names do not."""
    return name if name and name.startswith(f"{member.group}-") else member.name


def member_of_runtime_info(member: Member, table: Mapping[str, str]) -> Member:
    """A RocketMQ broker, by its runtime info (28), which has the log's ends and nothing about replication."""
    version = table.get("brokerVersionDesc", "").removeprefix("V").replace("_", ".") or "of unknown version"
    return evolve(
        member,
        state="serving" if member.role == "master" else "answering",
        min_offset=_number(table.get("commitLogMinOffset")),
        written_offset=_number(table.get("commitLogMaxOffset")),
        reason=f"RocketMQ {version}: it does not report what is confirmed",
    )


def with_lag(found: list[tuple[Member, MemberStatus]]) -> list[Member]:
    """Fill in each slave's lag: its master's figure or, without one, the difference of the two logs' ends.

    The master's figures come first: they are from one moment and one clock.
    """
    masters = {member.group: (member, status) for member, status in found if is_master(member)}
    return [_with_lag(member, status, *masters.get(member.group, (None, NO_STATUS))) for member, status in found]


def is_master(member: Member) -> bool:
    """True for a master that is not starting, fenced or waiting."""
    return member.role == "master" and member.state not in NO_MASTERS


def _with_lag(member: Member, status: MemberStatus, master: Member | None, master_status: MemberStatus) -> Member:
    if member.role != "slave" or master is None:
        return member
    connection = slave_connection(member, status, master_status)
    if connection is not None:
        catching_up = member.state == "streaming" and connection.state == "catchup"
        rate = connection.rate_bytes_per_second
        return evolve(
            member,
            state="catching up" if catching_up else member.state,
            lag_bytes=connection.lag_bytes,
            lag_seconds=connection.lag_seconds,
            rate_bytes_per_second=member.rate_bytes_per_second if rate is None else rate,
        )
    if member.written_offset is None or master.written_offset is None or member.state in ("ahead", "diverged"):
        return member  # Of diverged logs none is behind the other.
    lag = max(0, master.written_offset - member.written_offset)
    return evolve(member, lag_bytes=lag, lag_seconds=0.0 if lag == 0 else None)


def slave_connection(slave: Member, status: MemberStatus, master_status: MemberStatus) -> SlaveStatus | None:
    """The master's view of this slave, identified by its id, its end of the connection, or its host; None: not known."""
    connections = [each for each in master_status.slaves or () if (each.ack_offset or 0) >= 0]
    if status.member_id and (own := [each for each in connections if each.member_id == status.member_id]):
        return own[-1]  # Behind an address translation the master sees another end.
    if status.master is not None and status.master.local_address is not None:
        return next((each for each in connections if each.address == status.master.local_address), None)
    host = slave.address.rpartition(":")[0]
    same_host = [each for each in connections if each.address.rpartition(":")[0] == host]
    if status.member_id:  # Another member on the same machine is not this one.
        same_host = [each for each in same_host if each.member_id is None]
    return same_host[0] if len(same_host) == 1 else None


def issues_of(groups: tuple[BrokerAddresses, ...], members: tuple[Member, ...]) -> list[str]:
    """Issues of the members, one sentence each with a next step."""
    issues = []
    for group in groups:
        if group.master is None:
            issues.append(
                f"{group.broker_name} has no master: nothing can be written to it. Start one, or look at its log"
            )
    for member in members:
        if issue := issue_of(member):
            hint = successor_hint(member, members)
            issues.append(f"{issue}. {hint[0].upper()}{hint[1:]}" if hint else issue)
        issues += (f"{member.name}: {warning}" for warning in member.warnings)
    if not groups:
        issues.append("no broker is registered at the name server. Start one with: twinlog broker -n HOST:PORT")
    return issues


def issue_of(member: Member) -> str | None:
    """The issue of a member's state; None: nothing is wrong."""
    words = STATE_ISSUES.get(member.state)
    if words is None:
        return None
    if not member.is_registered:
        words = words.replace("is registered, but", "is kept in its group's record, but")
    return f"{member.name} {words.format(why=f' ({member.reason})' if member.reason else '')}"


def successor_hint(member: Member, members: Sequence[Member]) -> str:
    """A hint for an unreachable master that one of its slaves could replace; else ""."""
    if member.role != "master" or member.state != "unreachable":
        return ""
    slaves = [
        each for each in members if each.group == member.group and each.role == "slave" and each.epoch is not None
    ]
    best = min(slaves, key=lambda each: (-(each.epoch or 0), -(each.written_offset or 0), each.broker_id), default=None)
    if best is None:
        return ""
    return f"if it stays away: twinlog failover --candidate {best.name} --dry-run, which says whether anything would be lost"


# By state: what is wrong, why, and what to do.
STATE_ISSUES = {
    "unreachable": "is registered, but does not answer{why}. Look at its log, or start it again",
    "failing": "answers with an error{why}. Look at its log",
    "refusing": "does not let you ask it{why}. Give credentials with TWINLOG_ACCESS_KEY and TWINLOG_SECRET_KEY,"
    " or name their file: twinlog context add --credentials",
    "failed": "takes no more messages{why}. Look at its log and its disk",
    "paused": "takes no messages for now{why}. It goes on by itself: make room on its disk",
    "without master": "knows no master to follow. Start one under its brokerName, or set haMasterAddress",
    "connecting": "is not connected to its master{why}. Is the master up, and its HA port reachable?",
    "ahead": "has bytes in its log that its master lacks{why}. It takes nothing until one of them is repaired",
    "diverged": "has other bytes in its log than its master{why}. It takes nothing until one of them is repaired",
    "below min": "was away for so long that its master has deleted what it needs next{why}. It has to begin anew",
    "stalled": "gets nothing from its master although there is more{why}. Look at the master's log",
    "starting": "does not serve yet{why}. See more with: twinlog explain",
    "fenced": "serves nobody and follows nobody{why}. It goes on once there is a master that it may follow",
    "waiting": "waits before it follows its master{why}",
    "resyncing": "puts aside what does not fit its master's log, as haAutoResync allows. It goes on by itself",
}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


@frozen
class Probe:
    """Result of a connection attempt to a TCP port."""

    address: str
    error: str | None  # None: it accepts connections.


@frozen(kw_only=True)
class MemberFacts:
    """Facts about one broker. Empty mappings: not reported, or not asked for."""

    member: Member
    status: MemberStatus = NO_STATUS  # Request 20001; only twinlog answers it.
    runtime: Mapping[str, str] = field(factory=dict)  # Request 28.
    config: Mapping[str, str] = field(factory=dict)  # Request 26, by RocketMQ's keys.
    ha_port: Probe | None = None
    clock_ahead_seconds: float | None = None  # Of this machine's clock; may include the time of the response.

    @property
    def link(self) -> MasterLinkStatus:
        """Its replication from a master, as it reports it; without a master nothing is known of it."""
        return self.status.master or MasterLinkStatus()

    @property
    def is_twinlog(self) -> bool:
        """True for a member of ours."""
        return self.status != NO_STATUS

    def number(self, key: str, reported: int | None = None) -> int | None:
        """A whole number of its configuration or runtime info or, where those were not asked for, `reported` by its status."""
        text = self.config.get(key) or self.runtime.get(key) or ""
        return int(text) if text.lstrip("-").isdigit() else reported


@frozen(kw_only=True)
class ClusterFacts:
    """Facts about a cluster. `name_servers`: the members that each of them knows, or the reason why it does not answer."""

    groups: tuple[BrokerAddresses, ...]
    members: tuple[MemberFacts, ...]
    name_servers: Mapping[str, tuple[BrokerAddresses, ...] | str] = field(factory=dict)

    def find(self, name: str) -> MemberFacts | None:
        """Find a member by name or address."""
        return next((each for each in self.members if name in (each.member.name, each.member.address)), None)

    def group(self, name: str) -> tuple[MemberFacts, ...]:
        """The members of one group, masters first."""
        found = [each for each in self.members if each.member.group == name]
        return tuple(sorted(found, key=lambda each: (each.member.role != "master", each.member.broker_id)))

    def masters(self, name: str) -> tuple[MemberFacts, ...]:
        """Members of a group that serve as its master."""
        return tuple(each for each in self.group(name) if is_master(each.member))

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of all groups."""
        return tuple(sorted({each.member.group for each in self.members} | {each.broker_name for each in self.groups}))
