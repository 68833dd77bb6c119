"""What a member answers who is asked for its promise, or told who is master: a function of what it has on its disk. No I/O.

The caller saves the new state durably, with all streams of an older epoch ended, before the answer leaves. Whoever has promised
an epoch serves, follows and acknowledges none that is older.
"""

import math
from collections.abc import Sequence

from attrs import define, evolve, field, frozen

from twinlog.ha.election.epochs import last_of
from twinlog.ha.election.group_record import id_as_slave, is_newer
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId
from twinlog.store.role_file import GroupRecord, RoleState

EPOCH_STEP_MAX = (
    1 << 32
)  # A number farther ahead is an accident; the greatest that a file takes would be the last for ever.


@frozen(kw_only=True)
class VoteRequest:
    """A candidate wants to become master of an epoch. `expects_end`: a master is to resign with its log's end there."""

    epoch: int
    candidate: str
    dry_run: bool = False
    expects_end: int | None = None

    @property
    def id(self) -> EpochId:
        """The epoch's name."""
        return EpochId(self.epoch, self.candidate)


@frozen(kw_only=True)
class VoteReply:
    """`promised` is what holds after the answer; `is_master` what it was before."""

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

    @property
    def last(self) -> EpochEntry:
        """The epoch that its log ends in."""
        return last_of(self.entries, self.max_offset)


@frozen(kw_only=True)
class LeaseRequest:
    """The master of an epoch says that it is there, and asks who follows it."""

    id: EpochId
    address: str
    ha_address: str
    entries: tuple[EpochEntry, ...]
    max_offset: int
    confirmed_offset: int
    group: GroupRecord
    boot_ms: int
    pause_remaining_ms: int | None = None  # Of `group.paused`, by the master's clock.


@frozen(kw_only=True)
class LeaseReply:
    """`promised` and `group_version` are what holds after the answer."""

    accepted: bool
    why: str
    promised: EpochId
    last: EpochEntry
    max_offset: int
    flushed_offset: int
    group_version: int
    whole: bool


def is_master(state: RoleState, entries: Sequence[EpochEntry]) -> bool:
    """Whether this member may be master: of the epoch that it has promised last, and has taken."""
    return state.role is not BrokerRole.SLAVE and entries[-1].id == state.promised


def promise(
    state: RoleState,
    entries: Sequence[EpochEntry],
    min_offset: int,
    max_offset: int,
    holding_end: int | None,
    ask: VoteRequest,
    address: str,
) -> tuple[RoleState | None, VoteReply]:
    """What to save before answering, None: nothing; and the answer. `holding_end`: where a master's log ends that holds sends."""
    why = _objection(state, max_offset, holding_end, ask)
    promised_now = not why and ask.id != state.promised and not ask.dry_run
    after = _promised(state, ask.id, address) if promised_now else None
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
        address=address,
    )
    return after, answer


def _objection(state: RoleState, max_offset: int, holding_end: int | None, ask: VoteRequest) -> str:
    """Why not; "" when the promise can be given, or was given."""
    if ask.id == state.promised:  # Asked again. A master that resigned for it holds no more, and writes no more.
        if ask.expects_end not in (None, max_offset):
            return f"its log ends at {max_offset}, not at {ask.expects_end}"
        return ""
    if ask.epoch <= state.promised.epoch:
        return f"it has promised epoch {state.promised.epoch} to {state.promised.winner or 'nobody'}"
    if ask.epoch > state.promised.epoch + EPOCH_STEP_MAX:
        return _too_far(ask.epoch, state)
    if ask.expects_end is not None and holding_end is None:
        return "it does not hold sends back any more"
    if ask.expects_end not in (None, holding_end):
        return f"its log ends at {holding_end}, not at {ask.expects_end}"
    return ""


def _too_far(epoch: int, state: RoleState) -> str:
    return f"epoch {epoch} is no number that comes after {state.promised.epoch}"


def _promised(state: RoleState, promised: EpochId, address: str) -> RoleState:
    """Nobody's master from now on, without a master's plans: the role comes back with an entry of its own."""
    return evolve(
        state,
        promised=promised,
        role=BrokerRole.SLAVE,
        broker_id=id_as_slave(state.group, address),
        clean=False,
        scheduled=None,
    )


def lease(
    state: RoleState,
    ask: LeaseRequest,
    entries: Sequence[EpochEntry],
    max_offset: int,
    flushed_offset: int,
    address: str,
) -> tuple[RoleState | None, LeaseReply]:
    """What to save before answering, None: nothing; and the answer. `address` is this member's own."""
    why = _lease_objection(state, ask, address)
    after = None if why else followed(state, ask.id, ask.group, address)
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
    )
    return (after if after != state else None), answer


def _lease_objection(state: RoleState, ask: LeaseRequest, address: str) -> str:
    if (ask.id.winner != ask.address and ask.id != FIRST.id) or ask.address == address:
        return f"epoch {ask.id.epoch} was won by {ask.id.winner}, not by {ask.address}"
    if ask.id.epoch > state.promised.epoch + EPOCH_STEP_MAX:
        return _too_far(ask.id.epoch, state)
    if ask.id.epoch > state.promised.epoch or ask.id == state.promised:
        return ""
    return f"it has promised epoch {state.promised.epoch} to {state.promised.winner or 'nobody'}"


def followed(state: RoleState, master: EpochId, group: GroupRecord | None, address: str) -> RoleState:
    """The state of who follows this master, whose epoch is the promised one or newer, with its record of the group."""
    assert master == state.promised or master.epoch > state.promised.epoch, (master, state.promised)
    record = group if group is not None and is_newer(group, state.group) else state.group
    return evolve(
        state,
        promised=master,
        role=BrokerRole.SLAVE,
        group=record,
        broker_id=id_as_slave(record, address),
        scheduled=None,  # A master's plan ends with its mastership.
    )


ALWAYS = math.inf  # Asked then, it is held for ever: a group that has nobody to ask.
_NEVER = -math.inf


@define(eq=False)
class Lease:
    """Held for `seconds` from when enough of the group were asked that said yes."""

    seconds: float
    why: str = field(default="nobody was asked yet", init=False)  # It is not held, if so.
    _until: float = field(default=_NEVER, init=False)

    def grant(self, asked_at: float) -> None:
        """Enough members said yes to what they were asked then, not earlier."""
        self._until = max(self._until, asked_at + self.seconds)
        self.why = "too few of the group's members answer"

    def give_up(self, why: str) -> None:
        """From now on it is not held, until it is granted again."""
        self.why = why
        self._until = _NEVER

    def held(self, now: float) -> bool:
        """Whether it is."""
        return now < self._until

    def remaining(self, now: float) -> float:
        """Seconds, 0 when it is not held."""
        return max(self._until - now, 0.0)
