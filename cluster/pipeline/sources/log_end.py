"""Finds the end of a log, which no file names: behind its last whole record, by the rules of store/offline/walk.py."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

from attrs import define, field, frozen

from twinlog.cluster.pipeline.sources.places import Bytes, StoreUri, UnreadableError, open_file
from twinlog.store.offline.file_series import FileReader, FileSeries, StoreFile, guess_file_size
from twinlog.store.offline.queue_view import unit_at, units_end
from twinlog.store.offline.walk import stored_ms, walk_log
from twinlog.store.queue.layout import BLANK_SIZE, UNIT, Unit
from twinlog.store.record.heads import read_heads
from twinlog.store.record.resync import begins_with_record

_LOCAL_QUEUES, _REMOTE_QUEUES = 1024, 64  # Number of queues inspected: each costs a few small reads.
_OPEN_FILES = 16
_PIECE, _WINDOW = 1 << 20, 4 << 20
_ZEROS_MAX = 8 << 20  # Of a remote file: reading all of an empty one would be slow.


@frozen
class LogFile:
    """A file of a sequence that holds the bytes from `start` on, as its name says; it has `size` bytes."""

    uri: StoreUri
    start: int
    size: int


@frozen
class QueueFiles:
    """A consume queue: its files in order, of `file_size` bytes each, the newest of them written at `mtime_ns`."""

    topic: str
    queue_id: int
    files: tuple[LogFile, ...]
    file_size: int
    mtime_ns: int


@define(eq=False)
class PlaceReader(FileReader):
    """FileReader for files on any storage: paths are only names for them."""

    places: dict[Path, LogFile] = field(factory=dict)
    _open: dict[Path, Bytes] = field(factory=dict, init=False)

    def read(self, path: Path, position: int, size: int) -> bytes:
        """Up to `size` bytes of a file; fewer where it ends. Raises UnreadableError."""
        return self._opened(path).read(position, size) if size > 0 else b""

    def read_into(self, path: Path, position: int, buffer: memoryview) -> int:
        """The same into a buffer; returns the number of bytes. Raises UnreadableError."""
        return self._opened(path).read_into(position, buffer)

    def _opened(self, path: Path) -> Bytes:
        file = self._open.pop(path, None)
        if file is None:
            if len(self._open) >= _OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            file = open_file(self.places[path].uri)
        self._open[path] = file  # Moved to the end: the first one is the least recently used.
        return file

    def is_clear_from(self, path: Path, position: int) -> bool:
        """True if all bytes of a file from a position on are zero; of a remote file only the first ones are read.

        Raises UnreadableError.
        """
        place = self.places[path]
        if place.uri.is_local:  # Holes are not read.
            return super().is_clear_from(place.uri.path, position)
        end = min(place.size, position + _ZEROS_MAX)
        while piece := self.read(path, position, min(_PIECE, end - position)):
            if piece.count(0) != len(piece):
                return False
            position += len(piece)
        return True

    def close(self) -> None:
        """Close all files."""
        super().close()
        while self._open:
            self._open.popitem()[1].close()

    def series(self, files: Iterable[LogFile], file_size: int, first: int = 0) -> FileSeries:
        """Some files as a series."""
        return FileSeries(Path(), file_size, tuple(map(self.file, files)), self, first)

    def file(self, file: LogFile) -> StoreFile:
        """A file under the path that this reader knows it by."""
        path = Path(file.uri.text)
        self.places[path] = file
        return StoreFile(path, file.start, file.size)


def guessed_size(sequences: Iterable[Sequence[LogFile]]) -> int:
    """The configured size of the files of some sequences, at least 1."""
    files = ([StoreFile(Path(), file.start, file.size) for file in each] for each in sequences)
    return max(guess_file_size(files), 1)


def find_end(
    log: Sequence[LogFile],
    file_size: int,
    first: int,
    queues: Callable[[], Sequence[QueueFiles]],
    *,
    may_grow: bool,
    after_crash: bool,
) -> tuple[int, int | None]:
    """End of the log, and the furthest end that the newest queues mention; None: they are empty.

    `may_grow`, `after_crash`: as twinlog.store.offline.walk.walk_log(). Unreadable bytes count as damage.
    """
    with closing(PlaceReader()) as reader:
        units = _newest_units(queues)
        queued = max((unit.phy_offset + unit.size for unit in units), default=None)
        series = reader.series(log, file_size, first)
        start = next((unit.phy_offset for unit in units if _is_record(series, unit.phy_offset)), -1)
        at_start = _last_start(series)
        start = _last_met(series, max(start, at_start if at_start is not None else first))
        return end_from(series, start, may_grow=may_grow, after_crash=after_crash), queued


def end_from(series: FileSeries, start: int, *, may_grow: bool, after_crash: bool) -> int:
    """End of the log by a walk from `start`, where a record should begin."""
    end = start
    try:
        for piece in walk_log(series, start=start, may_grow=may_grow, after_crash=after_crash):
            end = piece.end
    except UnreadableError:  # For example a bad sector; the scan reports what lies behind the last whole record.
        return series.end
    return end


def _last_met(series: FileSeries, start: int) -> int:
    """The last record found by heads alone from `start` on; the full check begins there."""
    at = last = start
    try:
        while data := series.read(at, _WINDOW):
            heads = read_heads(memoryview(data), at, series.file_size)
            last = at + int(heads.starts[-1]) if len(heads.starts) else last
            if heads.problem is not None or not heads.end:
                break
            at += heads.end
    except UnreadableError:
        pass
    return last if _is_record(series, last) else start


def _last_start(series: FileSeries) -> int | None:
    """Start of the last file that begins with a record; None: none does."""
    for file in reversed(series.files):
        try:
            if stored_ms(series, file.start) is not None:
                return max(file.start, series.first)
        except UnreadableError:
            return file.start
    return None


def _newest_units(queues: Callable[[], Sequence[QueueFiles]]) -> list[Unit]:
    """Last units of the queues that were written most recently, the last one first."""
    try:
        newest = sorted(queues(), key=lambda queue: queue.mtime_ns, reverse=True)
    except UnreadableError:
        return []
    if all(file.uri.is_local for queue in newest for file in queue.files):
        units = [_last_unit(queue) for queue in newest[:_LOCAL_QUEUES]]
    else:  # Remote reads have latency.
        with ThreadPoolExecutor(_OPEN_FILES) as pool:
            units = list(pool.map(_last_unit, newest[:_REMOTE_QUEUES]))
    found = (unit for unit in units if unit is not None and unit.size != BLANK_SIZE)
    return sorted(found, key=lambda unit: unit.phy_offset, reverse=True)


def _last_unit(queue: QueueFiles) -> Unit | None:
    with closing(PlaceReader()) as reader, suppress(UnreadableError):
        series = reader.series(queue.files, queue.file_size)
        return unit_at(series, units_end(series) - UNIT.size)
    return None


def _is_record(series: FileSeries, offset: int) -> bool:
    try:
        return begins_with_record(series.read, offset, series.file_size)
    except UnreadableError:
        return False
