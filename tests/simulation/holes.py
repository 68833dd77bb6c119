"""Faults to be put back into the product, in memory: each is one that RocketMQ has, or that is easily made.

tests/simulation/test_holes.py shows that the simulation notices each of them, and says what it notices.
"""

from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import wraps
from typing import Any
from unittest.mock import patch

import trio

import tests.simulation.producer
import twinlog.cluster.broker.send.acks
import twinlog.ha.master.connection
import twinlog.ha.service
import twinlog.ha.slave.following
import twinlog.ha.slave.replica
import twinlog.store.log.unverified_tail
import twinlog.store.services.flush
import twinlog.store.util.sync
from tests.simulation import determinism
from twinlog.ha.errors import HALogError
from twinlog.ha.master.connection import HAConnection
from twinlog.ha.policy.admission import AdmissionRules
from twinlog.ha.policy.in_sync import InSync
from twinlog.ha.slave.following import Following
from twinlog.ha.slave.replica import Replica
from twinlog.ha.wire.protocol import BATCH_HEADER
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.services.flush import FlushService

HOLES: dict[str, Callable[[], AbstractContextManager[object]]] = {}


def hole(name: str) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Give a fault its name."""

    def add(function: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        HOLES[name] = contextmanager(function)
        return function

    return add


# Acknowledgements


@hole("highest ack of all times")
def highest_ack() -> Iterator[None]:
    """The confirmed offset is the highest that was ever reported, and never falls (RocketMQ's push2SlaveMaxOffset)."""
    highest: dict[int, int] = {}

    def held_by(self: InSync, slaves: int) -> int:
        now = self.acks[-slaves] if slaves <= len(self.acks) else 0
        highest[slaves] = max(highest.get(slaves, 0), now)
        return highest[slaves]

    with patch.object(InSync, "held_by", held_by):
        yield


@hole("anybody's ack counts")
def forged_acks() -> Iterator[None]:
    """Whoever connects is a slave, and whatever it reports is true."""

    def recount(self: InSync) -> None:
        self.acks = []
        for seat in self._seats.values():
            seat.counted = True
            insort(self.acks, seat.ack_offset)
        self.waited = self.acks

    with (
        patch.object(AdmissionRules, "admits", lambda self, ip, member="", proof="": True),
        patch.object(InSync, "_recount", recount),
        patch.object(twinlog.ha.master.connection, "check_reports", lambda reports, *, acked, sent: None),
        patch.object(twinlog.ha.master.connection, "push_start", _any_start),
        patch.object(twinlog.ha.service.HAService, "_holdable", lambda self: 1 << 62),
        patch.object(twinlog.ha.service.HAService, "members_changed", _only_count),
    ):
        yield


def _only_count(self: twinlog.ha.service.HAService, ips: Any) -> None:
    self.connection_admission.rules.members_changed(ips)
    self.group_transfer.members_changed(ips)


def _any_start(requested: int, min_offset: int, max_offset: int, file_size: int) -> int:
    return min_offset if requested == 0 else requested


@hole("a request above the end counts")
def request_above_end() -> Iterator[None]:
    """The first report is an acknowledgement, even of bytes that this master never had."""
    with (
        _serves_any_place(),
        patch.object(twinlog.ha.service.HAService, "_holdable", lambda self: 1 << 62),
        _no_comparison(),
    ):
        yield


@hole("ack before verification")
def no_verification() -> Iterator[None]:
    """What arrives is appended as it is, if only its framing fits."""
    scan = twinlog.ha.slave.replica.scan_records

    def trusting(*arguments: Any, **options: Any) -> Any:
        return scan(*arguments, **{**options, "check_crc": False})

    with patch.object(twinlog.ha.slave.replica, "scan_records", trusting):
        yield


@hole("acks what has not been verified")
def acks_the_trail() -> Iterator[None]:
    """A slave that is far behind acknowledges what it has received."""
    held = Replica._held.fget
    assert held is not None

    with patch.object(Replica, "_held", property(lambda self: held(self) + self.store.unverified_bytes)):
        yield


@hole("written acknowledged as flushed")
def written_as_flushed() -> Iterator[None]:
    """A slave that is to acknowledge what is on its disk acknowledges what is in its memory."""
    with patch.object(Replica, "_acks_flushed", False):
        yield


@hole("one slave counted twice")
def counted_twice() -> Iterator[None]:
    """A slave that comes back while its old connection still stands has two voices."""

    def recount(self: InSync) -> None:
        self.acks = []
        for seat in self._seats.values():
            seat.counted = self._entries[self.name_of(seat.ip, seat.member)] > 0
            if seat.counted:
                insort(self.acks, seat.ack_offset)
        self.waited = self.acks

    with patch.object(InSync, "_recount", recount):
        yield


@hole("synchronous is silently asynchronous")
def silently_asynchronous() -> Iterator[None]:
    """Producers of a SYNC_MASTER hear OK at once when no slave is there."""
    wait_until_safe = twinlog.cluster.broker.send.acks.wait_until_safe

    def lenient(store: Any, transfer: Any, end_offset: int, sink: Any, frame: bytes) -> None:
        if transfer.slaves:
            wait_until_safe(store, transfer, end_offset, sink, frame)
        else:
            sink.answer([frame])

    with patch.object(tests.simulation.producer, "wait_until_safe", lenient):
        yield


# Streams


@contextmanager
def _no_comparison() -> Iterator[None]:
    """A slave asks nobody about its master's log, and does not ask for its own last bytes again."""

    async def nothing(self: Following) -> None:
        await trio.lowlevel.checkpoint()

    async def no_overlap(*arguments: object) -> None:
        await trio.lowlevel.checkpoint()

    with (
        patch.object(Following, "_compare", nothing),
        patch.object(twinlog.ha.slave.following, "overlap_of", no_overlap),
    ):
        yield


class _Patient(HAConnection):
    """Sends heartbeats while the log does not have what comes next."""

    async def _write_task(self) -> None:
        while True:
            with suppress(HALogError):
                await super()._write_task()
            heartbeat = BATCH_HEADER.pack(self.transport.sent_offset, 0)
            await self.transport.send_batch(heartbeat, None, self.store.commit_log)
            self._last_write = trio.current_time()
            await trio.sleep(5)


@contextmanager
def _serves_any_place() -> Iterator[None]:
    """A master takes any request, and waits for the day on which it has what was asked for."""
    with (
        patch.object(twinlog.ha.master.connection, "push_start", _any_start),
        patch.object(twinlog.ha.service, "HAConnection", _Patient),
    ):
        yield


@hole("last file only")
def last_file_only() -> Iterator[None]:
    """An empty slave is sent the last file, and nothing says that the others are missing."""

    def start(requested: int, min_offset: int, max_offset: int, file_size: int) -> int:
        return max_offset - max_offset % file_size if requested == 0 else requested

    with patch.object(twinlog.ha.master.connection, "push_start", start):
        yield


@hole("heartbeats for ever")
def heartbeats_for_ever() -> Iterator[None]:
    """A slave that needs what the master has deleted is sent heartbeats, and takes them for a sign that all is well."""

    async def no_watch(self: Following, replica: Replica) -> None:
        await trio.sleep_forever()

    with _serves_any_place(), patch.object(Following, "_watch_task", no_watch), _no_comparison():
        yield


@hole("a longer slave streams on")
def longer_slave() -> Iterator[None]:
    """A slave whose master came back shorter waits for the master to grow past its own end, and goes on there."""
    with _serves_any_place(), _no_comparison():
        yield


@hole("wall clock for timeouts")
def wall_clock() -> Iterator[None]:
    """Silence is measured with the clock that people set."""

    class Wall:
        """trio, with another clock."""

        def __getattr__(self, name: str) -> Any:
            return getattr(trio, name)

        @staticmethod
        def current_time() -> float:
            return determinism.wall()

        @staticmethod
        async def sleep_until(deadline: float) -> None:
            await trio.sleep(max(0.0, deadline - determinism.wall()))

    with (
        patch.object(twinlog.ha.master.connection, "trio", Wall()),
        patch.object(twinlog.ha.slave.replica, "trio", Wall()),
    ):
        yield


# Disk


@hole("a cut clears nothing")
def cut_clears_nothing() -> Iterator[None]:
    """A cut moves the end of the log; the bytes behind it stay."""

    def cut(self: MappedFileQueue, offset: int, *, is_clear: bool | None = None) -> None:
        if self.rewind(offset):
            self.sync()

    with patch.object(MappedFileQueue, "cut", cut):
        yield


@hole("failed syncs are swallowed")
def failed_syncs() -> Iterator[None]:
    """fdatasync says EIO, and the bytes count as flushed (RocketMQ's MappedFile.flush)."""
    sync_data = twinlog.store.util.sync.sync_data

    @wraps(sync_data)
    def swallow(fd: int) -> None:
        with suppress(OSError):
            sync_data(fd)

    with patch.object(twinlog.store.services.flush, "sync_data", swallow):
        yield


@hole("names are not flushed")
def names_not_flushed() -> Iterator[None]:
    """A new file's bytes are flushed, its entry in the directory is not."""
    with patch.object(twinlog.store.services.flush, "sync_directory", lambda path: None):
        yield


@hole("flushed before it is")
def flushed_too_early() -> Iterator[None]:
    """The flushed offset is where the log ends when the sync is over, not where it ended when it began."""
    flush = FlushService._flush

    async def early(self: FlushService) -> None:
        before = self.flushed_offset
        await flush(self)
        if self.flushed_offset > before:
            self.flushed_offset = self.log.max_offset
            for file in self.log.files.files:
                file.flushed = file.wrote

    with patch.object(FlushService, "_flush", early):
        yield


@hole("dispatch past a hole")
def dispatch_past_hole() -> Iterator[None]:
    """What a queue file does not take is passed over."""
    put = ConsumeQueueTable.put
    counts = iter(range(1 << 30))

    def lossy(self: ConsumeQueueTable, entries: Any) -> Any:
        entries = list(entries)
        if len(entries) > 3 and next(counts) % 3 == 0:
            del entries[1]
        return put(self, entries)

    with patch.object(ConsumeQueueTable, "put", lossy):
        yield


@hole("what arrived ends without a mark")
def no_mark() -> Iterator[None]:
    """A slave that is far behind writes what has arrived: the last record's properties may be cut, which have no check."""
    with patch.object(twinlog.store.log.unverified_tail, "UNFINISHED", b""):
        yield
