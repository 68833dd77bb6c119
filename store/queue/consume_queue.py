"""One queue of a topic: where its messages lie in the commit log.

A unit is 20 bytes: i64 physical offset | i32 size of the record | i64 tags code. Unit n belongs to message n of the queue.
A queue whose early units are gone starts with blanks (0, 0x7FFFFFFF, 0). Source: ConsumeQueue, RocketMQ 4.9.8.
"""

from attrs import define, field

from twinlog.store.config import CONSUME_QUEUE_UNIT
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.mapped_file_queue import MappedFileQueue, fingerprint
from twinlog.store.queue.consume_queue_ext import ConsumeQueueExt
from twinlog.store.queue.layout import BLANK, BLANK_SIZE, UNIT, QueueEnds, Unit, sound_units
from twinlog.store.record.message import RECORD_SIZE_MIN
from twinlog.store.record.scan import DispatchEntry

_CHUNK = 4096  # Units that are read at a time.
LATE_BYTES_MAX = 4096  # Of a queue, that the disk may lack.
_NO_LIMIT = (1 << 63) - 1


@define(eq=False)
class ConsumeQueue:
    """The units of one queue. Queue offsets count messages; `max_phy_offset` is the end of the last message here, bytes."""

    topic: str
    queue_id: int
    files: MappedFileQueue
    min_offset: int = field(default=0, init=False)
    max_phy_offset: int = field(default=-1, init=False)
    ext: ConsumeQueueExt | None = field(default=None, init=False)  # For tags codes that RocketMQ kept apart.
    put_bytes: int = field(default=0, init=False)  # Of the messages that came one by one since the start.
    _staged: list[bytes] = field(factory=list, init=False)
    _next: int | None = field(default=None, init=False)  # The offset behind the staged units.
    _files: list[MappedFile] = field(
        init=False
    )  # That of `files`: with thousands of queues each object on the way is a cold one.

    def __attrs_post_init__(self) -> None:
        self._files = self.files.files

    @property
    def max_offset(self) -> int:
        """The offset of the next message."""
        files = self._files
        return (files[-1].start + files[-1].wrote) // CONSUME_QUEUE_UNIT if files else 0

    def put_late(self, entry: DispatchEntry) -> bool:
        """Append the unit of the queue's next message, without a system call: write_late() writes it, and reads find it before.

        False, and nothing is done, for every other unit, for the first and last ones of a file, and where much is late: these
        are for stage() and write().
        """
        files, end = self._files, entry.phy_offset + entry.size
        if not files or self._next is not None or not 0 <= self.max_phy_offset < end:
            return False
        file = files[-1]
        if file.start + file.wrote != entry.queue_offset * CONSUME_QUEUE_UNIT:
            return False
        if not file.append_late(UNIT.pack(entry.phy_offset, entry.size, entry.tags_code), LATE_BYTES_MAX):
            return False
        self.put_bytes += entry.size
        self.max_phy_offset = end
        return True

    def stage(self, entry: DispatchEntry) -> bool:
        """Take a unit for the next write(). False when the queue has it already.

        An empty queue starts at the unit's own offset. Blanks take the place of lost messages.
        """
        phy_offset, size = entry.phy_offset, entry.size
        if (end := phy_offset + size) <= self.max_phy_offset:
            return False
        if self._next is None:
            self._next = self._prepare(entry.queue_offset)
        if entry.queue_offset != self._next and not self._renumber(entry):
            return False
        self._staged.append(UNIT.pack(phy_offset, size, entry.tags_code))
        self._next += 1
        self.put_bytes += size
        self.max_phy_offset = end
        return True

    def stage_run(self, units: bytes, queue_offset: int, first_end: int, last_end: int) -> bool:
        """Take many units at once, of messages with consecutive queue offsets from `queue_offset` on.

        The first message ends at `first_end` of the log, the last at `last_end`. False, and nothing is taken, unless all of
        them go to the end of the queue: stage() handles other cases.
        """
        assert len(units) % CONSUME_QUEUE_UNIT == 0
        assert first_end <= last_end
        if first_end <= self.max_phy_offset:
            return False
        if self._next is None:
            self._next = self._prepare(queue_offset)
        if queue_offset != self._next:
            return False
        self._staged.append(units)
        self._next += len(units) // CONSUME_QUEUE_UNIT
        self.max_phy_offset = last_end
        return True

    def _renumber(self, entry: DispatchEntry) -> bool:
        """Move the end of the queue for a unit with an unexpected number; False when it belongs nowhere.

        RocketMQ 5.3.3 leaves a record out at its start, and gives its number to the next one, which consumers then know. Where
        the log has no room for all the missing messages, the number is wrong: like RocketMQ's, the unit goes to the end.
        """
        assert self._next is not None
        missing = entry.queue_offset - self._next
        if missing == -1 and self.max_phy_offset >= 0 and self._next - 1 >= self.min_offset:
            if self._staged:
                self._staged[-1] = self._staged[-1][:-CONSUME_QUEUE_UNIT]  # There may be more in it.
            else:
                self.files.rewind((self._next - 1) * CONSUME_QUEUE_UNIT)
            self._next -= 1
            return True
        if missing < 0:
            return False
        if missing * RECORD_SIZE_MIN <= entry.phy_offset - max(0, self.max_phy_offset):
            self._staged += [BLANK] * missing
            self._next += missing
        return True

    def _prepare(self, queue_offset: int) -> int:
        """The queue offset of the next unit. A queue without messages starts at `queue_offset`, behind blanks."""
        if self.max_phy_offset >= 0 or queue_offset <= self.max_offset:
            return self.max_offset
        at = queue_offset * CONSUME_QUEUE_UNIT
        start = at - at % self.files.file_size
        if not self.files.files or self.files.files[-1].start != start:
            self.files.clear()
            self.files.create(start)
        file = self.files.files[-1]
        file.append(BLANK * ((at - file.end) // CONSUME_QUEUE_UNIT))
        self.min_offset = queue_offset
        return queue_offset

    def write(self, *, late_max: int = 0) -> None:
        """Write staged units: one system call, two where a file ends. Raises OSError; the rest stays staged then.

        `late_max`: no system call for so many bytes; write_late() writes them, and reads find them before.
        """
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
                if not (late_max and file.append_late(part, late_max)):
                    file.append(part)
                done += len(part)
        finally:
            self._staged = [data[at : at + CONSUME_QUEUE_UNIT] for at in range(done, len(data), CONSUME_QUEUE_UNIT)]
        assert self.files.max_offset % CONSUME_QUEUE_UNIT == 0
        self._next = None

    def write_late(self) -> None:
        """Write late units. Raises OSError."""
        for file in self.files.files[-1:]:  # What fills a file is never late.
            file.write_late()

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

    def repair_unit(self, queue_offset: int, unit: Unit) -> bool:
        """Overwrite an existing unit; the next flush syncs it. False when the queue does not have it. Raises OSError."""
        at = queue_offset * CONSUME_QUEUE_UNIT
        file = self.files.file_at(at)
        if file is None or queue_offset < self.min_offset or at >= file.end:
            return False
        file.write_late()
        file.write_at(at - file.start, UNIT.pack(*unit))
        file.flushed = min(file.flushed, at - file.start)
        return True

    def next_file_offset(self, queue_offset: int) -> int:
        """The first queue offset of the file after the one that would hold `queue_offset`."""
        per_file = self.files.file_size // CONSUME_QUEUE_UNIT
        return (queue_offset // per_file + 1) * per_file

    def state(self) -> QueueEnds:
        """Its present ends, without the fingerprint."""
        return QueueEnds(self.topic, self.queue_id, self.min_offset, self.max_offset, self.max_phy_offset)

    @property
    def is_written(self) -> bool:
        """True when no unit is staged."""
        return not self._staged

    def recover(self) -> str | None:
        """Find the end after a start: the first invalid unit. Returns a fault when data follows it.

        Reads all files, RocketMQ the last three. Source: ConsumeQueue.recover.
        """
        behind, fault = 0, None
        for number, file in enumerate(self.files.files):
            count, behind = self._sound_units(file, behind, _NO_LIMIT, file.size)
            end = count * CONSUME_QUEUE_UNIT
            if end < file.size:
                fault = self._fault(number, end)
                self.files.rewind(file.start + end)
                self.files.cut(self.files.max_offset)
                break
        self._find_max_phy_offset()
        return fault

    def _fault(self, number: int, end: int) -> str | None:
        """The fault of data behind position `end` of a file; None when all of it is zero."""
        file, *later = self.files.files[number:]
        if file.is_clear_from(end) and all(other.is_clear_from(0) for other in later):
            return None
        return f"unit {(file.start + end) // CONSUME_QUEUE_UNIT} is none, though more follows"

    def _sound_units(self, file: MappedFile, behind: int, log_end: int, size: int) -> tuple[int, int]:
        """The number of valid, consecutive units in the first `size` bytes, and the end of the last message."""
        total = 0
        for position in range(0, size, _CHUNK * CONSUME_QUEUE_UNIT):
            units = file.read(position, min(_CHUNK * CONSUME_QUEUE_UNIT, size - position))
            count, behind = sound_units(units, behind, log_end)
            total += count
            if count * CONSUME_QUEUE_UNIT < len(units):
                break
        return total, behind

    def settle(self, state: QueueEnds, *, may_begin_later: bool) -> str | None:
        """Take the ends noted when the queue was last flushed. Returns a fault when they do not fit the files.

        Later units are dropped. Only the last unit is read, unless a file has changed. `may_begin_later`: the log has lost its
        first files since, and so may the queue.
        """
        files = self.files.files
        size = state.max_offset * CONSUME_QUEUE_UNIT
        held = files[-1].start + files[-1].size if files else 0
        if held < size:
            return f"{held // CONSUME_QUEUE_UNIT} units are there of {state.max_offset}"
        if files and files[0].start > state.min_offset * CONSUME_QUEUE_UNIT and not may_begin_later:
            return f"it begins with unit {files[0].start // CONSUME_QUEUE_UNIT}, not {state.min_offset}"
        unchanged = state.fingerprint == self.fingerprint()
        self.files.rewind(size)
        if not files or files[0].start >= size:  # The first file stays, even when it is empty, and with it the numbers.
            return None
        self._find_max_phy_offset()
        if self.max_phy_offset != state.max_phy_offset:
            return f"its last unit leads to {self.max_phy_offset}, not to {state.max_phy_offset}"
        if not unchanged and (fault := self._find_fault(state.max_phy_offset)) is not None:
            return fault
        self.min_offset = max(state.min_offset, files[0].start // CONSUME_QUEUE_UNIT)
        return None

    def sound_from(self, queue_offset: int) -> bytes:
        """The valid units from one on, to keep a copy before they are rewritten."""
        if queue_offset < self._first:
            return b""
        pieces, behind = [], 0
        while units := self.read(queue_offset, _CHUNK):
            count, behind = sound_units(units, behind, _NO_LIMIT)
            pieces.append(units[: count * CONSUME_QUEUE_UNIT])
            if count * CONSUME_QUEUE_UNIT < len(units):
                break
            queue_offset += count
        return b"".join(pieces)

    def _find_fault(self, log_end: int) -> str | None:
        behind = 0
        for file in self.files.files:
            count, behind = self._sound_units(file, behind, log_end, file.wrote)
            if count * CONSUME_QUEUE_UNIT < file.wrote:
                return f"unit {file.start // CONSUME_QUEUE_UNIT + count} is none"
        return None

    def fingerprint(self) -> int:
        """Stands for the files as they are now."""
        return fingerprint(str(file.path) for file in self.files.files)

    def pad(self, max_offset: int) -> None:
        """Extend the queue to `max_offset` with blanks for lost messages, so that no number is used twice. Raises OSError."""
        if self.max_offset == 0 and self.max_phy_offset < 0 and max_offset > 0:
            self._prepare(max_offset)
            self._next = None
        while (missing := max_offset - self.max_offset) > 0:
            self._staged.append(BLANK * min(missing, _CHUNK))
            self.write()

    def _find_max_phy_offset(self) -> None:
        last = self.last_message(self.max_offset)
        self.max_phy_offset = -1 if last is None else last.phy_offset + last.size

    @property
    def _first(self) -> int:
        return max(self.min_offset, self.files.min_offset // CONSUME_QUEUE_UNIT)

    def last_message(self, before: int) -> Unit | None:
        """The last unit below number `before` that is no blank."""
        unit = self.unit(before - 1)
        if unit is None or not unit.is_blank:
            return unit
        while before > self._first:
            start = max(self._first, before - _CHUNK)
            units = self.units(start, before)
            count = len(units) // CONSUME_QUEUE_UNIT
            if units != BLANK * count:
                for number in reversed(range(count)):
                    if units[number * CONSUME_QUEUE_UNIT :][:CONSUME_QUEUE_UNIT] != BLANK:
                        return self.unit(start + number)
            before = start
        return None

    def _next_message(self, at: int) -> int:
        """The first unit from `at` on that is no blank; the end of the queue when there is none."""
        unit = self.unit(at)
        if unit is not None and not unit.is_blank:
            return at
        while units := self.read(at, _CHUNK):
            count = len(units) // CONSUME_QUEUE_UNIT
            if units != BLANK * count:
                for number, (phy_offset, size, _) in enumerate(UNIT.iter_unpack(units)):
                    if size != BLANK_SIZE or phy_offset:
                        return at + number
            at += count
        return at

    def units(self, start: int, end: int) -> bytes:
        """Units `start` to `end`, across files; fewer where there are none."""
        pieces = []
        while start < end and (piece := self.read(start, end - start)):
            pieces.append(piece)
            start += len(piece) // CONSUME_QUEUE_UNIT
        return b"".join(pieces)

    def first_behind(self, phy_offset: int) -> int:
        """The first message at or behind `phy_offset` of the log; blanks before it count as older."""
        low, high = self._first, self.max_offset
        found = high
        while low < high:
            middle = (low + high) // 2
            at = self._next_message(middle)
            unit = self.unit(at) if at < high else None
            if unit is None:  # Only blanks from there on.
                high = middle
            elif unit.phy_offset < phy_offset:
                low = at + 1
            else:
                high, found = middle, at
        return found

    def rewind(self, phy_offset: int) -> None:
        """End the queue before the messages at or behind `phy_offset`, which are put again or cut."""
        if self._staged:
            self._staged.clear()
            self._find_max_phy_offset()
        self._next = None
        if 0 <= self.max_phy_offset <= phy_offset:
            return
        end = self.first_behind(phy_offset)
        if end < self.max_offset:
            self.files.rewind(end * CONSUME_QUEUE_UNIT)
            self._find_max_phy_offset()
        while self.max_phy_offset > phy_offset:  # The unit of a record that was overwritten begins before the cut.
            self.files.rewind((self.max_offset - 1) * CONSUME_QUEUE_UNIT)
            self._find_max_phy_offset()

    def truncate(self, phy_offset: int) -> None:
        """Drop the units of messages at or behind `phy_offset`, durably. Source: ConsumeQueue.truncateDirtyLogicFiles."""
        self.rewind(phy_offset)
        self.files.cut(self.files.max_offset)

    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Find the first message that the log still has. As ConsumeQueue.correctMinOffset of 5.3.3."""
        self.min_offset = self._first
        unit = self.unit(self.min_offset)
        if unit is None or unit.is_blank or unit.phy_offset < min_phy_offset:
            self.min_offset = self.first_behind(min_phy_offset)

    def clean_ext(self) -> None:
        """Delete the files of the extension that no unit leads to any more. Raises OSError."""
        unit = self.unit(self.min_offset)
        if self.ext is not None and unit is not None:
            self.ext.delete_below(unit.tags_code)

    def discard(self) -> None:
        """Delete everything, to rebuild the queue."""
        self.files.discard()
        self.clear()

    def clear(self) -> None:
        """Delete all open files: the queue is as if it had never been written to. Raises OSError."""
        self.files.clear()
        self._staged.clear()
        self._next = None
        self.min_offset, self.max_phy_offset = 0, -1
