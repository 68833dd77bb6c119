"""Reads a split of a log into the digests of its blocks, with how many records begin in each. A window at a time.

Records are counted by their heads: neither their bodies nor their fields are looked at.
"""

from collections.abc import Iterator
from typing import Self

import numpy as np
import pyarrow as pa
from attrs import define, field

from twinlog.cluster.pipeline.sources.boundary import first_record
from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.heads import HEAD_SIZE, read_heads
from twinlog.cluster.pipeline.sources.log_bytes import Hole, LogBytes
from twinlog.cluster.pipeline.sources.splits import Split
from twinlog.cluster.pipeline.tables.columns import BLOCKS
from twinlog.store.integrity.digest import BLOCK_SIZE, DIGEST_SIZE, ceil_block, digest, floor_block
from twinlog.store.record.columns import Ints
from twinlog.store.record.resync import next_record

WINDOW, WINDOW_OF_ARCHIVES = 1 << 20, 4 << 20  # Memory is quickest in small pieces, object storage in larger ones.
BLOCK_SPLIT_SIZE = 256 << 20  # What lies before a split is looked at, too: with larger ones that is little.
_ROWS_MAX = 16_384
_NONE: Ints = np.zeros(0, np.int64)


def block_batches(
    files: StoreFiles, split: Split, *, window: int | None = None, count_records: bool = True
) -> Iterator[pa.RecordBatch]:
    """The blocks of the log that begin in a split, as columns.BLOCKS. The last one of the log may be partial, and the first one.

    A block that cannot be read has no digest; one of which bytes are missing, with their file or the end of it, is left out.
    `count_records` False: digests alone, which takes half the time; the columns of records are as if there were none.
    """
    start, end = _bounds(files, split)
    if start >= end:
        return
    window = window or (WINDOW if files.uri.is_local else WINDOW_OF_ARCHIVES)
    with LogBytes(files.log, files.file_size) as source:
        heads = _HeadCount.at_start(source, files, start) if count_records else None
        buffer = memoryview(bytearray(max(window // BLOCK_SIZE, 1) * BLOCK_SIZE))
        rows = _Rows()
        for low in range(floor_block(start), end, len(buffer)):
            begin, high = max(low, start), min(low + len(buffer), end)
            view = buffer[: high - begin]
            holes = source.fill(begin, view)
            rows.add(begin, view, heads.starts_in(begin, view) if heads is not None else _NONE, holes)
            if rows.count >= _ROWS_MAX:
                yield rows.batch()
                rows = _Rows()
        if rows.count:
            yield rows.batch()


def _bounds(files: StoreFiles, split: Split) -> tuple[int, int]:
    """What the blocks cover whose first byte lies in the split."""
    start, end = max(split.start, files.first), min(split.end, files.end)
    start = start if start == files.first else ceil_block(start)
    return start, min(ceil_block(end), files.end)


@define(eq=False)
class _HeadCount:
    """Where records begin, window after window."""

    source: LogBytes
    first: int
    end: int
    at: int  # Here the next one should begin.
    problem: str | None

    @classmethod
    def at_start(cls, source: LogBytes, files: StoreFiles, start: int) -> Self:
        """From the first record on that begins at `start` or behind."""
        return cls(source, files.first, files.end, *first_record(source, start, files.first, files.end))

    def starts_in(self, offset: int, data: memoryview) -> Ints:
        """The offsets at which records begin in a window."""
        found: list[Ints] = []
        stop = offset + len(data)
        while self.at < stop:
            if self.problem is not None:
                self._resync(stop)
                continue
            if self.at < offset or (self.at + HEAD_SIZE > stop and stop < self.end):  # Its head lies in two windows.
                piece = memoryview(self.source.read_patiently(self.at, HEAD_SIZE))
                heads = read_heads(piece, self.at, self.source.file_size)
            else:
                heads = read_heads(data[self.at - offset :], self.at, self.source.file_size)
            found.append(heads.starts + self.at)
            is_stuck = heads.end == 0 and heads.problem is None
            self.at += heads.end
            self.problem = "less than a head is left" if is_stuck else heads.problem
        return np.concatenate(found) if found else _NONE

    def _resync(self, stop: int) -> None:
        """Go on with the next sound record, at most to `stop`."""
        end = min(self.end, self.source.file_end(self.at))
        found = next_record(
            self.source.read_patiently, self.at, end, self.source.file_size, heads_end=stop, window=WINDOW
        )
        self.at = min(stop, end) if found is None else found
        if found is not None or self.at == end:
            self.problem = None


@define(eq=False)
class _Rows:
    """Rows of the table, until there are enough for a batch."""

    count: int = 0
    _bounds: list[Ints] = field(factory=list)  # Rows: starts, ends, records, first records.
    _digests: list[bytes | None] = field(factory=list)

    def add(self, offset: int, data: memoryview, records: Ints, holes: list[Hole]) -> None:
        """The blocks in a window, in which there are holes."""
        starts, ends = _blocks(offset, offset + len(data))
        digests: list[bytes | None] = [digest(data[low - offset : high - offset]) for low, high in _pairs(starts, ends)]
        at = np.searchsorted(records, starts)
        counts = np.searchsorted(records, ends) - at
        firsts = np.where(counts > 0, np.append(records, -1)[at], -1)
        kept = np.ones(len(starts), np.bool_)
        for hole in holes:
            touched = (starts < hole.end) & (ends > hole.start)
            kept &= ~touched | (hole.refusal is not None)
            for number in np.flatnonzero(touched).tolist():
                digests[number] = None
        self.count += int(kept.sum())
        self._bounds.append(np.stack([starts, ends, counts, firsts])[:, kept])
        self._digests += [found for found, is_kept in zip(digests, kept.tolist(), strict=True) if is_kept]

    def batch(self) -> pa.RecordBatch:
        """All of them."""
        starts, ends, counts, firsts = np.concatenate(self._bounds, axis=1)
        columns = [
            pa.array(starts),
            pa.array(ends),
            pa.array(self._digests, pa.binary(DIGEST_SIZE)),
            pa.array(counts.astype(np.int32)),
            pa.array(firsts),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=BLOCKS)


def _blocks(start: int, end: int) -> tuple[Ints, Ints]:
    """Where the blocks of some bytes begin and end."""
    starts = np.arange(floor_block(start), end, BLOCK_SIZE)
    ends = np.minimum(starts + BLOCK_SIZE, end)
    starts[0] = start
    return starts, ends


def _pairs(starts: Ints, ends: Ints) -> Iterator[tuple[int, int]]:
    return zip(starts.tolist(), ends.tolist(), strict=True)
