"""Repairs damaged bytes of the log with those of another member.

All bytes must be proven. They are whole, sound records that name their own offsets; outside of the damage they equal this log;
and with them each 64 KiB block they touch matches its digest. Our own digest counts, which is of the bytes as written. Where
there is none, or it is of the damaged bytes, the other member's counts: it then says the same twice, by its records and by a
digest made when they were written. So no member infects another.
"""

import os
from collections.abc import Iterator, Mapping

import structlog
import trio
from attrs import define, field, frozen

from twinlog.store.errors import StoreError
from twinlog.store.integrity.damage import DamagedRanges, KnownDamage
from twinlog.store.integrity.digest import DigestBlock, ceil_block, digest, floor_block, parts_of
from twinlog.store.integrity.digest_service import DigestService
from twinlog.store.integrity.throttled_scan import ThrottledReader
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.range import LogRange
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.queue.layout import Unit
from twinlog.store.record.message import MAGIC_BLANK, QUEUELESS, SIZE_AND_MAGIC, TRANSACTION_MASK
from twinlog.store.record.scan import DispatchEntry, scan_records
from twinlog.store.util.sync import sync_data

log_lines = structlog.get_logger()

SPAN_MAX = 8 << 20  # Bytes. A member that lost more copies files, or begins anew.


class RepairError(StoreError):
    """The bytes are not proven to be what was written here; nothing was changed."""


@frozen
class RepairSpan:
    """Bytes `start` to `end` of the log, in one file, from a record's start to the end of one; some of them are damaged."""

    start: int
    end: int


