"""Reader of this member's own log for a comparison: records are found and read in threads, whatever lies on disk.

A log cannot be read backwards: one record is found by its format (store/record/resync.py), the following ones from there.
"""

import trio
from attrs import define, field

from twinlog.ha.compare.preflight import OwnLog
from twinlog.store.integrity.digest import RangeDigests
from twinlog.store.integrity.range_digests import RangeDigester
from twinlog.store.log.range import LogRange
from twinlog.store.message_store import MessageStore
from twinlog.store.record.resync import next_record
from twinlog.store.record.scan import scan_records

READ_BYTES_PER_SECOND = 512 << 20  # For digests that are not known yet.
# Bytes that are searched for the last record before a place; then four times as many, and so on. A thread cannot be stopped.
WINDOW, WINDOW_MAX = 64 * 1024, 64 * 1024 * 1024


@define(eq=False)
class OwnReader:
    """Reads a log that does not grow meanwhile. All methods raise OSError, and StoreError when bytes are gone."""

    store: MessageStore
    end: int | None = None  # Up to there it is read; None: all of it.
    _digester: RangeDigester = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._digester = RangeDigester(self.store.commit_log, self.store.digest, READ_BYTES_PER_SECOND)

    def ends(self) -> OwnLog:
        """Start and end of the log."""
        log = self.store.commit_log
        return OwnLog(log.min_offset, self.store.max_offset if self.end is None else self.end, log.file_size)

    async def digests(self, start: int, end: int, blocks_per_digest: int) -> RangeDigests:
        """Digests like a peer's, always complete."""
        return await self._digester.digests(start, end, blocks_per_digest=blocks_per_digest)

    async def record(self, phy_offset: int) -> bytes | None:
        """The record that begins at an offset; None when no valid one does."""
        found = await self._records(phy_offset, phy_offset + 1)
        with LogRange.open(self.store.commit_log, phy_offset, found[0][1] if found else phy_offset) as bytes_:
            return bytes_.read(phy_offset, found[0][1] - phy_offset) if found else None

    async def read(self, start: int, end: int) -> bytes:
        """These bytes, across files."""
        with LogRange.open(self.store.commit_log, start, end) as bytes_:
            return await trio.to_thread.run_sync(bytes_.read, start, end - start)

    async def first_record(self, start: int, end: int) -> int | None:
        """Offset of the first record that begins in bytes `start` to `end`."""
        window = WINDOW
        while start < end:
            found = await self._records(start, min(end, start + window))
            if found:
                return found[0][0]
            start, window = start + window, min(window * 4, WINDOW_MAX)
        return None

    async def last_record(self, start: int, end: int) -> int | None:
        """Offset of the last record that begins in bytes `start` to `end`."""
        window = WINDOW
        while start < end:
            found = await self._records(max(start, end - window), end)
            if found:
                return found[-1][0]
            end, window = end - window, min(window * 4, WINDOW_MAX)
        return None

    async def bounds(self, start: int, end: int) -> list[int]:
        """Bounds of records between `start` and `end`; before these the last bound up to `start`, or `start`."""
        before = await self.last_record(0, start + 1)
        records = await self._records(start if before is None else before, end)
        places = {place for record in records for place in record}
        first = max((place for place in places if place <= start), default=start)
        return [first, *sorted(place for place in places if start < place < end)]

    async def _records(self, start: int, end: int) -> list[tuple[int, int]]:
        """Start and end of each valid record that begins in bytes `start` to `end`; for short stretches."""
        log = self.store.commit_log
        end = min(end, log.max_offset)
        files_end = min(log.max_offset, end - 1 - (end - 1) % log.file_size + log.file_size)
        with LogRange.open(log, start, files_end) as bytes_:
            return await trio.to_thread.run_sync(_records, bytes_, end, log.file_size)


def _records(bytes_: LogRange, end: int, file_size: int) -> list[tuple[int, int]]:
    """In a thread. Those that begin below `end`; they may end behind it."""
    found: list[tuple[int, int]] = []

    def read(offset: int, size: int) -> bytes:
        return bytes_.read(offset, min(size, file_size - offset % file_size))

    at = next_record(read, bytes_.start, bytes_.end, file_size, heads_end=end)
    while at is not None and at < end:
        size = WINDOW
        while size:  # All that follow without a gap.
            scan = scan_records(bytes_.read(at, size), at, file_size, check_crc=True)
            found += [(entry.phy_offset, entry.phy_offset + entry.size) for entry in scan.entries]
            at += scan.consumed
            size = 0 if at >= end else WINDOW if scan.consumed else scan.needed if scan.needed > size else 0
        at = next_record(read, at, bytes_.end, file_size, heads_end=end)
    return [record for record in found if record[0] < end]
