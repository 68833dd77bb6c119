"""Units of consume queues and items of index files as Arrow batches, with a column that says which of them are broken.

Of two units in the wrong order the one before both shows which is broken. A unit may also be blank, lie behind the log's end, or
refer to an ext unit that is gone. Tags codes of ext units are looked up.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import define, frozen
from numpy.typing import NDArray

from twinlog.cluster.pipeline.sources.files import StoreFiles, list_queues
from twinlog.cluster.pipeline.sources.log_end import LogFile, PlaceReader, QueueFiles
from twinlog.store.config import CONSUME_QUEUE_UNIT
from twinlog.store.index.layout import ITEM, IndexLayout
from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.index_view import IndexView, find_layout, read_header
from twinlog.store.offline.queue_view import ext_code
from twinlog.store.queue.consume_queue_ext import EXT_ADDRESS_MAX, EXT_ADDRESS_MIN, is_ext_address
from twinlog.store.queue.layout import BLANK_SIZE

_ITEM = np.dtype([("key_hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
assert _ITEM.itemsize == ITEM.size
_ITEMS_AT_ONCE = 16_384
_ITEM_PROBLEMS = (
    None,
    "its key hash or its offset is negative",
    "lies behind the end of the log",
    "its chain leads forward",
)


@frozen
class IndexPiece:
    """An index file; it can be sent to other processes."""

    file: LogFile
    layout: IndexLayout
    log_end: int | None  # None: the log grows.

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.file.size


def index_pieces(files: Sequence[LogFile], log_end: int | None, slots: int | None) -> list[IndexPiece]:
    """All index files of a store. The number of slots is an option or is derived from the files. Raises UnreadableError."""
    if not files:
        return []
    with closing(PlaceReader()) as reader:
        layout = find_layout([reader.file(file) for file in files], slots, reader)
    return [IndexPiece(file, layout, log_end) for file in files]


def item_batches(piece: IndexPiece) -> Iterator[pa.RecordBatch]:
    """Items of one file in insertion order. Raises UnreadableError."""
    with closing(PlaceReader()) as reader:
        file = reader.file(piece.file)
        view = IndexView(file, reader, piece.layout, read_header(reader, file))
        for first in range(1, view.end, _ITEMS_AT_ONCE):
            yield _batch(piece, view, first)


def _batch(piece: IndexPiece, view: IndexView, first: int) -> pa.RecordBatch:
    items = np.frombuffer(view.items_at(first, _ITEMS_AT_ONCE), _ITEM)
    numbers = np.arange(first, first + len(items), dtype=np.int64)
    hashes, offsets = items["key_hash"].astype(np.int64), items["offset"].astype(np.int64)
    seconds, previous = items["seconds"].astype(np.int64), items["previous"].astype(np.int64)
    problem = np.zeros(len(items), np.int8)
    problem[previous >= numbers] = 3
    if piece.log_end is not None:
        problem[offsets >= piece.log_end] = 2
    problem[(hashes < 0) | (offsets < 0)] = 1
    columns = {
        "file": pa.repeat(pa.scalar(piece.file.uri.name), len(items)),
        "item": pa.array(numbers.astype(np.int32)),
        "slot": pa.array((hashes % max(piece.layout.slots, 1)).astype(np.int32)),
        "key_hash": pa.array(hashes.astype(np.int32)),
        "offset": pa.array(offsets),
        "stored_ms": pa.array(view.header.begin_timestamp + 1000 * seconds),
        "previous": pa.array(previous.astype(np.int32)),
        "problem": pa.array([_ITEM_PROBLEMS[number] for number in problem.tolist()], pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


_UNIT = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert _UNIT.itemsize == CONSUME_QUEUE_UNIT
_UNITS_AT_ONCE = 16_384
_PIECE = 1 << 20
_UNIT_PROBLEMS = (
    None,
    "no unit: its offset or its size is none",
    "lies before the end of the message before it",
    "lies behind the end of the log",
)
_NO_EXT = "its ext unit is gone"
assert EXT_ADDRESS_MIN == -(1 << 63)


@frozen
class QueuePiece:
    """File `number` of a queue, its ext files if any, and the log's end (None: it moves); it can be sent to other processes."""

    queue: QueueFiles
    number: int
    ext: QueueFiles | None
    log_end: int | None

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.queue.files[self.number].size


def queue_pieces(files: StoreFiles, topics: frozenset[str] | None) -> list[QueuePiece]:
    """All files of all queues of these topics; None: of all topics. Raises UnreadableError."""
    queues = [queue for queue in files.queues() if topics is None or queue.topic in topics]
    ext = {(each.topic, each.queue_id): each for each in list_queues(files.uri, "consumequeue_ext")}
    end = None if files.is_running else files.end
    return [
        QueuePiece(queue, number, ext.get((queue.topic, queue.queue_id)), end)
        for queue in queues
        for number in range(len(queue.files))
    ]


