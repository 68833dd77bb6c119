"""What was written in which epoch, by whom it was held, and what was promised, where roles change.

The history of a group is a tree of lines. A line is what one winner's log holds in his epoch: what it held when he took over, and
what he has written since. He may come back with less where nobody but him held what he acknowledged (inSyncReplicas 1): then
another line with the same id begins. Each member's log must at all times be the beginning of some line, and a slave's, of one
with the id of the last entry of its own list: it says in an election that it has been there.
"""

from collections.abc import Iterable

from attrs import define, field

from tests.simulation.ledger import Message, Violation, patched
from twinlog.store.epoch_file import FIRST, EpochId


@define(eq=False)
class Line:
    """`data` from offset 0 on."""

    id: EpochId
    start: int
    data: bytearray

    def __str__(self) -> str:
        return f"line {self.id.epoch} of {self.id.winner or 'the first master'}, from {self.start}"


@define(eq=False)
class Lines:
    """All there ever were, in the order in which they began."""

    lines: list[Line] = field(factory=lambda: [Line(FIRST.id, 0, bytearray())])

    def of(self, epoch_id: EpochId) -> Line | None:
        """The newest line with this id."""
        return next((line for line in reversed(self.lines) if line.id == epoch_id), None)

    def begin(self, epoch_id: EpochId, base: Line, start: int) -> Line:
        """A winner takes over with what `base` holds up to `start`."""
        line = Line(epoch_id, start, base.data[:start])
        self.lines.append(line)
        return line

    def fitting(self, start: int, data: bytes) -> list[Line]:
        """The lines that hold these bytes at this place."""
        end = start + len(data)
        return [line for line in self.lines if len(line.data) >= end and line.data[start:end] == data]


@define(eq=False)
class Log:
    """What a member holds, as it is on its disk, whatever it says."""

    name: str
    all: Lines
    start: int = 0
    end: int = 0
    fits: list[Line] = field(factory=list)  # The lines that it is a part of.
    held: dict[Line, int] = field(factory=dict)  # The end of what it ever held of it.
    durable: dict[Line, int] = field(factory=dict)  # The same, on its disk.

    def __attrs_post_init__(self) -> None:
        self.fits = list(self.all.lines)

    def came_back(self, start: int, data: bytes, damaged: Iterable[tuple[int, int]] = ()) -> None:
        """It opened its log, or cut it, and these bytes are in it. Nobody is served what it calls damaged. Raises Violation."""
        before = self.fits[0].data if self.fits else b""
        self.start, self.end = (start, start + len(data)) if data else (0, 0)
        self.fits = self.all.fitting(start, patched(start, data, damaged, before)) if data else list(self.all.lines)
        self._check(f"its log from {self.start} to {self.end} is")

    def appended(self, offset: int, data: bytes) -> None:
        """It put these bytes at its log's end; the master's line has them already. Raises Violation."""
        if self.end and offset != self.end:
            raise Violation(f"{self.name} appended at {offset}, but its log ended at {self.end}")
        self.start = self.start if self.end else offset
        self.end = offset + len(data)
        fitting = self.all.fitting(offset, data)
        self.fits = [line for line in self.fits if line in fitting]
        self._check(f"bytes {offset} to {self.end} are")

    def _check(self, what: str) -> None:
        if not self.fits:
            raise Violation(f"{self.name}: {what} nothing that a master ever wrote there")
        for line in self.fits:
            self.held[line] = max(self.held.get(line, 0), self.end)

    def line_began(self, line: Line, base: Line) -> None:
        """Another master took over with what `base` holds up to the line's start."""
        for table in (self.held, self.durable):
            table[line] = min(table.get(base, 0), line.start)
        if base in self.fits and self.end <= line.start:
            self.fits.append(line)

    def flushed(self, durable_end: int) -> None:
        """Its disk holds so much."""
        for line in self.fits:
            self.durable[line] = max(self.durable.get(line, 0), min(durable_end, self.end))

    def is_of(self, epoch_id: EpochId) -> bool:
        """Whether it is a beginning of what the winner of an epoch had, or wrote."""
        return any(line.id == epoch_id for line in self.fits)

    def has(self, line: Line, start: int, end: int) -> bool:
        """Whether it holds, or held before its first files went, these bytes of a line."""
        return self.end >= end and any(each.data[start:end] == line.data[start:end] for each in self.fits)


@define(eq=False, kw_only=True)
class RoleMessage(Message):
    """One message, the line in which it was put, and by whom."""

    line: Line
    by: str
    given_up: str = ""  # Why nobody needs to have it any more.

    def is_in(self, line: Line) -> bool:
        """Whether a line holds it."""
        return line.data[self.phy_offset : self.end] == self.line.data[self.phy_offset : self.end]


@define(eq=False)
class RoleLedger:
    """All messages."""

    lines: Lines = field(factory=Lines)
    messages: list[RoleMessage] = field(factory=list)
    acked: int = 0
    refused: int = 0
    waiting: list[RoleMessage] = field(factory=list)  # Acknowledged, and to be had by every master from now on.
    ackers: dict[int, str] = field(factory=dict)  # By epoch: who acknowledged in it.
    forced: list[Line] = field(factory=list)  # Lines that began although acknowledged messages might be missing.

    def answer(self, message: RoleMessage, word: str) -> None:
        """The producer was told; `ok` or why not. Raises Violation."""
        message.answer(word)
        if word != "ok":
            self.refused += 1
            return
        self.acked += 1
        forced = [line for line in self.forced if line.id.epoch > message.line.id.epoch and not message.is_in(line)]
        if forced:
            message.given_up = f"by {forced[-1]}"
        else:
            self.waiting.append(message)

    def began(self, line: Line, *, may_lose: str) -> list[RoleMessage]:
        """A line begins; the acknowledged messages that it lacks. Raises Violation unless there is a reason why it may."""
        # Who is late, and takes an epoch when a newer one has begun, has nothing of that, and nobody who follows.
        older = [each for each in self.waiting if each.line.id == line.id or each.line.id.epoch < line.id.epoch]
        lacking = [each for each in older if not each.is_in(line)]
        if lacking and not may_lose:
            first = lacking[0]
            raise Violation(
                f"{line} began without {len(lacking)} acknowledged messages, the first is {first.number}, bytes "
                f"{first.phy_offset} to {first.end} of {first.line}"
            )
        if may_lose:
            self.forced.append(line)
        for message in lacking:
            message.given_up = f"{may_lose}: {line}"
        self.waiting = [each for each in self.waiting if not each.given_up]
        return lacking
