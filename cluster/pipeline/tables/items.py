"""The items of index files as Arrow batches."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from attrs import frozen

from twinlog.cluster.pipeline.sources.log_end import LogFile, PlaceReader
from twinlog.cluster.pipeline.tables.columns import INDEX_ITEMS
from twinlog.store.index.layout import HEADER, ITEM, IndexHeader, IndexLayout
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory, Writer
from twinlog.store.offline.file_series import StoreFile
from twinlog.store.offline.index_view import IndexView, find_layout

_ITEM = np.dtype([("key_hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
assert _ITEM.itemsize == ITEM.size
_ITEMS_AT_ONCE = 16_384
_WORDS = (None, "its key hash or its offset is negative", "lies behind the end of the log", "its chain leads forward")


@frozen
class IndexPiece:
    """An index file; it can be sent to other processes."""

    file: LogFile
    layout: IndexLayout
    log_end: int | None  # None: it moves.


def index_pieces(files: Sequence[LogFile], log_end: int | None, slots: int | None) -> list[IndexPiece]:
    """Every index file of a store. How many slots they have stands nowhere: it is told, or found out. Raises UnreadableError."""
    if not files:
        return []
    reader = PlaceReader()
    try:
        layout = find_layout(_directory(files, reader, slots))
    finally:
        reader.close()
    return [IndexPiece(file, layout, log_end) for file in files]


def _directory(files: Sequence[LogFile], reader: PlaceReader, slots: int | None) -> StoreDirectory:
    """A store with an index only, for what was made for local ones."""
    log = reader.series((), 1)
    index_files = []
    for file in files:
        path = Path(file.uri.text)
        reader.places[path] = file
        index_files.append(StoreFile(path, file.start, file.size))
    return StoreDirectory(
        root=Path(),
        options=DirectoryOptions(index_slots=slots),
        log=log,
        queues={},
        ext_queues={},
        index_files=tuple(index_files),
        batch_topics=frozenset(),
        config_files=(),
        side_files=(),
        checkpoint=None,
        abort=None,
        lock_holder=None,
        writer=Writer.ROCKETMQ_4,
        findings=(),
        reader=reader,
    )


def item_batches(piece: IndexPiece) -> Iterator[pa.RecordBatch]:
    """The items of one file, in the order in which they were put. Raises UnreadableError."""
    reader = PlaceReader()
    try:
        path = Path(piece.file.uri.text)
        reader.places[path] = piece.file
        raw = reader.read(path, 0, HEADER.size).ljust(HEADER.size, b"\0")
        file = StoreFile(path, piece.file.start, piece.file.size)
        view = IndexView(file, reader, piece.layout, IndexHeader.unpack(raw))
        for first in range(1, view.end, _ITEMS_AT_ONCE):
            yield _batch(piece, view, first)
    finally:
        reader.close()


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
    }
    words = pa.array([_WORDS[number] for number in problem.tolist()], pa.string())
    return pa.record_batch(
        [*(columns[name] for name in INDEX_ITEMS.names), words], names=[*INDEX_ITEMS.names, "problem"]
    )
