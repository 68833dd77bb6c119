"""One attempt of a slave to follow its master: compare the logs, repair ours if allowed, connect, receive, and detect stalls.

A master is not followed while our log does not fit its log. A master whose remoting port does not answer is followed as by a
RocketMQ slave, except that our last bytes are requested again and compared; one that was found unfit before is not followed.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
import trio
from attrs import define, evolve, field

from twinlog.ha.compare.comparison import LogComparison, answer_of
from twinlog.ha.compare.finding import Finding, diverged_in_overlap, not_compared
from twinlog.ha.compare.own_log import OwnReader
from twinlog.ha.compare.preflight import Proven, Verdict, equal_by_handover
from twinlog.ha.compare.tail_overlap import OVERLAP_MAX, SHRINK, Overlap
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import (
    HABadRecordError,
    HAConnectionLostError,
    HADivergedError,
    HALogError,
    HAPeerError,
    HAUnfitError,
)
from twinlog.ha.peer import NO_ROLE, OwnRole, Peer, PeerHistory, PeerLog
from twinlog.ha.policy.auto_resync import BeginAnew, Cut, Refusal, Repair, Resync
from twinlog.ha.policy.stall import CHECK_SECONDS, Observation, StallDetector
from twinlog.ha.slave.follow_history import HistoryCheck
from twinlog.ha.slave.replica import Replica
from twinlog.ha.statistics import ClientState
from twinlog.ha.wire.protocol import ACK
from twinlog.ha.wire.tls import HATls, begin_as_slave
from twinlog.ha.wire.transport import Transport, open_peer_nursery
from twinlog.store.epoch_file import EpochEntry
from twinlog.store.errors import StoreError
from twinlog.store.message_store import MessageStore
from twinlog.store.record.resync import is_record
from twinlog.store.record.scan import scan_records

log = structlog.get_logger()

REFUSED_WITHIN = 1.0  # Seconds. A master that ends the connection so soon after a report did it because of the report.


@define(eq=False)
class MasterMemory:
    """Knowledge of the master at one address, over all attempts."""

    resync: Resync
    peer_log: PeerLog | None = field(default=None, init=False)  # As last reported.
    proven: Proven | None = field(default=None, init=False)
    history: tuple[EpochEntry, ...] | None = field(default=None, init=False)  # Its own, as long as that was proven for.
    unfit: Finding | None = field(default=None, init=False)  # As long as nothing else was found.
    overlap_max: int = field(default=OVERLAP_MAX, init=False)  # Bytes.
    _bad_offset: int = field(default=-1, init=False)  # Of the last bad record.
    _bad_times: int = field(default=0, init=False)  # How many came there in a row.

    def note_bad_record(self, offset: int) -> int:
        """Note one; the number of them in a row at this very offset: two are no accident of the line."""
        self._bad_times = self._bad_times + 1 if offset == self._bad_offset else 1
        self._bad_offset = offset
        return self._bad_times


@define(eq=False)
class Following:
    """`entered` is called with each new state."""

    address: str
    store: MessageStore
    config: HAConfig
    connect: Callable[[str], Awaitable[Transport]]
    peer: Peer | None
    memory: MasterMemory
    entered: Callable[[ClientState], None]
    role: OwnRole = NO_ROLE
    handed_over: PeerHistory | None = None  # By this member, to the master, where our log ends.
    buffer: bytearray | None = None  # For what arrives.
    tls: HATls | None = None
    fresh_transport: Transport | None = field(default=None, init=False)  # Connected, and not used yet.
    replica: Replica | None = field(default=None, init=False)
    finding: Finding | None = field(default=None, init=False)  # A finding that does not keep it from following.
    asks_for_less: bool = field(default=False, init=False)  # The next attempt does, to make progress over a bad line.
    _own: OwnReader = field(init=False)
    _history: HistoryCheck = field(init=False)
    _verdict: Verdict | None = field(default=None, init=False)
    _hopes_for_answer: bool = field(default=False, init=False)  # The remoting port may come up yet.
    _why_not_compared: str = field(default="its remoting port is not known", init=False)
    _watch: StallDetector | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._own = OwnReader(self.store)
        self._history = HistoryCheck(self.address, self.role, self.store, self.config, self.peer)

    async def run(self) -> None:
        """Follow until an HAError ends it: HAUnfitError where retrying at once does not help."""
        if self.store.flags.why_not_appendable:
            raise HALogError(f"this log takes no bytes: {self.store.flags.why_not_appendable}")
        await self._compare()
        replica = await self._open()
        try:
            await self._take(replica)
        except HADivergedError as error:
            raise HAUnfitError(await self._diverged(replica, error)) from error
        except HABadRecordError as error:
            if self.memory.note_bad_record(error.phy_offset) < 2:
                raise
            found = await explain(error, self.peer, self.store.commit_log.file_size)
            raise HAUnfitError(found) from error
        except HAConnectionLostError:
            if replica.overlap is not None and not replica.received_bytes:
                self.asks_for_less = self.memory.overlap_max > 0
                self.memory.overlap_max //= SHRINK
            elif replica.received_bytes > OVERLAP_MAX:
                self.memory.overlap_max = OVERLAP_MAX
            raise

    async def _compare(self) -> None:
        """Make sure that our log is a prefix of the master's, by a repair if allowed. Raises HAUnfitError."""
        if self.handed_over is not None and self._history.take_over(self.handed_over):
            await self._history.adopt()
            self._verdict = equal_by_handover(self.handed_over, self._own.ends())
            return
        while True:
            await self._history.ask()
            if self.peer is None:
                return
            self.entered("preflight")
            verdict = await self._ask_verdict(self.peer)
            if verdict is None:
                return
            given_up = self._history.to_cut(verdict)
            if given_up is not None:
                await self._history.confirm()
                await self._make_fit(given_up, "log truncated where the master's history diverges")
                continue
            if verdict.kind == "follow":
                await self._history.adopt()
                self._verdict, self.finding = verdict, verdict.finding
                return
            await self._repair(verdict)

    async def _ask_verdict(self, peer: Peer) -> Verdict | None:
        """Compare the bytes; None: the master does not answer, and is followed nevertheless. Raises HAUnfitError."""
        memory, reported = self.memory, self._history.reported
        if reported is not None and reported.entries != memory.history:
            # It may have been cut since, by a master of its own.
            memory.history, memory.proven = reported.entries, None
        comparison = LogComparison(self._own, peer)
        try:
            verdict = await comparison.run(memory.proven)
        except HAPeerError as error:
            if memory.unfit is not None:
                raise HAUnfitError(memory.unfit) from error
            if reported is not None:
                raise HAConnectionLostError(f"the master's remoting port answers no more: {error}") from error
            self._hopes_for_answer, self._why_not_compared = comparison.peer_log is None, str(error)
            return None
        memory.peer_log = verdict.peer
        if verdict.proven_offset is not None:
            memory.proven = Proven(verdict.peer.boot_ms, verdict.proven_offset)
        memory.unfit = verdict.finding if verdict.kind != "follow" else None
        return verdict

    async def _repair(self, verdict: Verdict) -> None:
        """Repair as far as allowed. Raises HAUnfitError when no repair is, HALogError when it fails."""
        assert verdict.finding is not None
        repair = self.memory.resync.decide(verdict)
        match repair:
            case None:
                raise HAUnfitError(verdict.finding)
            case Refusal(why):
                text = f"{verdict.finding.text}. haAutoResync does nothing here: {why}"
                raise HAUnfitError(evolve(verdict.finding, text=text))
        await self.role.suspect_tail(repair.why)
        await self._make_fit(repair, "haAutoResync: log repaired to fit its master's")
        self.memory.resync.done(verdict)

    async def _make_fit(self, repair: Repair, event: str) -> None:
        self.entered("resyncing")
        before = self.store.max_offset
        try:
            match repair:
                case Cut(offset, why):
                    await self.store.truncate(offset, why)
                case BeginAnew(why):
                    await self.store.reset(why)
        except (OSError, StoreError) as error:
            raise HALogError(f"this log could not be made to fit the master's: {error}") from error
        self.memory.unfit = self.memory.proven = None
        log.warning(
            event,
            peer=self.address,
            ended_at=before,
            ends_at=self.store.max_offset,
            kept_in=str(self.store.config.root.expanduser() / "twinlog" / "divergent"),
            why=repair.why,
        )

    async def _open(self) -> Replica:
        begin_at, overlap = 0, None
        peer_log = self._verdict.peer if self._verdict is not None else None
        if self.store.max_offset:
            if self._verdict is None or self._verdict.compared not in ("digests", "handover"):
                peer_min = peer_log.min_offset if peer_log is not None else 0
                overlap = await overlap_of(self._own, peer_min, self.memory.overlap_max)
            if self._verdict is None:
                start = overlap.start if overlap is not None else self.store.max_offset
                self.finding = not_compared(start, self._why_not_compared)
        elif peer_log is not None and self.peer is not None and not peer_log.is_twinlog:
            begin_at = max(peer_log.min_offset, 0)
            if begin_at == 0 < peer_log.max_offset:
                await fetch_first_record(self.peer, self.store)
        self.entered("connecting")
        self.fresh_transport = transport = await self._connect()
        try:
            await self._check_restart()
            if self._history.ticket is not None:
                await transport.send(ACK.pack(self._history.ticket))
        except BaseException:
            await transport.aclose()
            raise
        finally:
            self.fresh_transport = None
        self.replica = Replica(transport, self.store, self.config, overlap, begin_at, self._master_end, self.buffer)
        self.entered("streaming")
        return self.replica

    def _master_end(self) -> int:
        return self.memory.peer_log.max_offset if self.memory.peer_log is not None else 0

    async def _connect(self) -> Transport:
        with trio.move_on_after(self.config.connect_timeout_ms / 1000):
            transport = await self.connect(self.address)
            try:
                return await self._secured(transport)
            except BaseException:
                await transport.aclose()
                raise
        raise HAConnectionLostError(f"cannot connect: no answer within {self.config.connect_timeout_ms} ms")

    async def _secured(self, transport: Transport) -> Transport:
        """With TLS where this member, or the master, takes nothing else: so haTls is set on one member after another."""
        if self.config.tls:
            return await begin_as_slave(transport, self.tls, why="haTls=true here")
        if self._history.reported is not None and self._history.reported.only_tls:
            return await begin_as_slave(transport, self.tls, why="haTls=true on the master")
        return transport

    async def _check_restart(self) -> None:
        """Check, once connected, that the master is still the process that was compared: then it stays so for this connection."""
        if self._verdict is None or self.peer is None:
            return
        if self._history.reported is not None:
            await self._history.confirm()  # It says all that the rest of this asks for.
            return
        try:
            now = await answer_of(self.peer.log())
        except HAPeerError as error:
            raise HAConnectionLostError(f"the master's remoting port answers no more: {error}") from error
        before = self._verdict.peer
        if now.boot_ms != before.boot_ms or now.max_offset < min(before.max_offset, self.store.max_offset):
            raise HAConnectionLostError("the master was started anew while the logs were compared")
        await self._history.confirm()

    async def _take(self, replica: Replica) -> None:
        async with open_peer_nursery() as nursery:
            nursery.start_soon(self._watch_task, replica)
            await replica.run()

    async def _watch_task(self, replica: Replica) -> None:
        """Check the stream every few seconds. Raises HAUnfitError when it is stuck."""
        heartbeat = self.config.send_heartbeat_interval_ms / 1000
        self._watch = watch = StallDetector(trio.current_time(), replica.position, heartbeat)
        fits = self.finding
        while True:
            await trio.sleep(CHECK_SECONDS)
            position = replica.position
            peer_log = await self._ask() if self._hopes_for_answer or watch.wants_peer(position) else None
            if peer_log is not None and self._hopes_for_answer:
                raise HAConnectionLostError("the master's remoting port answers now: the logs are compared first")
            seen = self._observe(replica, position, peer_log)
            found = watch.check(seen)
            if found is not None:
                raise HAUnfitError(found)
            self._note_dispatch(watch.dispatch(seen), fits)
            self.entered("streaming")

    def _observe(self, replica: Replica, position: int, peer_log: PeerLog | None) -> Observation:
        return Observation(
            now=trio.current_time(),
            position=position,
            frames=replica.frames,
            last_read=replica.last_read,
            max_offset=self.store.max_offset,
            dispatched_offset=self.store.dispatched_offset,
            comparing_to=replica.overlap.end if replica.overlap is not None and replica.is_comparing else None,
            peer=peer_log,
        )

    def _note_dispatch(self, found: Finding | None, otherwise: Finding | None) -> None:
        if found is not None and self.finding != found:
            log.warning("dispatch to the queues is stuck", why=found.text)
        self.finding = found or otherwise

    async def _ask(self) -> PeerLog | None:
        if self.peer is not None:
            with suppress(HAPeerError):
                self.memory.peer_log = await answer_of(self.peer.log(), CHECK_SECONDS)
                return self.memory.peer_log
        return None

    async def _diverged(self, replica: Replica, error: HADivergedError) -> Finding:
        assert replica.overlap is not None
        offset, record = error.phy_offset, None
        with suppress(OSError, StoreError):  # Then the finding lacks the record that is here.
            found = await self._own.last_record(replica.overlap.start, offset + 1)
            offset = offset if found is None else found
            record = await self._own.record(offset)
        return diverged_in_overlap(offset, self.store.max_offset, record)

    def has_got_over(self, state: ClientState) -> bool:
        """True if this attempt proves that an earlier state of the client is over."""
        replica = self.replica
        if replica is None:
            return False
        if replica.received_bytes:
            return True
        if state == "stalled":
            return self._watch is not None and self._watch.has_caught_up
        if replica.is_comparing:
            return False
        # A master that only closes late, at the second report, must not look like one that has forgiven.
        settled = 2 * self.config.send_heartbeat_interval_ms / 1000 + REFUSED_WITHIN
        return (
            self._verdict is not None
            or replica.overlap is not None
            or replica.last_read > replica.connected_at + settled
        )

    def looks_refused(self, error: Exception) -> bool:
        """Whether the master, asked for what follows our log, left at once: a RocketMQ master closes at the second report, after
        a heartbeat; ours at the first one, without a word. Only for one that does not tell what it has.
        """
        replica = self.replica
        if replica is None or self._verdict is not None or not isinstance(error, HAConnectionLostError):
            return False
        closed_after_report = trio.current_time() - replica.reported_at < REFUSED_WITHIN
        got_nothing = not replica.received_bytes and (replica.overlap is None or not replica.overlap.compared)
        return got_nothing and self.store.max_offset > 0 and (closed_after_report or replica.frames == 0)


