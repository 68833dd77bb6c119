"""Walks the records of a log past damage and across files, a window at a time. Its only I/O is that of a ByteSource.

Used for every kind of log: mapped files of a store (store/log/walk.py), a directory that is read offline (store/offline/walk.py),
files on disks and in object storage (cluster/pipeline/sources/walk.py). These differ in how bytes are read, in whether a scan
gives entries or columns, and in what they conclude from damage.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from attrs import frozen

from twinlog.store.record.message import MAGIC_BLANK, SIZE_AND_MAGIC
from twinlog.store.record.scan import Scan

if TYPE_CHECKING:
    from twinlog.store.record.column_scan import ColumnScan  # It needs numpy, which is slow to import.

FILE_ENDS = "the file ends here"
WINDOW = 4 << 20
_NO_LIMIT = 1 << 62
_LOOKS_MAX = 20  # At an end that goes on moving.

Bytes = bytes | memoryview
S = TypeVar("S", bound="Scan | ColumnScan")


class ByteSource(Protocol):
    """Bytes of a log by their offset."""

    @property
    def file_size(self) -> int:
        """Bytes that a whole file has."""

    def read(self, offset: int, size: int) -> Bytes:
        """Up to `size` bytes, not beyond the end of their file; none where there is no file. Raises OSError."""

    def next_record(self, start: int, end: int, heads_end: int) -> int | None:
        """Offset of the first sound record in bytes `start` to `end`, which lie in one file; it begins before `heads_end`."""


class Sound(NamedTuple, Generic[S]):
    """Bytes `start` to `end` of the log are sound records or, with `scan` None, the blank at the end of a file.

    `data`: bytes from `start` on, at least up to the end of the last record; none for a blank. `reason`: why the bytes from `end`
    on seem to be no record; None where more may follow.
    """

    start: int
    end: int
    scan: S | None
    data: Bytes
    reason: str | None = None


@frozen
class Gap:
    """Bytes `start` to `end` of the log hold no sound record, because of `reason`. `is_end`: a broker is writing there now.

    `is_short`: fewer bytes could be read there than a whole file has.
    """

    start: int
    end: int
    reason: str
    is_end: bool = False
    is_short: bool = False


def walk(
    source: ByteSource,
    start: int,
    end: int,
    scan: Callable[[Bytes, int], S],
    *,
    stop: int | None = None,
    ahead: int = 0,
    window: int = WINDOW,
    record_max: int = _NO_LIMIT,
    has_changed: Callable[[int, Bytes], bool] | None = None,
) -> Iterator[Sound[S] | Gap]:
    """Everything between two offsets in order, each byte in one piece; a record should begin at `start`. Raises OSError.

    `scan` gets bytes and their offset. `stop`: only records that begin before it are wanted; `ahead`: bytes read behind it for
    the last of these. A record of more than `record_max` bytes counts as damage. `has_changed`: for a log that a broker is
    writing to: whether the bytes at an offset have become others in the meantime, in which case they are read again.
    """
    stop = end if stop is None else min(stop, end)
    while start < stop:
        file_end = start - start % source.file_size + source.file_size
        for piece in _walk_file(
            source, start, min(end, file_end), file_end, scan, stop, ahead, window, record_max, has_changed
        ):
            assert piece.start == start < piece.end, "each byte is in one piece"
            yield piece
            start = piece.end


def _walk_file(
    source: ByteSource,
    at: int,
    end: int,
    file_end: int,
    scan: Callable[[Bytes, int], S],
    stop: int,
    ahead: int,
    window: int,
    record_max: int,
    has_changed: Callable[[int, Bytes], bool] | None,
) -> Iterator[Sound[S] | Gap]:
    needed = looks = 0
    stop = min(stop, end)
    while at < stop:
        wanted = min(max(window, needed), end - at, max(stop - at + ahead, needed))
        data = source.read(at, wanted)
        found = scan(data, at) if len(data) else None
        consumed, error, record_size = (found.consumed, found.error, found.needed) if found else (0, None, 0)
        done = at + consumed
        ends_here = error is None and is_blank(data, consumed, file_end - done)
        goes_on = error is None and len(data) == wanted < end - at and record_size <= record_max
        is_over = done >= stop or ends_here or goes_on
        reason = None if is_over else error or _incomplete(len(data) < wanted, record_size, record_max)
        if consumed:
            yield Sound(at, done, found, data, reason)
        if ends_here:
            yield Sound(done, end, None, b"")
            return
        if reason is None:
            needed = 0 if consumed else max(2 * wanted, record_size)  # A record that is larger than the window.
            at = done
            continue
        following = source.next_record(done + 1, end, stop)
        if has_changed is not None and has_changed(done, data[consumed:]):
            at, looks = done, looks + 1
            if looks < _LOOKS_MAX:
                continue
            yield Gap(done, end, "it is being written", is_end=True)
            return
        at, needed = stop if following is None else min(following, stop), 0
        yield Gap(done, at, reason, is_short=error is None and len(data) < wanted)


def _incomplete(is_short: bool, record_size: int, record_max: int) -> str:
    if record_size > record_max:
        return f"a record of {record_size} bytes, more than {record_max}"
    return FILE_ENDS if is_short else "an unfinished record"


def is_blank(data: Bytes, at: int, room: int) -> bool:
    """True when the head of a blank is next, in a file with so much room left."""
    return len(data) - at >= SIZE_AND_MAGIC.size and SIZE_AND_MAGIC.unpack_from(data, at) == (room, MAGIC_BLANK)
