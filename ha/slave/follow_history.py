"""Checks by the histories of both logs whether a slave may follow its master, before bytes are compared and received.

    ask       the master's history: it must be as new as the promised epoch, and its record must name this slave
    compare   the bytes, by digests (ha/compare/preflight.py): equal bytes need no cut, whatever the histories say
    cut       what the master's history proves to be given up, if all below it is equal; kept in twinlog/divergent/
    adopt     its history instead of ours, durably
    connect   and ask once more: it is still the master that was compared

A master that resigned where the next epoch begins has nothing to compare, and knows the history: it adopts and connects.

Nothing is acknowledged before that, so an acknowledgement in an epoch always comes from a log that reports it in elections.
A slave without a group record has no history that proves anything; only ha/policy/auto_resync.py repairs it.
"""

from datetime import UTC, datetime

import structlog
from attrs import define, field

from twinlog.ha.compare import finding
from twinlog.ha.compare.comparison import answer_of
from twinlog.ha.compare.finding import Finding
from twinlog.ha.compare.preflight import Verdict
from twinlog.ha.config import HAConfig
from twinlog.ha.election.epochs import HistoryComparison, compare_histories
from twinlog.ha.election.group_record import remaining_pause
from twinlog.ha.errors import HAConnectionLostError, HAPeerError, HAUnfitError
from twinlog.ha.peer import OwnRole, Peer, PeerHistory
from twinlog.ha.policy.auto_resync import BeginAnew, Cut
from twinlog.store.epoch_file import FIRST, EpochId
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import GroupMember

log = structlog.get_logger()


def tells_history(role: OwnRole) -> bool:
    """True if this member may follow only masters that report a history."""
    return role.promised() != FIRST.id or role.group is not None


def is_older(epoch: EpochId, promised: EpochId) -> bool:
    """True if a member with this promised epoch follows no master of `epoch`: of one number it follows one winner."""
    return epoch != promised and epoch.epoch <= promised.epoch


def why_not_followed(
    address: str,
    master: PeerHistory,
    promised: EpochId,
    me: GroupMember | None,
    comparison: HistoryComparison,
    own_max: int,
) -> Finding | None:
    """Finding against following, before a byte is compared. A slave that serves slaves has no record to name them in."""
    if is_older(master.id, promised) or comparison.kind == "newer":
        return finding.older_epoch(address, master.id, promised, own_max)
    is_slave = master.role.value == "SLAVE"
    if not is_slave and master.group is not None and me is not None and master.group.member(me.id) is None:
        return finding.not_a_member(address, me.address, own_max)
    return None


def given_up_cut(comparison: HistoryComparison, verdict: Verdict, why: str) -> Cut | BeginAnew | None:
    """The cut of what the histories prove to be given up; None: there is nothing to cut, or more differs than that."""
    cut, own = comparison.cut_offset, verdict.own
    if comparison.kind != "given up" or cut is None or verdict.kind == "file size":
        return None
    if verdict.kind == "follow" and verdict.proven_offset == own.max_offset:
        return None  # Every byte is the master's, too.
    if verdict.kind in ("diverged", "damaged") and verdict.finding is not None and verdict.finding.offset < cut:
        return None
    assert cut <= own.max_offset, "a cut behind the log's end"
    return Cut(cut, why) if cut >= own.min_offset else BeginAnew(why)


def why_given_up(comparison: HistoryComparison) -> str:
    """Reason of a cut as text: for the log line, and for the file of the bytes that are kept."""
    entry = comparison.given_up_by
    if entry is None:
        return "given up by the master's history"
    when = datetime.fromtimestamp(entry.at_ms / 1000, UTC).isoformat(timespec="seconds") if entry.at_ms else "no time"
    return f"given up in epoch {entry.epoch}, when {entry.winner_label or entry.winner} became master ({entry.kind}, {when})"


