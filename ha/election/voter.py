"""Answers of a voter to a candidate (vote) and to a master (lease): functions of its durable state. No I/O.

The caller ends all streams of older epochs and saves the new state durably before the answer leaves. A member that has promised
an epoch serves, follows and acknowledges none that is older.

Safety does not rely on the lease: acknowledged messages are safe by the votes. The lease makes a master that is cut off refuse
producers soon. Its clock is monotonic, seconds; the watchdog's thread may give it up while the event loop is blocked, so each
change is one assignment.
"""

import math
from collections.abc import Sequence

from attrs import Factory, define, evolve, field, frozen

from twinlog.ha.election.commit import KeeperView
from twinlog.ha.election.epochs import key_of, last_of
from twinlog.ha.election.group_record import id_as_slave, is_newer
from twinlog.ha.election.queue_locks import LockTable
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId
from twinlog.store.member_file import is_successor
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState

# A number farther ahead is an accident: after the greatest that the file takes there could be no other epoch.
EPOCH_STEP_MAX = 1 << 32


@frozen(kw_only=True)
class VoteRequest:
    """A candidate asks for the vote in an epoch. `expects_end`: the master is to resign, with its log ending there."""

    epoch: int
    candidate: str  # Its id.
    dry_run: bool = False
    expects_end: int | None = None
    codes: tuple[str, ...] = ()  # The candidate's register codes.

    @property
    def id(self) -> EpochId:
        """The epoch's name."""
        return EpochId(self.epoch, self.candidate)


@frozen(kw_only=True)
class VoteReply:
    """`promised`: after the answer; `is_master`: before it. `member`: the voter's id; one of twinlog 0.2 reports none."""

    granted: bool
    why: str
    promised: EpochId
    entries: tuple[EpochEntry, ...]
    max_offset: int
    min_offset: int
    whole: bool
    is_master: bool
    group: GroupRecord | None
    address: str
    member: str = field(default=Factory(lambda self: self.address, takes_self=True))
    codes: tuple[str, ...] = ()  # The voter's register codes.
    hears: bool | None = None  # Whether it is, or hears, a serving master; None: a version that cannot say.
    heard_ms: int | None = None  # Since it heard its master last; None: not said.
    holds_off_ms: int = 0  # So long it wants no automatic election: there were many.
    can_store: bool = True
    locks: LockTable | None = None  # Of queues, with a vote; None: not known there.

    @property
    def last(self) -> EpochEntry:
        """The epoch in which its log ends."""
        return last_of(self.entries, self.max_offset)

    @property
    def key(self) -> tuple[int, bool, str, int]:
        """See key_of()."""
        return key_of(self.entries, self.max_offset)


@frozen(kw_only=True)
class LeaseRequest:
    """The master of an epoch, whose id is `member`, asks a voter to renew its lease."""

    id: EpochId
    address: str
    ha_address: str
    entries: tuple[EpochEntry, ...]
    max_offset: int
    confirmed_offset: int
    group: GroupRecord
    boot_ms: int
    pause_remaining_ms: int | None = None  # Of `group.paused`, by the master's clock.
    member: str = field(default=Factory(lambda self: self.address, takes_self=True))
    codes: tuple[str, ...] = ()  # Its register codes.
    member_address: str = ""  # See GroupMember.
    serves: bool = True  # False: it asks only to learn what the voters know, and is no master to wait for.
    locks: LockTable | None = None  # Locks of queues that the voter does not know yet.
    wants_locks: bool = False  # The master was restarted, and does not know those that it gave.
    why_not: str = ""  # Why it does not serve.


@frozen(kw_only=True)
class LeaseReply:
    """`promised` and `group_version`: after the answer. `member`: the voter's id; "": not reported."""

    accepted: bool
    why: str
    promised: EpochId
    last: EpochEntry
    max_offset: int
    flushed_offset: int
    group_version: int
    whole: bool
    member: str = ""
    is_copy: bool = False  # Another process takes part as the member that asked: this one must not serve.
    locks_version: int | None = None  # Of this master's locks, as known now; None: an earlier version of twinlog.
    locks: LockTable | None = None  # If they are wanted.
    can_store: bool = True  # It could take messages, as a master.
    keeper: KeeperView | None = None  # None: it knows no etcd, or is of a version that does not.


def is_master(state: RoleState, entries: Sequence[EpochEntry]) -> bool:
    """True if this member may be master: of the epoch that it promised last, and won."""
    return state.role is not BrokerRole.SLAVE and entries[-1].id == state.promised


def decide_vote(
    state: RoleState,
    entries: Sequence[EpochEntry],
    min_offset: int,
    max_offset: int,
    paused_end: int | None,
    ask: VoteRequest,
    me: GroupMember,
) -> tuple[RoleState | None, VoteReply]:
    """The state to save before answering (None: unchanged), and the answer. `paused_end`: end of the log in a write pause."""
    why = why_older(state.group, ask.candidate, ask.codes) or _objection(state, max_offset, paused_end, ask)
    promised_now = not why and ask.id != state.promised and not ask.dry_run
    after = _promised(state, ask.id, me.id) if promised_now else None
    answer = VoteReply(
        granted=not why,
        why=why,
        promised=(after or state).promised,
        entries=tuple(entries),
        max_offset=max_offset,
        min_offset=min_offset,
        whole=state.whole,
        is_master=is_master(state, entries),
        group=state.group,
        address=me.address,
        member=me.id,
        codes=me.codes,
    )
    return after, answer


