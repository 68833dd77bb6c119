"""Faults of role changes to be put into the product, in memory: what other systems of this kind got wrong, or easily could.

Each is caught by one of the checks of role_checks.py, within a few seeds that have operators.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio
from attrs import evolve

import twinlog.cluster.broker.roles.candidate
import twinlog.cluster.broker.roles.durable_state
import twinlog.cluster.broker.roles.joining
import twinlog.ha.election.epochs
import twinlog.ha.election.group_record
import twinlog.ha.election.role_change
import twinlog.ha.election.voter
import twinlog.ha.election.votes
import twinlog.ha.slave.follow_history
import twinlog.store.truncation.truncation
from tests.simulation.holes import hole
from twinlog.cluster.broker.roles.durable_state import DurableRoleState
from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.tables.offsets import MasterOffsets
from twinlog.ha.election.voter import VoteReply
from twinlog.ha.peer import PeerHistory
from twinlog.ha.policy.in_sync import InSync
from twinlog.ha.service import HAService
from twinlog.ha.slave.follow_history import HistoryCheck
from twinlog.store.epoch_file import EpochEntry, encode_epochs, save_epochs
from twinlog.store.role_file import GroupRecord, RoleState, encode_role


@hole("histories are compared by offset only")
def by_offset_only() -> Iterator[None]:
    """Two elections without a write between them begin at one offset: whoever looks at that only sees one history."""

    def common(own: Sequence[EpochEntry], peer: Sequence[EpochEntry]) -> int:
        count = 0
        for mine, theirs in zip(own, peer, strict=False):
            if mine.start_offset != theirs.start_offset:
                break
            count += 1
        return count

    with patch.object(twinlog.ha.election.epochs, "_common", common):
        yield


@hole("an epoch's number is used again")
def number_used_again() -> Iterator[None]:
    """A promise is given twice for one number, and a candidate asks for the highest that it knows."""
    objection, next_epoch = twinlog.ha.election.voter._objection, twinlog.ha.election.role_change.next_epoch

    def lenient(state: RoleState, max_offset: int, paused_end: int | None, ask: Any) -> str:
        if ask.epoch == state.promised.epoch and ask.epoch > 0:
            return ""
        return objection(state, max_offset, paused_end, ask)

    def same(*arguments: Any) -> int:
        return max(next_epoch(*arguments) - 1, 1)

    with (
        patch.object(twinlog.ha.election.voter, "_objection", lenient),
        patch.object(twinlog.cluster.broker.roles.candidate, "next_epoch", same),
    ):
        yield


@hole("a promise is not flushed")
def promise_not_flushed() -> Iterator[None]:
    """It is written, and answered, and a power cut takes it back."""

    def save(side: Path, state: RoleState) -> None:
        (side / "role").write_bytes(encode_role(state))

    with patch.object(twinlog.cluster.broker.roles.durable_state, "save_role", save):
        yield


@hole("an epoch's beginning is not flushed")
def entry_not_flushed() -> Iterator[None]:
    """The winner writes in an epoch that its own disk does not know yet."""

    def save(side: Path, entries: Sequence[EpochEntry]) -> None:
        (side / "epochs").write_bytes(encode_epochs(entries))

    with patch.object(twinlog.cluster.broker.roles.durable_state, "save_epochs", save):
        yield


@hole("a cut is not flushed")
def cut_not_flushed() -> Iterator[None]:
    """What was given up is gone from memory only, and comes back under the new master's history."""
    with (
        patch.object(twinlog.store.truncation.truncation, "cut_on_disk", lambda cut, files: None),
        patch.object(twinlog.store.truncation.truncation, "write_durably", lambda path, data: None),
        patch.object(twinlog.store.truncation.truncation, "remove_intent", lambda side: None),
    ):
        yield


@hole("a history is adopted before the cut")
def adopted_before_cut() -> Iterator[None]:
    """A crash between the two leaves a log that is called the new master's, and is not."""
    ask = HistoryCheck.ask

    async def ask_and_adopt(self: HistoryCheck) -> None:
        await ask(self)
        if self.reported is not None and self.role.group is not None:
            await self.adopt()

    with patch.object(HistoryCheck, "ask", ask_and_adopt):
        yield


@hole("a lost tail is written again")
def tail_written_again() -> Iterator[None]:
    """A master that lost what it had sent goes on in its epoch, as if nothing had been there."""
    load = Member.load

    def forgetful(self: Member) -> RoleState | None:
        state = load(self)
        self.durable.lacks_tail = False
        return state

    with patch.object(Member, "load", forgetful):
        yield


