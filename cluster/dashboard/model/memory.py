"""Memory of the dashboard from one snapshot to the next: since when, last known ends of silent members, samples, events.

`take` makes a snapshot of facts. No clock and no network here: the caller has both.
"""

from bisect import bisect_right
from collections import deque

from attrs import define, evolve, field, frozen

from twinlog.cluster.dashboard.model.events import Event, changes, merged
from twinlog.cluster.dashboard.model.series import SECONDS_KEPT, Sample, Series, catch_up_seconds, is_growing
from twinlog.cluster.dashboard.model.snapshot import (
    DIVERGED,
    FOLLOWING,
    SILENT,
    ClusterSnapshot,
    GroupSnapshot,
    MemberSnapshot,
    Range,
)
from twinlog.cluster.observe.failover import failover_of
from twinlog.cluster.observe.findings import Finding
from twinlog.cluster.observe.in_sync import in_sync_set
from twinlog.cluster.observe.in_sync_status import InSyncSet
from twinlog.cluster.observe.members import ClusterFacts, Member, MemberFacts
from twinlog.cluster.observe.role_views import change_of, newest_record, notes_of
from twinlog.cluster.remoting.member_status import MemberStatus
from twinlog.store.role_file import GroupRecord


@frozen
class _Known:
    """Last known role, state and log end of one member."""

    role: str
    state: str
    since: float
    was_so: bool
    heard_at: float | None = None
    end_offset: int | None = None
    diverged: tuple[Range, ...] = ()