@define(eq=False)
class LogRepair:
    """Repairs one log. Everything runs on the event loop's thread but reads and writes of the log."""

    log: CommitLog
    queues: ConsumeQueueTable
    digest: DigestService
    known: KnownDamage
    delays_ms: tuple[int, ...]
    turn: trio.Lock = field(factory=trio.Lock, init=False)  # Held while bytes are written: the log is not cut then.

    # Finding damage

    async def spans(self) -> list[RepairSpan]:
        """The damaged ranges, each extended to whole records and blocks. Those larger than SPAN_MAX are left out."""
        wanted = DamagedRanges()
        for start, end in (*self.known.damaged, *self.known.in_doubt):
            for low, high in self._in_files(start, end):
                wanted.add(low, high)
        found: list[RepairSpan] = []
        for low, high in wanted:
            for start, end in self._in_files(low, high):
                if end - start <= SPAN_MAX and (span := await self._whole_records(start, end)) is not None:
                    is_near = bool(found) and floor_block(span.start) < ceil_block(found[-1].end)
                    if is_near and self._is_in_one_file(found[-1].start, span.end):
                        span = RepairSpan(found.pop().start, span.end)
                    found.append(span)
        return [span for span in found if span.end - span.start <= SPAN_MAX]

    def _in_files(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of a range that the log still has, file by file."""
        return parts_of(max(start, self.log.min_offset), min(end, self.log.max_offset), self.log.file_size)

    def _is_in_one_file(self, start: int, end: int) -> bool:
        return start // self.log.file_size == (end - 1) // self.log.file_size

    async def _whole_records(self, start: int, end: int) -> RepairSpan | None:
        """From the start of the record that holds the first byte to the end of the one that holds the last."""
        file_start = start - start % self.log.file_size
        with LogRange.open(self.log, file_start, file_start + self.log.file_size) as bytes_:
            if not (bytes_.start <= start and end <= bytes_.end):
                return None
            damaged = [(low, high) for low, high in self.known.damaged if low < bytes_.end and high > file_start]
            begin = max(self.queues.newest_below(start + 1) or 0, bytes_.start)
            return await trio.to_thread.run_sync(_widen, bytes_, damaged, begin, start, end, self.log.file_size)

    # Doing it

    async def repair(self, start: int, data: bytes, peer_digests: Mapping[tuple[int, int], bytes]) -> None:
        """Write `data` at `start` if it is proven. `peer_digests`: of blocks, or parts of blocks, by start and end.

        Raises RepairError, and OSError when the disk refuses the write or reads other bytes back.
        """
        async with self.turn:
            end, cuts = start + len(data), self.digest.cuts
            entries = self._sound_records(start, data)
            low = max(floor_block(start), self.log.min_offset)
            high = min(ceil_block(end), self.log.max_offset)
            with LogRange.open(self.log, low, high) as bytes_:
                before = await trio.to_thread.run_sync(ThrottledReader(bytes_).read, low, high - low)
            self._check_surroundings(start, data, before[start - low : end - low])
            after = before[: start - low] + data + before[end - low :]
            blocks = list(self._proven_blocks(low, before, after, peer_digests))
            file = self.log.files.file_at(start)
            if cuts != self.digest.cuts or file is None or end > self.log.max_offset:
                raise RepairError("the log was cut meanwhile")
            twin = file.twin()
            try:
                await trio.to_thread.run_sync(_write, twin, start - file.start, data)
            finally:
                twin.close()
            if cuts == self.digest.cuts:
                self._done(start, data, entries, blocks)

    def _sound_records(self, start: int, data: bytes) -> list[DispatchEntry]:
        end = start + len(data)
        is_here = self.log.min_offset <= start < end <= self.log.max_offset
        if not is_here or not self._is_in_one_file(start, end):
            raise RepairError(f"bytes {start} to {end} are not in one file of this log")
        scan = scan_records(data, start, self.log.file_size, check_crc=True, delays_ms=self.delays_ms)
        if scan.error is not None or scan.consumed < len(data):
            raise RepairError(f"at {start + scan.consumed} no sound record begins: {scan.error or 'it is not whole'}")
        return scan.entries

    def _check_surroundings(self, start: int, data: bytes, had: bytes) -> None:
        """Require that the data equals this log outside of the damage."""
        ranges = DamagedRanges()
        for low, high in (*self.known.damaged, *self.known.in_doubt):
            ranges.add(low, high)
        if not ranges.overlaps(start, start + len(data)):
            raise RepairError(f"bytes {start} to {start + len(data)} are not known to be damaged")
        at = start
        for low, high in (*ranges, (start + len(data), start + len(data))):
            low, high = max(low, start), min(high, start + len(data))
            if at < low and data[at - start : low - start] != had[at - start : low - start]:
                raise RepairError(f"the other log differs from this one beside the damage, in bytes {at} to {low}")
            at = max(at, high)

    def _proven_blocks(
        self, low: int, before: bytes, after: bytes, peer_digests: Mapping[tuple[int, int], bytes]
    ) -> Iterator[DigestBlock]:
        """The blocks after the repair. Raises RepairError unless each matches a digest."""
        digests, service = self.digest.digests, self.digest
        own = {(block.start, block.end): block.digest for block in digests.blocks(low, low + len(after))}
        for start, end in parts_of(low, low + len(after)):
            new, old = digest(after[start - low : end - low]), digest(before[start - low : end - low])
            known = own.get((start, end))
            is_doubtful = start < service.doubtful_end and end > service.doubtful_from
            if known == old and new != old:
                known = None  # It was made of the damaged bytes.
            if known is not None and not is_doubtful:
                if new != known:
                    raise RepairError(
                        f"bytes {start} to {end} would not be what was written here: their digest is another one"
                    )
            elif peer_digests.get((start, end)) != new:
                raise RepairError(
                    f"nothing proves bytes {start} to {end}: here they have no digest, and the other log's is not theirs"
                )
            yield DigestBlock(start, end, new)

    def _done(self, start: int, data: bytes, entries: list[DispatchEntry], blocks: list[DigestBlock]) -> None:
        end = start + len(data)
        assert blocks[0].start <= start < end <= blocks[-1].end, "all of it is proven"
        covered = {(each.start, each.end) for each in self.digest.digests.blocks(blocks[0].start, blocks[-1].end)}
        for block in blocks:
            if (block.start, block.end) in covered:
                self.digest.replace(block)
            self.known.in_doubt.remove(block.start, block.end)
        self.known.damaged.remove(start, end)
        self.digest.suspects = [each for each in self.digest.suspects if each.end <= start or each.start >= end]
        put = sum(self._put_unit(entry) for entry in entries)
        log_lines.warning(
            "damaged bytes of the log were repaired from another member",
            offset=start,
            bytes=len(data),
            messages=len(entries),
            put_into_queues=put,
        )

    def _put_unit(self, entry: DispatchEntry) -> bool:
        """Replace a blank, which stands for an unreadable message, by the message's unit; clear reports of a right unit."""
        queue = self.queues.find(entry.topic, entry.queue_id)
        unit = queue.unit(entry.queue_offset) if queue is not None else None
        if queue is None or unit is None or entry.sys_flag & TRANSACTION_MASK in QUEUELESS:
            return False
        right = Unit(entry.phy_offset, entry.size, entry.tags_code)
        if unit == right:
            self.known.units_right(entry.topic, entry.queue_id, entry.queue_offset, entry.queue_offset + 1)
        return unit.is_blank and queue.repair_unit(entry.queue_offset, right)


def _write(file: MappedFile, position: int, data: bytes) -> None:
    """Write in place, sync, and read back. Keeps the file's time, by which RocketMQ deletes it. Raises OSError."""
    status = os.fstat(file.fd)
    file.write_at(position, data)
    os.utime(file.fd, ns=(status.st_atime_ns, status.st_mtime_ns))
    sync_data(file.fd)
    os.posix_fadvise(file.fd, position, len(data), os.POSIX_FADV_DONTNEED)
    if file.read(position, len(data)) != data:
        raise OSError(f"{file.path} does not keep what is written to it")


def _widen(
    bytes_: LogRange, damaged: list[tuple[int, int]], begin: int, start: int, end: int, file_size: int
) -> RepairSpan | None:
    """Walk the file's records from one that begins at `begin`; a damaged range counts as one."""
    at, first = next((low for low, high in damaged if low <= start < high), begin), None
    while at < bytes_.end:
        after = next((high for low, high in damaged if low <= at < high), None) or _record_end(bytes_, at, file_size)
        if after is None:
            return None
        if first is None and after > start:
            first = at
        if after >= end:
            return RepairSpan(first if first is not None else at, min(after, bytes_.end))
        at = after
    return None


def _record_end(bytes_: LogRange, at: int, file_size: int) -> int | None:
    head = bytes_.read(at, SIZE_AND_MAGIC.size)
    if len(head) < SIZE_AND_MAGIC.size:
        return None
    size, magic = SIZE_AND_MAGIC.unpack(head)
    room = file_size - at % file_size
    return at + size if (size == room and magic == MAGIC_BLANK) or 0 < size <= room else None