@hole("who lost bytes is counted whole")
def not_whole_counts() -> Iterator[None]:
    """A member that a power cut took acknowledged bytes from elects as if it had them."""
    load = Member.load

    def whole(self: Member) -> RoleState | None:
        load(self)
        if self.durable.state is not None:
            self.durable.state = evolve(self.durable.state, whole=True)
        return self.durable.state

    with patch.object(Member, "load", whole):
        yield


@hole("what others acknowledged is forgotten")
def others_forgotten() -> Iterator[None]:
    """Before there is a record anybody's acknowledgements count: who lacks what they were for is elected by its members."""
    with patch.object(twinlog.ha.election.votes, "_unsure", lambda group, own, promisers: None):
        yield


@hole("an unlisted member is counted")
def unlisted_counted() -> Iterator[None]:
    """Whoever is registered acknowledges, and elections know of members only."""
    with (
        patch.object(LeaseRounds, "counted_members", lambda self: None),
        patch.object(LeaseRounds, "_count", lambda self, record, ids: None),
    ):
        yield


@hole("a promise is given before the stream ends")
def promised_while_streaming() -> Iterator[None]:
    """What is under way from the old master is taken, and acknowledged, after the promise not to."""

    async def stay(self: HAService) -> None:
        await trio.lowlevel.checkpoint()

    with patch.object(HAService, "leave_master", stay):
        yield


@hole("an epoch without a byte is not recorded")
def equal_start_not_recorded() -> Iterator[None]:
    """A slave takes up an epoch that begins where its log ends once there is a byte of it, and acknowledges in it before."""
    adopt = Member.adopt

    async def adopt_later(self: Member, master: PeerHistory) -> None:
        before = self.durable.entries
        await adopt(self, master)
        if self.durable.entries != before and master.entries[-1].start_offset >= self.store.max_offset:
            save_epochs(self.durable.side, before)
            self.durable.entries = before

    with patch.object(Member, "adopt", adopt_later):
        yield


@hole("offsets going back")
def offsets_going_back() -> Iterator[None]:
    """A slave replaces its consumers' offsets with those of its master, whatever was committed here (as RocketMQ does)."""

    def replace(self: MasterOffsets, own: Any, told: Any, life: object, *, epoch: int | None = None) -> Any:
        return {key: dict(queues) for key, queues in told.items()}, 0

    with patch.object(MasterOffsets, "merge", replace):
        yield


@hole("one promise is enough")
def one_promise() -> Iterator[None]:
    """The candidate's own: nobody else is asked whether he acknowledged something."""
    with patch.object(twinlog.ha.election.votes, "needed", lambda group: 1):
        yield


# Who a member is


@hole("a vote counts twice for one id")
def vote_counted_twice() -> Iterator[None]:
    """A member answers at two addresses, and both answers are votes."""
    counting = twinlog.ha.election.votes._counting_votes

    def both(group: GroupRecord, answers: dict[str, VoteReply]) -> list[VoteReply]:
        return counting(group, answers) * 2

    with patch.object(twinlog.ha.election.votes, "_counting_votes", both):
        yield


@hole("an old address counts beside the new one")
def old_address_counted() -> Iterator[None]:
    """What a member acknowledged on its connection from where it was counts beside what it acknowledges where it is."""

    def recount(self: InSync) -> None:
        for seat in self._seats.values():
            seat.counted = self._entries[self.name_of(seat.ip, seat.member)] > 0
        self.acks = sorted(seat.ack_offset for seat in self._seats.values() if seat.counted)
        self.waited = self.acks

    with patch.object(InSync, "_recount", recount):
        yield


@hole("a moved member is counted whole")
def moved_is_whole() -> Iterator[None]:
    """Who comes back with another address is believed to have all that it acknowledged: its directory may be an older copy."""
    load = DurableRoleState.load

    def believing(self: DurableRoleState) -> None:
        load(self)
        self.has_moved = False

    with patch.object(DurableRoleState, "load", believing):
        yield


@hole("register codes are ignored")
def codes_ignored() -> Iterator[None]:
    """Who has the id is the member, whatever start the group has seen last."""
    with (
        patch.object(twinlog.ha.election.voter, "is_successor", lambda codes, seen: True),
        patch.object(twinlog.cluster.broker.roles.joining, "is_successor", lambda codes, seen: True),
    ):
        yield


@hole("a master that is called a copy serves")
def copied_master_serves() -> Iterator[None]:
    """Whoever renews its lease to nobody says why in a text that nothing reads: after haLeaseMs it serves without one."""
    with patch.object(LeaseRounds, "why_copy", lambda self: ""):
        yield


@hole("a moved member answers for itself")
def moved_answers_for_itself() -> Iterator[None]:
    """A record with a member's new address is in force by that member's answer: a copy counts, and the member elects."""
    with patch.object(twinlog.ha.election.group_record, "_unproven", lambda old, record: frozenset()):
        yield
