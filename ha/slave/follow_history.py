"""May this slave follow its master, by the histories of both logs? Asked before bytes are compared, and before they are taken.

    ask       the master's history: is it as new as our promise, does its record name us?
    compare   the bytes, by digests (ha/compare/preflight.py): what is equal needs no cut, whatever the histories say
    cut       what the master's history proves to be given up, if all below it is equal; kept in twinlog/divergent/
    adopt     its history instead of ours, durably
    connect   and ask once more: it is the master that was compared with

A master that resigned where the next one begins has nothing to compare, and was told the history: it adopts and connects.

Only then is anything acknowledged, so an acknowledgement in an epoch always comes from a log that says so in elections. A slave
that has no record of a group has no history that could prove anything, and is repaired by the rules of
ha/policy/auto_resync.py only.
"""

from datetime import UTC, datetime

import structlog
from attrs import define, field

from twinlog.ha.compare import finding
from twinlog.ha.compare.comparison import answer_of
from twinlog.ha.compare.finding import Finding
from twinlog.ha.compare.preflight import Verdict
from twinlog.ha.config import HAConfig
from twinlog.ha.election.epochs import Comparison, compare_histories
from twinlog.ha.election.group_record import remaining_pause
from twinlog.ha.errors import HAConnectionLostError, HAPeerError, HAUnfitError
from twinlog.ha.log import ComparableStore
from twinlog.ha.peer import OwnRole, Peer, PeerHistory
from twinlog.ha.policy.auto_resync import BeginAnew, Cut
from twinlog.store.epoch_file import FIRST, EpochId
from twinlog.store.role_file import GroupMember

log = structlog.get_logger()


def tells_history(role: OwnRole) -> bool:
    """Whether this member may follow only masters that report a history."""
    return role.promised() != FIRST.id or role.group is not None


def is_older(epoch: EpochId, promised: EpochId) -> bool:
    """Whether a member that made this promise serves no master of this epoch; of one number it serves one winner."""
    return epoch != promised and epoch.epoch <= promised.epoch


def why_not_followed(
    address: str, master: PeerHistory, promised: EpochId, me: GroupMember | None, comparison: Comparison, own_max: int
) -> Finding | None:
    """What speaks against following, before a byte is compared. A slave that serves slaves has no record to name them in."""
    if is_older(master.id, promised) or comparison.kind == "newer":
        return finding.older_epoch(address, master.id, promised, own_max)
    is_slave = master.role.value == "SLAVE"
    if not is_slave and master.group is not None and me is not None and master.group.member(me.address) is None:
        return finding.not_a_member(address, me.address, own_max)
    return None


def given_up_cut(comparison: Comparison, verdict: Verdict, why: str) -> Cut | BeginAnew | None:
    """What the histories prove to be given up, as a cut; None: there is nothing to cut, or more differs than that."""
    cut, own = comparison.cut_offset, verdict.own
    if comparison.kind != "given up" or cut is None or verdict.kind == "file size":
        return None
    if verdict.kind == "follow" and verdict.proven_offset == own.max_offset:
        return None  # Every byte is the master's, too.
    if verdict.kind in ("diverged", "damaged") and verdict.finding is not None and verdict.finding.offset < cut:
        return None
    assert cut <= own.max_offset, "a cut behind the log's end"
    return Cut(cut, why) if cut >= own.min_offset else BeginAnew(why)


def why_given_up(comparison: Comparison) -> str:
    """For people: in the log, and beside the bytes that are kept."""
    entry = comparison.given_up_by
    if entry is None:
        return "given up by the master's history"
    when = datetime.fromtimestamp(entry.at_ms / 1000, UTC).isoformat(timespec="seconds") if entry.at_ms else "no time"
    return f"given up in epoch {entry.epoch}, when {entry.winner} became master ({entry.kind}, {when})"


