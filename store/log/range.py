"""Ranges of the log for threads, and the records in them.

A range has descriptors of its own, so that the event loop may close files meanwhile. A record is found from any place behind
its start, because it names its own offset; see store/record/resync.py."""

import os

from attrs import define, frozen

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.record.message import MAGIC_BLANK, SIZE_AND_MAGIC
from twinlog.store.record.resync import BLANK, begins_with_record, entry_at, next_record
from twinlog.store.record.scan import DispatchEntry, scan_records


@define(eq=False)
class LogRange:
    """Bytes `start` to `end` of the log, by pread. Use it in a with statement."""

    start: int
    end: int
    _file_size: int
    _fds: dict[int, int]  # By the start of the file.

    @classmethod
    def open(cls, log: CommitLog, start: int, end: int) -> "LogRange":
        """Open the range, narrowed to what the log has. Only on the event loop's thread. Raises OSError."""
        start, end = max(start, log.min_offset), min(end, log.max_offset)
        found = cls(start, max(start, end), log.file_size, {})
        try:
            for file in log.files.files:
                if file.start < end and file.start + file.size > start:
                    found._fds[file.start] = os.dup(file.fd)
        except OSError:
            found.close()
            raise
        return found

    def read(self, offset: int, size: int) -> bytes:
        """The bytes at `offset`, across files, cut at the end of the range. Raises OSError, also when a file has become short."""
        pieces = []
        end = min(offset + size, self.end)
        while offset < end:
            position = offset % self._file_size
            piece = os.pread(self._fd(offset), min(end - offset, self._file_size - position), position)
            if not piece:
                raise OSError(f"the log ends before offset {offset}")
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)

    def forget_cached(self, offset: int, size: int) -> None:
        """Drop these bytes, which lie in one file, from the page cache, so that the next read is from the disk."""
        os.posix_fadvise(self._fd(offset), offset % self._file_size, size, os.POSIX_FADV_DONTNEED)

    def _fd(self, offset: int) -> int:
        fd = self._fds.get(offset - offset % self._file_size)
        if fd is None:  # It was deleted before the range was opened.
            raise OSError(f"the log has no file with byte {offset}")
        return fd

    def close(self) -> None:
        """Close the descriptors."""
        while self._fds:
            os.close(self._fds.popitem()[1])

    def __enter__(self) -> "LogRange":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Distances before the byte in which a sound record is searched; no record is larger.
_LOOKS = (64 << 10, 1 << 20, 8 << 20)
LOOK_MAX = _LOOKS[-1]
_READ = 1 << 20


@frozen
class RecordAt:
    """Bytes `start` to `end` of the log are a record or, with a `problem`, none that is sound."""

    start: int
    end: int
    problem: str | None


def bounds_around(offset: int, file_size: int) -> tuple[int, int]:
    """The range that record_at() needs for an offset, as far as the log has it."""
    file_start = offset - offset % file_size
    return max(file_start, offset - LOOK_MAX), min(file_start + file_size, offset + LOOK_MAX)


def record_at(log: LogRange, offset: int, file_size: int) -> RecordAt:
    """The record that byte `offset` belongs to. `log` holds bounds_around() of it. Raises OSError."""
    at, is_start = _sound_start(log, offset, file_size)
    if not is_start:
        return RecordAt(at, offset + 1, "no sound record lies before it")
    size = _READ
    while at < log.end:
        data = log.read(at, size)
        scan = scan_records(data, at, file_size, check_crc=True)
        done = at + scan.consumed
        if done > offset:
            return _in(scan.entries, offset, done)
        if scan.error is None and is_blank(data, scan.consumed):
            return RecordAt(done, at + scan.consumed + scan.needed, BLANK)
        if scan.error is None and at + size < log.end:
            at, size = done, max(_READ, scan.needed)
            continue
        found = next_record(log.read, done + 1, log.end, file_size)
        at = log.end if found is None else found
        if at > offset:
            return RecordAt(done, at, scan.error or "the log ends inside of it")
    return RecordAt(offset, offset, "the log has no byte here")


def _in(entries: list[DispatchEntry], offset: int, end: int) -> RecordAt:
    """The record of the byte among these; `end` is their end, with the blank behind them."""
    start = end
    for entry in reversed(entries):
        record_end = entry.phy_offset + entry.size
        if offset >= record_end:
            return RecordAt(record_end, start, BLANK)
        if offset >= entry.phy_offset:
            return RecordAt(entry.phy_offset, record_end, None)
        start = entry.phy_offset
    return RecordAt(offset, end, BLANK)


def is_blank(data: bytes, at: int) -> bool:
    """True when the unused rest of a file begins there."""
    return len(data) - at >= SIZE_AND_MAGIC.size and SIZE_AND_MAGIC.unpack_from(data, at)[1] == MAGIC_BLANK


def _sound_start(log: LogRange, offset: int, file_size: int) -> tuple[int, bool]:
    """The start of a record at or before `offset`, and True if a sound one begins there."""
    file_start = offset - offset % file_size
    for look in _LOOKS:
        start = offset - look
        if start <= file_start:
            return max(file_start, log.start), True
        found = next_record(log.read, max(start, log.start), log.end, file_size, heads_end=offset + 1)
        if found is not None and found <= offset:
            return found, True
    return max(offset - LOOK_MAX, log.start), False


_WINDOW = 1 << 20


def record_before(bytes_: LogRange, offset: int, file_size: int, known: int | None) -> DispatchEntry | str | None:
    """The last record below an offset; None for none; a text when no record, blank or file begins at the offset.

    `known`: the start of a record below it, according to a queue. Raises OSError.
    """
    if offset <= bytes_.start:
        return None
    file_start = max(bytes_.start, (offset - 1) // file_size * file_size)
    earlier = None
    if known is not None and bytes_.start <= known < file_start:
        earlier = entry_at(bytes_.read, known, file_size, check_crc=False)
    last = None
    for start in (max(known or 0, file_start), file_start):  # The queue may be wrong.
        last, end = _walk(bytes_, start, offset, file_size)
        if end == offset:
            return last or earlier
    if offset % file_size == 0 or begins_with_record(bytes_.read, offset, file_size):
        return last or earlier  # Damage lies before it.
    return f"that is inside of the record at {end}"


def _walk(bytes_: LogRange, at: int, end: int, file_size: int) -> tuple[DispatchEntry | None, int]:
    """The last record in a part of a file that begins with a record, and the end of its records and blanks."""
    last, window = None, _WINDOW
    while at < end:
        size = min(window, end - at)
        scan = scan_records(bytes_.read(at, size), at, file_size, check_crc=False)
        last = scan.entries[-1] if scan.entries else last
        at += scan.consumed
        if scan.error is not None:
            found = next_record(bytes_.read, at + 1, end, file_size)
            if found is None:
                break
            at = found
        elif scan.consumed == 0 and size == end - at:
            break
        else:
            window = _WINDOW if scan.consumed else max(window * 2, scan.needed)
    return last, at