def why_older(group: GroupRecord | None, id: str, codes: tuple[str, ...]) -> str:
    """Reason why a directory with these register codes is not the member: a later start of it was seen. "" where it is."""
    known = group.member(id) if group is not None else None
    if known is not None and not is_successor(codes, known.code):
        return f"another directory goes on as member {named(group, id)}: this one is a copy of it, or older"
    return ""


def named(group: GroupRecord | None, id: str) -> str:
    """A member in a line for people: its name and address, and its id; the id alone where nothing else is known."""
    label = group.label(id) if group is not None else id
    return label if id in label else f"{label}, {id}"


def _objection(state: RoleState, max_offset: int, paused_end: int | None, ask: VoteRequest) -> str:
    """Reason why the vote is refused; "" when it can be, or was, given."""
    if ask.id == state.promised:
        # Asked again. A master that resigned for it is not paused any more, and writes no more.
        if ask.expects_end not in (None, max_offset):
            return f"its log ends at {max_offset}, not at {ask.expects_end}"
        return ""
    if ask.epoch <= state.promised.epoch:
        return _why_promised(state)
    if ask.epoch > state.promised.epoch + EPOCH_STEP_MAX:
        return _too_far(ask.epoch, state)
    if ask.expects_end is not None and paused_end is None:
        return "it does not pause writes any more"
    if ask.expects_end not in (None, paused_end):
        return f"its log ends at {paused_end}, not at {ask.expects_end}"
    return ""


def _why_promised(state: RoleState) -> str:
    return f"it has promised epoch {state.promised.epoch} to {named(state.group, state.promised.winner) or 'nobody'}"


def _too_far(epoch: int, state: RoleState) -> str:
    return f"epoch {epoch} is no number that comes after {state.promised.epoch}"


def _promised(state: RoleState, promised: EpochId, own: str) -> RoleState:
    """The state after a vote: not master any more, without a master's plans. Mastership comes back with an entry of its own."""
    return evolve(
        state,
        promised=promised,
        role=BrokerRole.SLAVE,
        broker_id=id_as_slave(state.group, own),
        clean=False,
        scheduled=None,
    )


def decide_lease(
    state: RoleState,
    ask: LeaseRequest,
    entries: Sequence[EpochEntry],
    max_offset: int,
    flushed_offset: int,
    own: str,
) -> tuple[RoleState | None, LeaseReply]:
    """The state to save before answering (None: unchanged), and the answer. `own`: this member's id."""
    older = why_older(state.group, ask.member, ask.codes)
    why = older or _lease_objection(state, ask, own)
    after = None if why else followed(state, ask.id, ask.group, own)
    now = after or state
    answer = LeaseReply(
        accepted=not why,
        why=why,
        promised=now.promised,
        last=last_of(entries, max_offset),
        max_offset=max_offset,
        flushed_offset=flushed_offset,
        group_version=now.group.version if now.group is not None else 0,
        whole=now.whole,
        member=own,
        is_copy=bool(older),
    )
    return (after if after != state else None), answer


def _lease_objection(state: RoleState, ask: LeaseRequest, own: str) -> str:
    if (ask.id.winner != ask.member and ask.id != FIRST.id) or ask.member == own:
        winner, asker = named(state.group, ask.id.winner), named(state.group, ask.member)
        return f"epoch {ask.id.epoch} was won by {winner}, not by {asker}"
    if ask.id.epoch > state.promised.epoch + EPOCH_STEP_MAX:
        return _too_far(ask.id.epoch, state)
    if ask.id.epoch > state.promised.epoch or ask.id == state.promised:
        return ""
    return _why_promised(state)


def followed(state: RoleState, master: EpochId, group: GroupRecord | None, own: str) -> RoleState:
    """The state of a follower of this master, whose epoch is the promised one or newer, with its record of the group."""
    assert master == state.promised or master.epoch > state.promised.epoch, (master, state.promised)
    record = group if group is not None and is_newer(group, state.group) else state.group
    return evolve(
        state,
        promised=master,
        role=BrokerRole.SLAVE,
        group=record,
        broker_id=id_as_slave(record, own),
        scheduled=None,  # A master's plan ends with its mastership.
    )


ALWAYS = math.inf  # As the time of asking: the lease is held for ever, as a group has no other voters.
_NEVER = -math.inf


@define(eq=False)
class Lease:
    """Held for `seconds` from when enough voters were asked that said yes."""

    seconds: float
    why: str = field(default="no voter was asked yet", init=False)  # The reason while it is not held.
    _until: float = field(default=_NEVER, init=False)

    def grant(self, asked_at: float) -> None:
        """Renew it: enough members said yes that were asked then or later."""
        self._until = max(self._until, asked_at + self.seconds)
        self.why = "too few of the group's members answer"

    def give_up(self, why: str) -> None:
        """End it, until it is granted again."""
        self.why = why
        self._until = _NEVER

    def held(self, now: float) -> bool:
        """True while it is held."""
        return now < self._until

    def remaining(self, now: float) -> float:
        """Seconds that are left; 0 when it is not held."""
        return max(self._until - now, 0.0)
