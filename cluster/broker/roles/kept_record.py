"""The group's record as etcd keeps it, and the in-sync set that changes there. The rules: ha/election/commit.py, in_sync_set.py.

    every member      reads it now and then, to tell how etcd is
    the master        puts the version that waits in the place of the one before, again and again until one of both is there;
                      tells that it serves; watches who holds the whole log
    a candidate       reads it before it asks for votes, and puts its epoch there (candidate.py)

An outage of etcd changes nothing here: what is in force stays so, acknowledgements go on by it, and changes wait.
"""

import math
from collections.abc import Awaitable, Callable

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.roles.member import Member
from twinlog.ha.election.commit import (
    KeeperError,
    KeeperRefusedError,
    KeeperView,
    KeptRecord,
    RecordKeeper,
    why_refused,
)
from twinlog.ha.election.group_record import in_force
from twinlog.ha.election.hearing import look_seconds
from twinlog.ha.election.in_sync_set import Seen, SetChange, SetFacts, next_set
from twinlog.store.config import FlushDiskType
from twinlog.store.epoch_file import EpochEntry, EpochId
from twinlog.store.role_file import GroupRecord
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

LEVEL_SECONDS = 3.0  # Under load a slave is known to have caught up once a second; see ha/policy/in_sync.py.
READ_SECONDS = 2.0
RETRY_SECONDS = 0.5
LOOK_SECONDS = 0.25
SIGN_SECONDS = 5.0  # So long the master's sign in etcd lives.


@define(eq=False)
class LevelClock:
    """Seconds since each voter held the whole log last, in time in which this member ran: see hearing.py. `look` is called a few
    times a second while it serves.
    """

    away: dict[str, float] = field(factory=dict, init=False)  # By id.
    # The master before this one, if a failover passed it: it is not waited for.
    passed: str = field(default="", init=False)
    _epoch: EpochId | None = field(default=None, init=False)
    _looked_at: float | None = field(default=None, init=False)

    def look(self, last: EpochEntry, voters: frozenset[str], caught_up_at: dict[str, float], now: float) -> None:
        """Count the time since the last look, in this epoch."""
        epoch, is_new = last.id, last.id != self._epoch
        step = 0.0 if is_new else look_seconds(now, self._looked_at)
        if is_new:
            self.passed = last.old if last.kind in ("failover", "forced") and last.old != last.winner else ""
        before = {self.passed: math.inf} if is_new else self.away
        self.away = {
            id: min(before.get(id, 0.0) + step, max(now - caught_up_at.get(id, -math.inf), 0.0)) for id in voters
        }
        self._epoch, self._looked_at = epoch, now

    def seen(self, caught_up_at: dict[str, float], now: float) -> tuple[Seen, ...]:
        """The voters as next_set() takes them."""
        level = {id for id, at in caught_up_at.items() if now - at <= LEVEL_SECONDS}
        return tuple(
            Seen(id=id, is_level=id in level, away_seconds=away, is_passed=id == self.passed and away == math.inf)
            for id, away in sorted(self.away.items())
        )


