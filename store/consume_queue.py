"""One queue of a topic: where its messages lie in the commit log.

A unit is 20 bytes: i64 physical offset | i32 size of the record | i64 tags code. Unit n belongs to message n of the queue.
A queue whose early units are gone starts with blanks (0, 0x7FFFFFFF, 0). Source: ConsumeQueue, RocketMQ 4.9.8.
"""

from struct import Struct
from typing import NamedTuple

from attrs import define, field

from store.config import CONSUME_QUEUE_UNIT
from store.mapped_file import MappedFile
from store.mapped_file_queue import MappedFileQueue
from store.record_scan import DispatchEntry

UNIT = Struct(">qiq")
assert UNIT.size == CONSUME_QUEUE_UNIT
_RECOVER_FILES = 3  # As RocketMQ: older files were complete before anything could crash.


class Unit(NamedTuple):
    """One entry: bytes `phy_offset` to `phy_offset + size` of the log."""

    phy_offset: int
    size: int
    tags_code: int


_BLANK_UNIT = Unit(0, 0x7FFFFFFF, 0)


@define(eq=False)
class ConsumeQueue:
    """The units of one queue. Queue offsets count messages; `max_phy_offset` is the end of the last message here, bytes."""

    topic: str
    queue_id: int
    files: MappedFileQueue
    min_offset: int = field(default=0, init=False)
    max_phy_offset: int = field(default=-1, init=False)
    _staged: list[bytes] = field(factory=list, init=False)
    _next: int | None = field(default=None, init=False)  # The offset behind the staged units.

    @property
    def max_offset(self) -> int:
        """The offset of the next message."""
        return self.files.max_offset // CONSUME_QUEUE_UNIT

    def stage(self, entry: DispatchEntry) -> bool:
        """Take a unit for the next write(). False when the queue has it already.

        Gaps are not repaired: like RocketMQ's, the unit goes to the end; an empty queue starts at the unit's own offset.
        """
        if entry.phy_offset + entry.size <= self.max_phy_offset:
            return False
        if self._next is None:
            self._next = self._prepare(entry.queue_offset)
        if entry.queue_offset < self._next:
            return False
        self._staged.append(UNIT.pack(entry.phy_offset, entry.size, entry.tags_code))
        self._next += 1
        self.max_phy_offset = entry.phy_offset + entry.size
        return True

    def _prepare(self, queue_offset: int) -> int:
        """Where the next unit goes. A queue without messages begins at `queue_offset`, behind blanks."""
        if self.max_phy_offset >= 0 or queue_offset <= self.max_offset:
            return self.max_offset
        at = queue_offset * CONSUME_QUEUE_UNIT
        start = at - at % self.files.file_size
        if not self.files.files or self.files.files[-1].start != start:
            self.files.clear()
            self.files.create(start)
        file = self.files.files[-1]
        file.append(UNIT.pack(*_BLANK_UNIT) * ((at - file.end) // CONSUME_QUEUE_UNIT))
        self.min_offset = queue_offset
        return queue_offset

    def write(self) -> None:
        """Write what was staged: one system call, two where a file ends. Raises OSError; the rest stays staged then."""
        data = b"".join(self._staged)
        done = 0
        try:
            while done < len(data):
                files = self.files.files
                file = (
                    files[-1]
                    if files and files[-1].wrote < files[-1].size
                    else self.files.create(self.files.max_offset)
                )
                part = data[done : done + file.size - file.wrote]
                file.append(part)
                done += len(part)
        finally:
            self._staged = [data[done:]] if done < len(data) else []
        self._next = None

    def read(self, queue_offset: int, count: int) -> bytes:
        """Up to `count` units from `queue_offset` on, raw; at most to the end of the file that holds the first one."""
        at = queue_offset * CONSUME_QUEUE_UNIT
        file = self.files.file_at(at)
        if file is None or queue_offset < self.min_offset:
            return b""
        return file.read(at - file.start, min(count * CONSUME_QUEUE_UNIT, max(0, file.end - at)))

    def unit(self, queue_offset: int) -> Unit | None:
        """The unit of one message, if it is here."""
        raw = self.read(queue_offset, 1)
        return Unit(*UNIT.unpack(raw)) if raw else None

    def next_file_offset(self, queue_offset: int) -> int:
        """The first queue offset of the file after the one that would hold `queue_offset`."""
        per_file = self.files.file_size // CONSUME_QUEUE_UNIT
        return (queue_offset // per_file + 1) * per_file

    def recover(self) -> None:
        """Find the end after a start: the first unit that is none. Source: ConsumeQueue.recover."""
        for file in self.files.files[-_RECOVER_FILES:]:
            file.wrote = file.flushed = _units_end(file)
            if file.wrote < file.size:
                self.files.cut(file.end)
                break
        self._find_max_phy_offset()

    def _find_max_phy_offset(self) -> None:
        last = self.unit(self.max_offset - 1)
        self.max_phy_offset = -1 if last is None or last == _BLANK_UNIT else last.phy_offset + last.size

    def rewind(self, phy_offset: int) -> None:
        """Let the queue end before the messages at or behind `phy_offset`, for them to be written anew, or cut."""
        if self._staged:
            self._staged.clear()
            self._find_max_phy_offset()
        self._next = None
        low, high = max(self.min_offset, self.files.min_offset // CONSUME_QUEUE_UNIT), self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and unit.phy_offset < phy_offset:
                low = middle + 1
            else:
                high = middle
        if low < self.max_offset:
            self.files.rewind(low * CONSUME_QUEUE_UNIT)
            self._find_max_phy_offset()

    def truncate(self, phy_offset: int) -> None:
        """Drop the units of messages at or behind `phy_offset`, durably. Source: ConsumeQueue.truncateDirtyLogicFiles."""
        self.rewind(phy_offset)
        self.files.cut(self.files.max_offset)

    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Find the first message that the log still has. As ConsumeQueue.correctMinOffset of 5.3.3."""
        low, high = max(self.min_offset, self.files.min_offset // CONSUME_QUEUE_UNIT), self.max_offset
        self.min_offset = low
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and (unit.phy_offset < min_phy_offset or unit == _BLANK_UNIT):
                low = middle + 1
            else:
                high = middle
        self.min_offset = low


def _units_end(file: MappedFile) -> int:
    """The position of the first unit in a file that is none."""
    step = 4096 * CONSUME_QUEUE_UNIT
    for position in range(0, file.size, step):
        at = position
        for phy_offset, size, _ in UNIT.iter_unpack(file.read(position, min(step, file.size - position))):
            if phy_offset < 0 or size <= 0:
                return at
            at += CONSUME_QUEUE_UNIT
    return file.size