@define
class Memory:
    """State since the dashboard started."""

    series: Series = field(factory=Series)
    events: tuple[Event, ...] = ()
    last: ClusterSnapshot | None = None
    _known: dict[str, _Known] = field(factory=dict)  # By address.
    _gone: dict[str, tuple[str, ...]] = field(factory=dict)  # By group.
    _ends: dict[str, deque[tuple[float, int]]] = field(factory=dict)  # Of each group's master's log, over time.

    def take(
        self, facts: ClusterFacts, findings: tuple[Finding, ...], namesrv: tuple[str, ...], at: float
    ) -> ClusterSnapshot:
        """Make the snapshot of the current facts, with what is remembered."""
        groups = tuple(self._group(facts, name, at) for name in facts.group_names)
        notes = notes_of(facts.members)
        gone = self._gone_now(frozenset(facts.group_names))
        snapshot = ClusterSnapshot(at=at, groups=groups, findings=findings, notes=notes, namesrv=namesrv, gone=gone)
        self.series.add(sample_of(snapshot))
        return self._took(evolve(snapshot, groups=tuple(self._with_trends(group) for group in groups)))

    def fail(self, problem: str, namesrv: tuple[str, ...], at: float) -> ClusterSnapshot:
        """Keep the last snapshot, with the problem why no new one could be made."""
        last = self.last or ClusterSnapshot(at=at)
        return self._took(evolve(last, at=at, namesrv=namesrv, problem=problem))

    def _gone_now(self, present: frozenset[str]) -> tuple[str, ...]:
        """Members of groups without any registered member: their data is not safe because other groups' is."""
        for group in self.last.groups if self.last is not None else ():
            self._gone[group.name] = tuple(each.member.name for each in group.members)
        for name in present:
            self._gone.pop(name, None)
        return tuple(each for names in self._gone.values() for each in names)

    def _took(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        self.events = merged(self.events, changes(self.last, snapshot))
        self.last = snapshot
        return snapshot

    def _group(self, facts: ClusterFacts, name: str, at: float) -> GroupSnapshot:
        found = facts.group(name)
        record, in_sync = newest_record(found), in_sync_set(name, found)
        masters = [each.member for each in facts.masters(name) if each.member.written_offset is not None]
        if masters:
            self._remember_end(name, at, masters[0].written_offset or 0)
        changing = next((each.member.name for each in found if _is_changing(each)), None)
        return GroupSnapshot(
            name=name,
            members=tuple(self._member(each, name, masters[0] if masters else None, at) for each in found),
            acks_needed=_acks_needed(found, record, in_sync),
            changing=f"{changing} becomes the master of {name}" if changing else None,
            failover=failover_of(name, found),
            in_sync=in_sync,
        )

    def _remember_end(self, group: str, at: float, offset: int) -> None:
        ends = self._ends.setdefault(group, deque())
        if not ends or ends[-1][1] != offset:
            ends.append((at, offset))
        while at - ends[0][0] > SECONDS_KEPT:
            ends.popleft()

    def _member(self, each: MemberFacts, group: str, master: Member | None, at: float) -> MemberSnapshot:
        member, known = each.member, self._known.get(each.member.address)
        is_silent = member.state in SILENT
        if known is None:
            known = _Known(member.role, member.state, at, was_so=True)
        elif (known.role, known.state) != (member.role, member.state):
            known = evolve(known, role=member.role, state=member.state, since=at, was_so=False)
        if not is_silent:
            end, diverged = member.written_offset, diverged_ranges(member, each.status)
            known = evolve(known, heard_at=at, end_offset=end, diverged=diverged)
        self._known[member.address] = known
        snapshot = MemberSnapshot(
            member=member,
            since=known.since,
            was_so=known.was_so,
            heard_at=known.heard_at,
            lag_bytes=None if member.state in DIVERGED else member.lag_bytes,
            lag_seconds=None if member.state in DIVERGED else member.lag_seconds,
            diverged=known.diverged,
        )
        if not is_silent or known.end_offset is None:
            return snapshot
        snapshot = evolve(snapshot, last_offset=known.end_offset)
        return self._by_last_word(snapshot, group, known.end_offset, master, at) if master is not None else snapshot

    def _by_last_word(
        self, snapshot: MemberSnapshot, group: str, end: int, master: Member, at: float
    ) -> MemberSnapshot:
        lag = max(0, (master.written_offset or 0) - end)
        ends = self._ends.get(group) or deque([(at, 0)])
        later = bisect_right([offset for _, offset in ends], end)  # The first that it never spoke of.
        since = ends[later][0] if lag and later < len(ends) else at
        return evolve(snapshot, lag_bytes=lag, lag_seconds=at - since, is_last_word=True)

    def _with_trends(self, group: GroupSnapshot) -> GroupSnapshot:
        return evolve(group, members=tuple(self._with_trend(each) for each in group.members))

    def _with_trend(self, each: MemberSnapshot) -> MemberSnapshot:
        points = self.series.recent("lag_bytes", each.member.name)
        seconds = catch_up_seconds(points) if each.member.state in FOLLOWING else None
        return evolve(each, catch_up_seconds=seconds, is_growing=is_growing(points))


def _is_changing(each: MemberFacts) -> bool:
    change = change_of(each.status)
    return change is not None and change.running


def _acks_needed(found: tuple[MemberFacts, ...], record: GroupRecord | None, in_sync: InSyncSet | None) -> int | None:
    """The number of acknowledgements by the record, of the in-sync set where there is one, or else by a master's policy."""
    if record is not None:
        return record.acks_needed if in_sync is None else in_sync.acks_needed
    return next((each.status.policy.needed for each in found if each.status.policy is not None), None)


def diverged_ranges(member: Member, status: MemberStatus) -> tuple[Range, ...]:
    """Bytes of its log that its master lacks, and those that were cut for that and are kept."""
    cuts = tuple(Range(cut.first, cut.first + cut.size, is_cut=True) for cut in status.divergent)
    finding = status.master.finding if status.master is not None else None
    if finding is None or finding.kind not in ("diverged", "ahead", "given up") or finding.offset is None:
        return cuts
    end = member.written_offset or finding.offset
    return (*cuts, Range(finding.offset, max(end, finding.offset), is_cut=False))


def sample_of(snapshot: ClusterSnapshot) -> Sample:
    """The sample of a snapshot for charts."""
    slaves = [each for group in snapshot.groups for each in group.slaves]
    masters = [each.member for group in snapshot.groups for each in group.masters]
    return Sample(
        snapshot.at,
        {
            "lag_bytes": {each.member.name: each.lag_bytes for each in slaves},
            "lag_seconds": {each.member.name: each.lag_seconds for each in slaves},
            "ack_p50": {each.name: each.ack_p50_seconds for each in masters},
            "ack_p99": {each.name: each.ack_p99_seconds for each in masters},
            "rate": {each.name: each.rate_bytes_per_second for each in masters},
        },
    )