async def explain(error: HABadRecordError, peer: Peer | None, file_size: int) -> Finding:
    """Ask the master what it has there itself."""
    offset, why = error.phy_offset, "its remoting port does not answer, so that where it broke is not known"
    if peer is not None:
        try:
            record = await answer_of(peer.record(offset))
        except HAPeerError:
            pass
        else:
            if record is not None and is_record(record, offset, file_size):
                why = "asked for this record alone it gives a sound one: the way between, or a machine's memory, spoils it"
            else:
                why = (
                    "asked for this record alone it gives none that is sound, either: its own copy is damaged there. Let it "
                    "look with: twinlog log verify. A slave that has this record can take its place"
                )
    return Finding(
        "bad record",
        offset,
        f"a bad record at offset {offset}, repeatedly from this master: {error.what}. Nothing behind it is taken, and the "
        f"master is asked again every few seconds only; {why}",
    )


async def overlap_of(own: OwnReader, peer_min: int, size_max: int) -> Overlap | None:
    """The last records of a log that is not empty; None when a single record, at 0, is all there is. Raises HALogError."""
    ends = own.ends()
    lowest = max(ends.max_offset - min(size_max, ends.file_size), ends.min_offset, peer_min, 1)
    try:
        start = await own.first_record(lowest, ends.max_offset)
        if start is None:  # Larger than all that is asked for otherwise.
            start = await own.last_record(max(ends.min_offset, peer_min, 1), ends.max_offset)
        if start is None:
            return None
        return Overlap(start, await own.read(start, ends.max_offset))
    except (OSError, StoreError) as error:
        raise HALogError(f"the end of this log cannot be read: {error}") from error


async def fetch_first_record(peer: Peer, store: MessageStore) -> None:
    """Put the record at 0 into an empty log, if the master gives a valid one; otherwise the master decides where to begin.

    A RocketMQ master takes a request for 0 as one for its last file, and sends its oldest file only if asked for its first byte.
    When that is 0, the first record has to come by request 33, so that there is another offset to ask for.

    Raises HALogError.
    """
    try:
        record = await answer_of(peer.record(0))
    except HAPeerError as error:
        log.warning("first record of the master's log not available", why=str(error))
        return
    if record is None:
        return
    scan = scan_records(record, 0, store.commit_log.file_size, check_crc=True, delays_ms=store.delays_ms)
    if len(scan.entries) != 1 or scan.consumed != len(record):
        log.warning("first record of the master's log is invalid", why=scan.error)
        return
    try:
        store.append_replicated(memoryview(record), scan.entries)
    except (OSError, StoreError) as error:
        raise HALogError(f"appending the first record failed: {error}") from error
