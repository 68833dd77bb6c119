"""Reads the whole log again from the disk, in the background, and finds bytes that changed there.

It reads what was in the log at the start, then all of it every scrubIntervalHours, file by file, the newest first. It checks
each record with its CRC, each block against its digest, and each queue unit against its record. What was read and is sound
needs no check when it is served. A wrong unit is rewritten once its log file was read, if digests prove its record: a record's
CRC covers neither its number nor its tag. And only while nothing in the log is damaged: a topic that was deleted and made anew
has two records with one number, and the later one, to which the unit belongs, may be the broken one.

A thread scans a piece at a time and sleeps in between, because a Python loop in a thread blocks the event loop: at most a
millisecond without a pause, and a fifth of a core in all.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import structlog
import trio
from attrs import define, field

from twinlog.store.integrity.damage import DamagedRanges, KnownDamage
from twinlog.store.integrity.digest import DigestBlock, digest
from twinlog.store.integrity.digest_service import DigestService
from twinlog.store.integrity.read_check import ReadCheck
from twinlog.store.integrity.throttled_scan import (
    ThrottledReader,
    WalkedPiece,
    differing_blocks,
    find_flipped_bit,
    walk,
    without_bodies,
)
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.range import LogRange
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.queue.layout import UNIT, Unit
from twinlog.store.record.message import QUEUELESS, TRANSACTION_MASK
from twinlog.store.record.resync import next_record
from twinlog.store.record.scan import DispatchEntry, scan_records

_ENTRIES_AT_A_TIME, _WRITES_AT_A_TIME = 500, 50  # Without a pause.
_WRONG_MAX = 10_000  # Units of one file; a queue with more wrong ones has to be rebuilt.


@define(eq=False)
class UnitScrub:
    """The units of one file's records.

    `runs`: of each queue, start and end of the last run of right units. `wrong`: the right value of other units, by queue and
    number.
    """

    queues: ConsumeQueueTable
    check: ReadCheck
    runs: dict[ConsumeQueue, tuple[int, int]] = field(factory=dict, init=False)
    wrong: dict[tuple[ConsumeQueue, int], Unit] = field(factory=dict, init=False)

    async def compare(self, entries: list[DispatchEntry]) -> None:
        """Compare the units of records of one file, given in order; wrong ones are reported."""
        for at in range(0, len(entries), _ENTRIES_AT_A_TIME):
            by_queue: dict[tuple[str, int], list[DispatchEntry]] = {}
            for entry in entries[at : at + _ENTRIES_AT_A_TIME]:
                if entry.sys_flag & TRANSACTION_MASK not in QUEUELESS:
                    by_queue.setdefault((entry.topic, entry.queue_id), []).append(entry)
            for (topic, queue_id), group in by_queue.items():
                queue = self.queues.find(topic, queue_id)
                if queue is not None:
                    for run in _consecutive(group):
                        self._compare_run(queue, run)
            await trio.lowlevel.checkpoint()

    def _compare_run(self, queue: ConsumeQueue, entries: list[DispatchEntry]) -> None:
        first, count = entries[0].queue_offset, len(entries)
        there, expected = queue.units(first, first + count), b"".join(UNIT.pack(*entry[3:6]) for entry in entries)
        if there == expected:
            self._good(queue, first, first + count)
            return
        for entry, unit in zip(entries, UNIT.iter_unpack(there), strict=False):
            # A record of a topic that was deleted and made anew has no unit: another one has its number now.
            sound = self.check.unit(queue, entry.queue_offset, *unit)
            if Unit(*unit).is_blank and entry.queue_offset >= queue.min_offset:
                says = f"it is a blank, but its message lies at {entry.phy_offset}"
                self.check.known.unit(queue.topic, queue.queue_id, entry.queue_offset, says)
                self._wrong(queue, entry.queue_offset, Unit(*entry[3:6]))
            elif sound is None:
                self.check.distrust_below(queue, entry.queue_offset + 1)
                self._wrong(queue, entry.queue_offset, Unit(*entry[3:6]))
            elif unit[0] == entry.phy_offset and sound == unit[1:]:
                self._good(queue, entry.queue_offset, entry.queue_offset + 1)
            elif unit[0] == entry.phy_offset:
                self._wrong(queue, entry.queue_offset, Unit(unit[0], *sound))

    def _wrong(self, queue: ConsumeQueue, queue_offset: int, right: Unit) -> None:
        if len(self.wrong) < _WRONG_MAX or (queue, queue_offset) in self.wrong:
            self.wrong[queue, queue_offset] = right

    def _good(self, queue: ConsumeQueue, start: int, end: int) -> None:
        self.check.known.units_right(queue.topic, queue.queue_id, start, end)
        begin, behind = self.runs.get(queue, (start, start))
        self.runs[queue] = (begin, end) if behind == start else (start, end)

    async def repair(self, proves: Callable[[int, int], bool]) -> None:
        """Rewrite wrong units; call it after the whole file. `proves(start, end)`: digests prove these bytes of the log."""
        for number, ((queue, queue_offset), unit) in enumerate(self.wrong.items()):
            if not number % _WRITES_AT_A_TIME:
                await trio.lowlevel.checkpoint()
            if self.check.known.damaged or not proves(unit.phy_offset, unit.phy_offset + unit.size):
                continue
            if _fits(queue, queue_offset, unit):
                with suppress(OSError):  # It was reported, and stays wrong.
                    if queue.repair_unit(queue_offset, unit):
                        self.check.known.unit_repaired(queue.topic, queue.queue_id, queue_offset)

    def trust(self) -> None:
        """Clear right units from further checks; call it after the whole file."""
        for queue, (start, end) in self.runs.items():
            self.check.trust(queue, start, end)


def _fits(queue: ConsumeQueue, queue_offset: int, unit: Unit) -> bool:
    """True when a message lies between those before and behind it."""
    before = queue.unit(queue_offset - 1) if queue_offset > queue.min_offset else None
    behind = queue.unit(queue_offset + 1)
    return (before is None or before.is_blank or before.phy_offset + before.size <= unit.phy_offset) and (
        behind is None or behind.is_blank or unit.phy_offset + unit.size <= behind.phy_offset
    )


def _consecutive(entries: list[DispatchEntry]) -> Iterator[list[DispatchEntry]]:
    """Stretches in which each message is the next one of its queue."""
    start = 0
    for at in range(1, len(entries) + 1):
        if at == len(entries) or entries[at].queue_offset != entries[at - 1].queue_offset + 1:
            yield entries[start:at]
            start = at


log = structlog.get_logger()

_FIRST_SECONDS = 60.0  # After a start: consumers and replicas catch up first.
_PIECE = 1 << 20  # Bytes for one trip to a thread.
_SEARCHES_MAX = 16  # Blocks of one round that are searched for a flipped bit: up to two seconds of CPU each.
_SEARCHED_RANGES_MAX = 20  # Damaged ranges of one round that are looked up in the queues ..
_QUEUE_SEARCHES_MAX = 2_000  # .. as long as there are few queues: each takes up to 60 us of the loop's time.
_HOUR = 3600.0
_SEARCH_BACK = 8 << 20


@define(eq=False)
class ScrubService:
    """The scrub of an open log. `scrubbed_from`: the current round has read all bytes from there on."""

    log: CommitLog
    queues: ConsumeQueueTable
    digest: DigestService
    check: ReadCheck
    bytes_per_second: int  # 0: never.
    interval_hours: int  # 0: once, after the start.
    delays_ms: tuple[int, ...]
    cached_bytes: int  # That much of the log's end is taken to be in memory, and is not read from the disk for us.
    scrubbed_from: int = field(default=0, init=False)
    scrubbed_bytes: int = field(default=0, init=False)
    rounds: int = field(default=0, init=False)
    _searches: int = field(default=0, init=False)
    _broken_ranges: int = field(default=0, init=False)
    _distrusts_all: bool = field(default=False, init=False)

    @property
    def known(self) -> KnownDamage:
        """The collection of findings."""
        return self.check.known

    @property
    def unscrubbed_bytes(self) -> int:
        """Bytes not read since the start."""
        return max(0, self.scrubbed_from - self.log.min_offset) if not self.rounds else 0

    def begin(self) -> None:
        """After loading: mark all messages for checks, and check again what is known to be damaged."""
        self.scrubbed_from = self.log.max_offset
        self.known.forget_below(self.log.min_offset)
        checked_bytes = 0
        for start, end in self.known.damaged:
            checked_bytes += end - start
            if checked_bytes <= _SEARCH_BACK and self._is_sound(start, end):
                self.known.healed(start, end)
        self.check.distrust(self.queues)

    def truncated(self, offset: int) -> None:
        """The log was cut at `offset`."""
        self.scrubbed_from = min(self.scrubbed_from, offset)
        self.known.damaged.remove(offset, 1 << 63)
        self.known.in_doubt.remove(offset, 1 << 63)

    async def run(self) -> None:
        """Scrub until cancelled, or until there is nothing more to do."""
        if not self.bytes_per_second:
            return
        await trio.sleep(_FIRST_SECONDS)
        while True:
            try:  # At first what was in the log at the start: the rest was checked when it was appended.
                await self.scrub(None if self.rounds else self.scrubbed_from)
            except OSError as error:
                log.error("scrub round aborted", error=str(error), scrubbed_from=self.scrubbed_from)
            if not self.interval_hours:
                return
            await trio.sleep(self.interval_hours * _HOUR)

    async def scrub(self, end: int | None = None) -> None:
        """One round, up to the offset `end`, None: the log's end."""
        started, end = time.monotonic(), self.log.max_offset if end is None else end
        self.scrubbed_bytes = self._searches = self._broken_ranges = 0
        self._distrusts_all = False
        self.known.forget_below(self.log.min_offset)
        starts = [file.start for file in self.log.files.files]
        for start in reversed(starts):
            file_end = min(end, start + self.log.file_size)
            if start < file_end <= self.log.max_offset and self.log.min_offset <= start:
                await self._scrub_file(start, file_end)
                if not self.rounds:
                    self.scrubbed_from = min(self.scrubbed_from, start)
        suspects, self.digest.suspects = self.digest.suspects, []
        for suspect in suspects:  # Behind the records: one that is broken explains its block.
            await self._explain(suspect)
        self.rounds += 1
        if not self.scrubbed_bytes:
            return
        log.info(
            "scrub round finished",
            bytes=self.scrubbed_bytes,
            damaged_bytes=self.known.damaged.total,
            in_doubt_bytes=self.known.in_doubt.total,
            wrong_units=self.known.wrong_units,
            repaired_units=self.known.repaired_units,
            seconds=round(time.monotonic() - started, 1),
        )

    async def _scrub_file(self, start: int, end: int) -> None:
        offset, cuts = start, self.digest.cuts
        before = [known for known in self.known.damaged if known[0] < end and known[1] > start]
        broken = DamagedRanges()
        units = UnitScrub(self.queues, self.check)
        differing: list[DigestBlock] = []
        while offset < end:
            began = trio.current_time()
            piece = await self._walk_piece(offset, end)
            if piece is None or cuts != self.digest.cuts:  # Retention took the file, or the log was cut.
                return
            for broken_start, broken_end, found in piece.broken:
                broken.add(broken_start, broken_end)
                self.known.record(broken_start, broken_end, found)
                self._distrust(broken_start, broken_end)
            await units.compare(piece.entries)
            differing += await self._differing_blocks(offset, piece.end)
            size = piece.end - offset
            self.scrubbed_bytes += size
            offset = piece.end
            await trio.sleep_until(began + size / self.bytes_per_second)
        if cuts != self.digest.cuts:
            return
        units.trust()
        for block in differing:  # Afterwards: it may find that some of them are not to be trusted.
            await self._explain(block)
        await units.repair(lambda low, high: cuts == self.digest.cuts and self._is_proven(low, high))
        for known_start, known_end in before:
            is_small = known_end - known_start <= _PIECE
            if is_small and not broken.overlaps(known_start, known_end) and self._is_sound(known_start, known_end):
                self.known.healed(known_start, known_end)

    def _distrust(self, start: int, end: int) -> None:
        """Check the messages of a damaged range when they are read."""
        queues = list(self.queues)
        self._broken_ranges += 1
        if not self._distrusts_all and self._broken_ranges < min(
            _SEARCHED_RANGES_MAX, _QUEUE_SEARCHES_MAX // max(1, len(queues))
        ):
            self.check.distrust_damaged(queues, start, end)
        elif not self._distrusts_all:
            self._distrusts_all = True
            self.check.distrust(queues)  # All of them: looking up each range in each queue would block the event loop.

    def _is_proven(self, start: int, end: int) -> bool:
        """True when each block of a range, compared a moment ago, has a digest and none differs."""
        blocks = list(self.digest.digests.blocks(start, end))
        is_covered = bool(blocks) and blocks[0].start <= start and end <= blocks[-1].end
        return is_covered and not self.known.in_doubt.overlaps(start, end)

    # Records

    def _is_sound(self, start: int, end: int) -> bool:
        """True when a range is whole records and its blocks match their digests. Blocks until it is read."""
        blocks = list(self.digest.digests.blocks(start, end))
        low, high = min([start, *(block.start for block in blocks)]), max([end, *(block.end for block in blocks)])
        try:
            with LogRange.open(self.log, low, high) as bytes_:
                if (bytes_.start, bytes_.end) != (low, high):
                    return False
                at = start
                while at < end:
                    room = self.log.file_size - at % self.log.file_size
                    data = bytes_.read(at, min(end - at, room))
                    scan = scan_records(data, at, self.log.file_size, check_crc=True)
                    if scan.consumed < len(data):
                        return False
                    at += scan.consumed
                return not differing_blocks(ThrottledReader(bytes_), blocks)
        except OSError:
            return False

    async def _walk_piece(self, offset: int, end: int) -> WalkedPiece | None:
        """Walk the records of up to a piece from `offset` on; None when the file is no longer there."""
        file_end = offset - offset % self.log.file_size + self.log.file_size
        with LogRange.open(self.log, offset, file_end) as bytes_:
            if bytes_.start != offset:
                return None
            in_thread = partial(
                walk,
                ThrottledReader(bytes_),
                min(end, offset + _PIECE),
                file_size=self.log.file_size,
                delays_ms=self.delays_ms,
                is_cached=offset >= self.log.max_offset - self.cached_bytes,
            )
            return await trio.to_thread.run_sync(in_thread)

    # Blocks that differ

    async def _differing_blocks(self, start: int, end: int) -> list[DigestBlock]:
        """The blocks that begin in `start` to `end` and differ from their digests."""
        differing: list[DigestBlock] = []
        for at in range(start, end, _PIECE):
            upto = min(end, at + _PIECE)
            blocks = [block for block in self.digest.digests.blocks(at, upto) if block.start >= at]
            if blocks:
                with LogRange.open(self.log, blocks[0].start, blocks[-1].end) as bytes_:
                    if (bytes_.start, bytes_.end) == (blocks[0].start, blocks[-1].end):
                        differing += await trio.to_thread.run_sync(differing_blocks, ThrottledReader(bytes_), blocks)
        return differing

    async def _explain(self, block: DigestBlock) -> None:
        """Find and report the damage in a differing block."""
        known, cuts = self.known, self.digest.cuts
        if known.damaged.overlaps(block.start, block.end):
            return  # A broken record in it was reported.
        current = next(self.digest.digests.blocks(block.start, block.start + 1), None)
        with LogRange.open(self.log, block.start, block.end) as bytes_:
            if (bytes_.start, bytes_.end) != (block.start, block.end):
                return
            reader = ThrottledReader(bytes_)
            data = bytearray(await trio.to_thread.run_sync(reader.read, block.start, block.end - block.start))
        if cuts != self.digest.cuts or digest(data) == block.digest:
            return
        if current == block and self.digest.doubtful_from <= block.start and block.end <= self.digest.doubtful_end:
            # Its records are sound: the digest is of bytes that were lost in a crash and written again.
            self.digest.replace(DigestBlock(block.start, block.end, digest(data)))
            return
        records = await self._records_in(block.start, block.end)
        flipped = None
        if self._searches < _SEARCHES_MAX:
            self._searches += 1
            unprotected = [at - block.start for at in without_bodies(records, block.start, block.end)]
            flipped = await trio.to_thread.run_sync(
                find_flipped_bit, data, block.digest, unprotected, abandon_on_cancel=True
            )
        if flipped is None:
            known.suspect(
                block.start, block.end, "bytes outside of the bodies differ from the digest, all CRCs are right"
            )
            return
        at, bit = block.start + flipped[0], flipped[1]
        entry = next((entry for entry in records if entry.phy_offset <= at < entry.phy_offset + entry.size), None)
        if entry is None:
            known.suspect(at, at + 1, f"bit {bit} of byte {at} is flipped, behind the last record of a file")
            return
        start, end = entry.phy_offset, entry.phy_offset + entry.size
        known.record(start, end, f"bit {bit} of byte {at} is flipped, outside of the body; all else is right")
        self._distrust(start, end)

    async def _records_in(self, start: int, end: int) -> list[DispatchEntry]:
        """The records that have a byte in a range."""
        found: list[DispatchEntry] = []
        file_size, at = self.log.file_size, start
        while at < end:
            file_start = at - at % file_size
            file_end = min(file_start + file_size, end)
            # No record is as long as this.
            offset = max(file_start, at - _SEARCH_BACK)
            if offset > file_start:
                with LogRange.open(self.log, offset, file_end) as bytes_:
                    reader = ThrottledReader(bytes_)
                    first = await trio.to_thread.run_sync(next_record, reader.read, offset, bytes_.end, file_size)
                    offset = file_end if first is None else first
            while offset < file_end:
                piece = await self._walk_piece(offset, file_end)
                if piece is None:
                    return found
                found += [entry for entry in piece.entries if entry.phy_offset + entry.size > at]
                offset = piece.end
            at = file_end
        return found