@define(eq=False)
class HistoryCheck:
    """The histories, over one attempt to follow."""

    address: str
    role: OwnRole
    store: ComparableStore
    config: HAConfig
    peer: Peer | None
    told: PeerHistory | None = field(default=None, init=False)  # What the master said; None: nothing that counts.
    _failure: HAPeerError | None = field(default=None, init=False)

    def take_over(self, master: PeerHistory) -> bool:
        """Believe what the master said when it took over from this member; False when that is not how things are any more."""
        as_told = self.store.max_offset == master.entries[-1].start_offset
        if self.peer is None or not as_told or is_older(master.id, self.role.promised()):
            return False
        self.told, self._failure = master, None
        return True

    async def ask(self) -> None:
        """Learn the master's history. Raises HAUnfitError where it may not be followed now, HAConnectionLostError."""
        role, self.told, self._failure = self.role, None, None
        if self.peer is None:
            if tells_history(role):
                raise HAConnectionLostError(
                    "the master's remoting port is not known: who tells no history is not followed"
                )
            return
        if not tells_history(role) and role.me() is None:
            return
        try:
            self.told = await answer_of(self.peer.history(role.me()))
        except HAPeerError as error:
            if tells_history(role):
                raise HAConnectionLostError(f"the master does not tell its history: {error}") from error
            self._failure = error
            return
        own_max = self.store.max_offset
        if self.told is None:
            if tells_history(role):
                raise HAUnfitError(finding.no_epochs(self.address, role.promised(), own_max))
            return
        found = why_not_followed(self.address, self.told, role.promised(), role.me(), self._compare(self.told), own_max)
        if found is not None:
            raise HAUnfitError(found)

    def _compare(self, master: PeerHistory) -> Comparison:
        return compare_histories(self.role.epochs(), self.store.max_offset, master.entries, master.max_offset)

    def to_cut(self, verdict: Verdict) -> Cut | BeginAnew | None:
        """What has to go before this log is followed. Raises HAUnfitError where that must not be done by itself."""
        if self.told is None or self.role.group is None:
            return None
        comparison = self._compare(self.told)
        repair = given_up_cut(comparison, verdict, why_given_up(comparison))
        if repair is None:
            return None
        held_back = self._why_not_by_itself()
        if held_back:
            offset = repair.offset if isinstance(repair, Cut) else verdict.own.min_offset
            raise HAUnfitError(finding.given_up(offset, verdict.own.max_offset, repair.why, held_back))
        return repair

    def _why_not_by_itself(self) -> str:
        assert self.told is not None
        if not self.config.auto_rewind:
            return "haAutoRewind is false"
        pause = remaining_pause(self.told.group, self.store.now_ms() - self.role.clock_ahead_ms)
        return f"the group is paused: {pause.reason or 'no reason was given'}" if pause is not None else ""

    async def confirm(self) -> None:
        """Ask again. Raises HAConnectionLostError unless the master is what it was, and we may follow it still."""
        if self._failure is not None:
            raise HAConnectionLostError(f"the master does not tell its history: {self._failure}")
        if self.told is None or self.peer is None:
            return
        try:
            now = await answer_of(self.peer.history(self.role.me()))
        except HAPeerError as error:
            raise HAConnectionLostError(f"the master does not tell its history: {error}") from error
        if now is None or (now.id, now.entries, now.boot_ms) != (self.told.id, self.told.entries, self.told.boot_ms):
            raise HAConnectionLostError("the master's history changed while the logs were compared")
        if is_older(now.id, self.role.promised()):
            raise HAConnectionLostError("a newer epoch was promised while the logs were compared")
        if now.max_offset < min(self.told.max_offset, self.store.max_offset):
            raise HAConnectionLostError("the master's log got shorter while the logs were compared")

    async def adopt(self) -> None:
        """Take the master's history over. Raises HAUnfitError, other kinds of HAError: it may not be followed yet."""
        if self.told is not None:
            try:
                await self.role.adopt(self.told)
            except HAPeerError as error:
                raise HAUnfitError(finding.not_yet(self.store.max_offset, str(error))) from error