def unit_batches(piece: QueuePiece) -> Iterator[pa.RecordBatch]:
    """Units of one file, from its first one to the last one of the queue. Raises UnreadableError."""
    with closing(PlaceReader()) as reader:
        series = reader.series(piece.queue.files, piece.queue.file_size)
        file = piece.queue.files[piece.number]
        rows = _UnitRows(piece, reader.series(piece.ext.files, piece.ext.file_size) if piece.ext else None)
        end = file.start + _data_end(series, piece)
        at = file.start
        while at < end:
            before = max(at - 2 * CONSUME_QUEUE_UNIT, piece.queue.files[0].start)
            stop = min(at + _UNITS_AT_ONCE * CONSUME_QUEUE_UNIT, end)
            after = min(stop + CONSUME_QUEUE_UNIT, end)
            raw = series.read_across(before, after - before)
            units = np.frombuffer(raw[: len(raw) - len(raw) % CONSUME_QUEUE_UNIT], _UNIT)
            skip, count = (at - before) // CONSUME_QUEUE_UNIT, (stop - at) // CONSUME_QUEUE_UNIT
            if len(units) < skip + 1:
                return
            yield rows.batch(units, skip, count, at // CONSUME_QUEUE_UNIT)
            at = stop


def _data_end(series: FileSeries, piece: QueuePiece) -> int:
    """End of the units in the file: its end if a later file has units, else behind the last one that is not zero."""
    size = min(piece.size, piece.queue.file_size)
    size -= size % CONSUME_QUEUE_UNIT
    file = piece.queue.files[piece.number]
    if any(
        series.read(later.start, CONSUME_QUEUE_UNIT).strip(b"\0") for later in piece.queue.files[piece.number + 1 :]
    ):
        return size
    while size > 0:
        step = min(_PIECE - _PIECE % CONSUME_QUEUE_UNIT, size)
        data = series.read(file.start + size - step, step).rstrip(b"\0")
        if data:
            return size - step + -(-len(data) // CONSUME_QUEUE_UNIT) * CONSUME_QUEUE_UNIT
        size -= step
    return 0


@define(eq=False)
class _UnitRows:
    """Builds batches of the units of one file."""

    piece: QueuePiece
    ext: FileSeries | None

    def batch(self, units: NDArray[Any], skip: int, count: int, queue_offset: int) -> pa.RecordBatch:
        """Batch of `count` units from number `skip` on, compared with their neighbours."""
        problems = _problems(units, self.piece.log_end)[skip : skip + count]
        own = units[skip : skip + count]
        problem: list[str | None] = [_UNIT_PROBLEMS[number] for number in problems.tolist()]
        codes = own["tags_code"].astype(np.int64)
        addresses = self._replace_addresses(codes, problem)
        queue, rows = self.piece.queue, len(own)
        columns = {
            "topic": pa.repeat(pa.scalar(queue.topic), rows),
            "queue_id": pa.repeat(pa.scalar(queue.queue_id, pa.int32()), rows),
            "queue_offset": pa.array(np.arange(queue_offset, queue_offset + rows, dtype=np.int64)),
            "offset": pa.array(own["offset"].astype(np.int64)),
            "size": pa.array(own["size"].astype(np.int32)),
            "tags_code": pa.array(codes),
            "file": pa.repeat(pa.scalar(queue.files[self.piece.number].uri.name), rows),
            "ext_address": pa.array(addresses, pa.int64()),
            "problem": pa.array(problem, pa.string()),
        }
        return pa.RecordBatch.from_pydict(columns)

    def _replace_addresses(self, codes: NDArray[np.int64], problem: list[str | None]) -> list[int | None]:
        """Replace addresses of ext units among `codes` by the codes that these keep; returns the addresses."""
        addresses: list[int | None] = [None] * len(codes)
        for number in np.flatnonzero(codes <= EXT_ADDRESS_MAX).tolist():
            address = int(codes[number])
            assert is_ext_address(address)
            addresses[number] = address
            code = ext_code(self.ext, address) if self.ext is not None else None
            if code is None:
                problem[number] = problem[number] or _NO_EXT
            else:
                codes[number] = code
        return addresses


def _problems(units: NDArray[Any], log_end: int | None) -> NDArray[np.int8]:
    """The problem of each unit, as an index into _UNIT_PROBLEMS."""
    offsets, sizes = units["offset"].astype(np.int64), units["size"].astype(np.int64)
    is_blank = (offsets == 0) & (sizes == BLANK_SIZE)
    found = np.zeros(len(units), np.int8)
    found[(offsets < 0) | (sizes <= 0)] = 1
    sound = np.flatnonzero((found == 0) & ~is_blank)
    low, high = offsets[sound], (offsets + sizes)[sound]
    overlaps = np.flatnonzero(high[:-1] > low[1:]) + 1  # Units whose record begins before the previous one ends.
    if len(overlaps):
        # Where a unit fits behind the one before both, the previous one is broken.
        fits = (overlaps >= 2) & (low[overlaps] >= high[np.maximum(overlaps - 2, 0)])
        found[sound[np.where(fits, overlaps - 1, overlaps)]] = 2
    if log_end is not None:
        found[sound[(low >= log_end) | (high > log_end)]] = 3  # Both conditions: the sum may overflow.
    return found


def pieces_by_size(sizes: Sequence[int], size_max: int) -> Iterator[range]:
    """Consecutive numbers for one task: together up to `size_max` bytes, or a single larger one."""
    begin, total = 0, 0
    for number, size in enumerate(sizes):
        if number > begin and total + size > size_max:
            yield range(begin, number)
            begin, total = number, 0
        total += size
    if begin < len(sizes):
        yield range(begin, len(sizes))