@define(eq=False)
class EtcdRecord:
    """`keeper` None: no etcdEndpoints are set here. `why_not`: what in this member's configuration has no place in this mode."""

    member: Member
    keeper: RecordKeeper | None = None
    why_not: str = ""
    kept: KeptRecord | None = field(default=None, init=False)  # As it was read, or written, last.
    # The reason why `kept` is not to be relied on; "" after an answer.
    why: str = field(default="it was not asked yet", init=False)
    why_since_ms: int = field(default=0, init=False)  # Wall clock: since when there is a `why`; 0: it answered last.
    is_refused: bool = field(default=False, init=False)  # It answers, and what it holds must not be used.
    heard_at: Callable[[str], float] = field(default=lambda _id: -math.inf, init=False)  # When a voter answered last.
    on_change: Callable[[], None] = field(default=lambda: None, init=False)  # Another version is there.
    to_write: Wakeup = field(factory=Wakeup, init=False)  # A version waits.
    levels: LevelClock = field(factory=LevelClock, init=False)
    # Wall clock: when the set was seen to change last; 0: not since the start.
    changed_ms: int = field(default=0, init=False)
    change_why: str = field(default="", init=False)  # Why, if this member changed it.
    _decided: str = field(default="", init=False)
    set_change: SetChange = field(default=SetChange(kind="stay"), init=False)

    async def run(self) -> None:
        """Until cancelled."""
        if self.keeper is None:
            return
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._announce_task, self.keeper)
                nursery.start_soon(self._look_task)
                nursery.start_soon(self._write_task)
        finally:
            await self.keeper.aclose()

    async def _write_task(self) -> None:
        while True:
            waits = self._waiting()
            try:
                if waits is not None:
                    await self._write(waits)
                else:
                    await self.read()
            except KeeperError as error:
                log.debug("etcd gives no answer", why=str(error))
            with trio.move_on_after(RETRY_SECONDS if self._waiting() is not None else READ_SECONDS):
                await self.to_write.wait()

    async def _announce_task(self, keeper: RecordKeeper) -> None:
        while True:
            group = self.member.group
            if self.member.is_serving and group is not None and group.is_in_etcd:
                try:
                    await keeper.announce(self.member.own, SIGN_SECONDS)
                except KeeperError as error:
                    log.debug("telling etcd that this master serves failed", why=str(error))
            await trio.sleep(SIGN_SECONDS / 4)

    async def _look_task(self) -> None:
        while True:
            group = self.member.group
            if self.member.is_serving and group is not None and group.is_in_etcd:
                self._look(group)
            await trio.sleep(LOOK_SECONDS)

    def _look(self, group: GroupRecord) -> None:
        member = self.member
        self.levels.look(member.durable.last, group.voters - {member.own}, self._level_at(), trio.current_time())

    def _level_at(self) -> dict[str, float]:
        """Time at which each voter held the whole log last, as far as it also answered its master since."""
        caught_up_at = self.member.ha.group_transfer.caught_up_at()
        return {id: min(at, self.heard_at(id)) for id, at in caught_up_at.items()}

    def view(self) -> KeeperView | None:
        """The word of this member to its master about etcd; None: it knows none."""
        if self.keeper is None:
            return None
        return KeeperView(cluster=self.keeper.cluster, why=self.why_not or self.why)

    # Reads and swaps

    async def read(self) -> KeptRecord:
        """Read what etcd holds now. Raises KeeperError: none there, or nothing that this member may use."""
        return await self._asked(lambda keeper: keeper.read())

    async def swap(self, before: KeptRecord, record: GroupRecord) -> KeptRecord:
        """Put a version there; the answer is what is there then. Raises KeeperError."""
        return await self._asked(lambda keeper: keeper.swap(before, in_force(record)))

    async def _asked(self, question: Callable[[RecordKeeper], Awaitable[KeptRecord]]) -> KeptRecord:
        """Note the answer, or the reason why there is none that this member may use. Raises KeeperError."""
        if self.keeper is None:
            raise KeeperRefusedError("no etcdEndpoints are set on this member: set them, as on the others")
        try:
            kept = await question(self.keeper)
            if why := why_refused(kept, self.member.group):
                raise KeeperRefusedError(why)
        except KeeperError as error:
            self._note_why(error)
            raise
        self._note(kept)
        return kept

    def _note(self, kept: KeptRecord) -> None:
        if self.why and self.kept is not None:
            log.info("etcd answers again")
        self.why, self.why_since_ms, self.is_refused = "", 0, False
        if kept != self.kept:
            if _in_sync(self.kept) not in ((), _in_sync(kept)):
                self.changed_ms, self.change_why = self.member.now_ms(), ""
            self.kept = kept
            self.on_change()

    def _note_why(self, error: KeeperError) -> None:
        group, why = self.member.group, str(error)
        if why != self.why and group is not None and group.is_in_etcd:
            log.warning("etcd is not to be relied on now: changes of the in-sync set and elections wait", why=why)
        self.why, self.is_refused = why, isinstance(error, KeeperRefusedError)
        self.why_since_ms = self.why_since_ms or self.member.now_ms()

    # The version that waits

    def _waiting(self) -> GroupRecord | None:
        """The version of this master that is to come into force by being in etcd; None: there is none, or somebody was first."""
        member = self.member
        state = member.durable.state
        if not member.is_serving or state is None or state.group is None or state.before is None:
            return None
        if not state.before.is_in_etcd or self.overtaken() or self.is_kept(state.group):
            return None
        return state.group

    async def _write(self, record: GroupRecord) -> None:
        """Ask for a version once; whatever an earlier attempt became, one of them takes its place at most."""
        kept = self.kept
        if kept is None or self.why:
            kept = await self.read()
        # Until the answer came, another master may have been elected, and be followed here.
        if self._waiting() == record:
            await self.swap(kept, record)

    def is_kept(self, record: GroupRecord) -> bool:
        """True if this very version is in etcd, or was."""
        return self.kept is not None and self.kept.record == in_force(record)

    def overtaken(self) -> str:
        """The member that has begun a newer epoch in etcd, as text: this master changes the record no more. "" without one."""
        record = self.kept.record if self.kept is not None else None
        if record is None or record.epoch <= self.member.id.epoch:
            return ""
        winner = record.candidate or next((each.id for each in record.members if each.broker_id == 0), "")
        return f"{self.member.address_of(winner)} has begun epoch {record.epoch} in etcd"

    def expelled(self) -> str:
        """Reason why this member is no master any more, whatever it holds: a newer epoch is without it. "" where none is."""
        record = self.kept.record if self.kept is not None else None
        if not self.overtaken() or record is None or self.member.own in record.electors:
            return ""
        return f"{self.overtaken()}, and this member is not in its in-sync set"

    # The in-sync set

    def note_change(self) -> None:
        """The change of the set that was decided last is in force."""
        self.changed_ms, self.change_why = self.member.now_ms(), self._decided
        self._decided = ""

    def next_set(self, group: GroupRecord, unlisted: frozenset[str]) -> SetChange:
        """The next change of the set, while this member serves. `unlisted`: who is to leave."""
        member = self.member
        self._look(group)  # A new master has not looked yet.
        others = tuple(
            Seen(id=each.id, is_level=False, away_seconds=math.inf) if each.id in unlisted else each
            for each in self.levels.seen(self._level_at(), trio.current_time())
        )
        change = next_set(
            SetFacts(
                own=member.own,
                group=group,
                others=others,
                is_sync_flush=member.store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
                min_members=member.config.min_in_sync_replicas,
                leave_seconds=member.config.max_time_slave_not_catchup_ms / 1000,
            )
        )
        if change.why and change.kind == "stay" and change.why != self.set_change.why:
            log.warning("the in-sync set stays as it is", why=change.why)
        if change.kind != "stay":
            self._decided = change.why
        self.set_change = change
        return change


def _in_sync(kept: KeptRecord | None) -> tuple[str, ...]:
    return kept.record.in_sync if kept is not None and kept.record is not None else ()
