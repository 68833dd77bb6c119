"""The cluster at one moment, with what went before as far as it matters. Frozen values; made by memory.py.

Offsets and sizes in bytes; `at`, `since` and `heard_at` in seconds since 1970; what is not known is None, never 0.
"""

from typing import Literal

from attrs import field, frozen

from twinlog.cluster.observe.elections import GroupFailover
from twinlog.cluster.observe.findings import Finding
from twinlog.cluster.observe.in_sync_status import InSyncSet
from twinlog.cluster.observe.members import Member, is_master

DIVERGED = ("diverged", "ahead", "below min")  # Its log does not fit its master's.
SILENT = ("unreachable", "failing", "refusing")
FOLLOWING = ("streaming", "catching up")
SETTLING = (
    "starting",
    "connecting",
    "holding",
    "waiting",
    "fenced",
    "resyncing",
    "without master",
    "stalled",
    "paused",
)
Mark = Literal["ok", "warn", "bad", "none"]


@frozen
class Range:
    """Bytes of one member's log that its master's does not have. `is_cut`: they were taken out and are kept beside it."""

    start: int
    end: int
    is_cut: bool


@frozen(kw_only=True)
class MemberSnapshot:
    """One member, and the time since when it has its state."""

    member: Member
    since: float  # In this role and state.
    was_so: bool = False  # The state is older than the dashboard's start.
    heard_at: float | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    # The lag is since its last word: it may have less by now, if it is only cut off from here.
    is_last_word: bool = False
    last_offset: int | None = None  # Where its log ended by its last word, where that is all that is known.
    catch_up_seconds: float | None = None  # None: level, or no end in sight.
    is_growing: bool = False
    diverged: tuple[Range, ...] = ()

    @property
    def mark(self) -> Mark:
        """The mark of its state."""
        return mark_of(self.member.state)


@frozen(kw_only=True)
class GroupSnapshot:
    """One broker group, masters first. `acks_needed`: members that hold a message before SEND_OK, by the group's record."""

    name: str
    members: tuple[MemberSnapshot, ...]
    acks_needed: int | None = None
    changing: str | None = None  # The role change that runs, in a sentence.
    failover: GroupFailover | None = None  # None: without a record.
    in_sync: InSyncSet | None = None  # None: etcd does not keep the record.

    @property
    def masters(self) -> tuple[MemberSnapshot, ...]:
        return tuple(each for each in self.members if is_master(each.member) and each.member.state not in SILENT)

    @property
    def slaves(self) -> tuple[MemberSnapshot, ...]:
        return tuple(each for each in self.members if each.member.role == "slave")


@frozen(kw_only=True)
class ClusterSnapshot:
    """All groups. `problem`: the reason why none could be asked; the groups are then the last known ones."""

    at: float
    groups: tuple[GroupSnapshot, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    namesrv: tuple[str, ...] = field(factory=tuple)
    problem: str | None = None
    gone: tuple[str, ...] = ()  # Who was registered before, of groups of which nobody is.

    @property
    def members(self) -> tuple[MemberSnapshot, ...]:
        return tuple(member for group in self.groups for member in group.members)

    @property
    def names(self) -> dict[str, str]:
        """Members' names by their addresses and ids."""
        known = [each.member for each in self.members]
        by_id = {each.member_id: each.name for each in known if each.member_id is not None}
        return by_id | {each.address: each.name for each in known}


def mark_of(state: str) -> Mark:
    """The mark for a state."""
    if state in ("serving", "streaming", "answering"):
        return "ok"
    if state in SETTLING or state == "catching up":
        return "warn"
    return "bad" if state in (*DIVERGED, *SILENT, "failed") else "none"
