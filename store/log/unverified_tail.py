"""Bytes of the master behind a slave's log end that are not verified yet.

    ... records ... | verified, sound | the tail: received, not verified | zeros ...
                    ^ the log's end (max_offset)                         ^ end

They lie at their final place: verified bytes become a part of the log by moving its end. Nothing else sees the tail: what is
acknowledged, read, dispatched, flushed and digested ends at max_offset. Files behind the log's last one lie in
ROOT/twinlog/ahead/ until the log's end gets there. So a start after a crash finds unverified bytes in one file at most, where
it takes sound records, as behind any end, and clears the rest. The rest is zeroed when the tail is closed: a later start must
not take it for records.

What arrived may end within a record, and its properties have no check: UNFINISHED stands behind the end at every moment, by which
such a start knows that they are not whole.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.record.resync import UNFINISHED

if TYPE_CHECKING:
    from twinlog.store.log.commit_log import CommitLog


@define(eq=False)
class LogTail:
    """`write()`, `read_into()` and `clear()` are for one thread at a time; the log must not be changed by others meanwhile."""

    log: "CommitLog"
    directory: Path  # For files ahead of the log's last one.
    end: int = field(init=False)  # Behind the last byte that was received.
    is_unwanted: bool = field(default=False, init=False)  # A waiter wants the tail to end.
    ended: trio.Event = field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        assert self.log.files.files
        assert self.log.tail is None
        self.end = self.log.max_offset
        self.log.tail = self

    @property
    def size(self) -> int:
        """Bytes to be verified."""
        return self.end - self.log.max_offset

    def room(self, size_max: int) -> int:
        """The number of bytes that it takes now, of `size_max` in all."""
        room = size_max - self.size
        if not self.log.makes_files_ahead:
            room = min(room, self.log.files.files[-1].start + self.log.file_size - self.end)
        return max(room, 0)

    def write(self, data: memoryview) -> None:
        """Write at the end of the tail; `data` does not cross the end of a file. Raises OSError: part of it may be written."""
        file = self._file_at(self.end) or self._make_file()
        position, behind = self.end - file.start, self.end - file.start + len(data)
        assert behind <= file.size
        if behind < file.size:  # First: a process that dies in between leaves the mark that stood here.
            file.write_at(behind, UNFINISHED[: file.size - behind])
        file.write_at(position, data)
        self.end += len(data)

    def read_into(self, buffer: memoryview) -> None:
        """Read the first bytes of the tail, which must lie in one file. Raises OSError."""
        at = self.log.max_offset
        file = self._file_at(at)
        assert file is not None
        assert at + len(buffer) <= self.end
        done = 0
        while done < len(buffer):
            count = os.preadv(file.fd, [buffer[done:]], at - file.start + done)
            assert count, "files have their full length"
            done += count

    def _file_at(self, offset: int) -> MappedFile | None:
        for file in (self.log.files.files[-1], *self.log.ahead):
            if file.start <= offset < file.start + file.size:
                return file
        return None

    def _make_file(self) -> MappedFile:
        self.directory.mkdir(exist_ok=True)
        path = self.directory / f"{self.end:020d}"
        file = MappedFile.create(path, self.end, self.log.file_size, preallocate=True)
        self.log.ahead.append(file)
        return file

    def clear(self, *, durably: bool) -> None:
        """Leave nothing behind the log's end. Raises OSError. For a thread, and then ended()."""
        while self.log.ahead:
            self.log.ahead.pop().delete()
        last = self.log.files.files[-1]
        # A refused write may have left some of its bytes behind the end.
        end = min(self.end - last.start + len(UNFINISHED), last.size)
        position, end = last.wrote, max(end, last.torn_end)
        if position < end:
            last.clear(position, end, durably=durably)
        last.torn_end = 0

    def done(self) -> None:
        """Remove the tail from the log, and wake those who wait for that."""
        self.log.tail = None
        self.ended.set()


def remove_ahead_files(directory: Path) -> None:
    """Files that a crash left behind: they are received again. Raises OSError."""
    for path in list(directory.iterdir()) if directory.is_dir() else ():
        path.unlink()