@define(eq=False)
class HistoryCheck:
    """Checks the histories over one attempt to follow."""

    address: str
    role: OwnRole
    store: MessageStore
    config: HAConfig
    peer: Peer | None
    reported: PeerHistory | None = field(default=None, init=False)  # By the master; None: nothing that counts.
    ticket: int | None = field(default=None, init=False)  # For the connection that stands; None: the master gave none.
    _failure: HAPeerError | None = field(default=None, init=False)

    def take_over(self, master: PeerHistory) -> bool:
        """Accept the history of the master that took over from this member; False when it no longer applies."""
        applies = self.store.max_offset == master.entries[-1].start_offset
        if self.peer is None or not applies or is_older(master.id, self.role.promised()):
            return False
        self.reported, self._failure = master, None
        return True

    async def ask(self) -> None:
        """Learn the master's history. Raises HAUnfitError where it may not be followed now, HAConnectionLostError."""
        role, self.reported, self._failure = self.role, None, None
        if self.peer is None:
            if tells_history(role):
                raise HAConnectionLostError(
                    "the master's remoting port is not known: a master without a history is not followed"
                )
            return
        if not tells_history(role) and role.me() is None:
            return
        try:
            self.reported = await answer_of(self.peer.history(role.me()))
        except HAPeerError as error:
            if tells_history(role):
                raise HAConnectionLostError(f"the master does not report its history: {error}") from error
            self._failure = error
            return
        own_max = self.store.max_offset
        if self.reported is None:
            if tells_history(role):
                raise HAUnfitError(finding.no_epochs(self.address, role.promised(), own_max))
            return
        found = why_not_followed(
            self.address, self.reported, role.promised(), role.me(), self._compare(self.reported), own_max
        )
        if found is not None:
            raise HAUnfitError(found)

    def _compare(self, master: PeerHistory) -> HistoryComparison:
        return compare_histories(self.role.epochs(), self.store.max_offset, master.entries, master.max_offset)

    def to_cut(self, verdict: Verdict) -> Cut | BeginAnew | None:
        """The cut that is needed before following. Raises HAUnfitError where it must not be made automatically."""
        if self.reported is None or self.role.group is None:
            return None
        comparison = self._compare(self.reported)
        repair = given_up_cut(comparison, verdict, why_given_up(comparison))
        if repair is None:
            return None
        held_back = self._why_not_automatic()
        if held_back:
            offset = repair.offset if isinstance(repair, Cut) else verdict.own.min_offset
            raise HAUnfitError(finding.given_up(offset, verdict.own.max_offset, repair.why, held_back))
        return repair

    def _why_not_automatic(self) -> str:
        assert self.reported is not None
        if not self.config.auto_rewind:
            return "haAutoRewind is false"
        pause = remaining_pause(self.reported.group, self.store.now_ms() - self.role.clock_ahead_ms)
        return f"the group is paused: {pause.reason or 'no reason was given'}" if pause is not None else ""

    async def confirm(self) -> None:
        """Ask again. Raises HAConnectionLostError unless the master's history is the same, and may still be followed."""
        if self._failure is not None:
            raise HAConnectionLostError(f"the master does not report its history: {self._failure}")
        before = self.reported
        if before is None or self.peer is None:
            return
        try:
            now = await answer_of(self.peer.history(self.role.me()))
        except HAPeerError as error:
            raise HAConnectionLostError(f"the master does not report its history: {error}") from error
        if now is None or (now.id, now.entries, now.boot_ms) != (before.id, before.entries, before.boot_ms):
            raise HAConnectionLostError("the master's history changed while the logs were compared")
        self.ticket = now.ticket
        if is_older(now.id, self.role.promised()):
            raise HAConnectionLostError("a newer epoch was promised while the logs were compared")
        if now.max_offset < min(before.max_offset, self.store.max_offset):
            raise HAConnectionLostError("the master's log got shorter while the logs were compared")

    async def adopt(self) -> None:
        """Adopt the master's history. Raises HAUnfitError or another HAError: it may not be followed yet."""
        if self.reported is not None:
            try:
                await self.role.adopt(self.reported)
            except HAPeerError as error:
                raise HAUnfitError(finding.not_yet(self.store.max_offset, str(error))) from error
