"""What was written, by whom it was held, and what was promised: everything that the members' own words are compared with.

The history of a group is a tree of lives. A master's log only grows while the master lives; each time it comes back shorter, or
with other bytes, a new life begins that shares what lies before with the one before it. Whatever a slave holds must be what
one of these lives holds: bytes of two lives that do not share them, one behind the other, are silent divergence.
"""

from collections.abc import Iterable

from attrs import define, field


class Violation(AssertionError):
    """Something that must never be."""


@define(eq=False)
class History:
    """The lives of the master's log, oldest first; each holds its bytes from offset 0 on."""

    lives: list[bytearray] = field(factory=lambda: [bytearray()])

    @property
    def now(self) -> bytearray:
        """The present life."""
        return self.lives[-1]

    def wrote(self, offset: int, data: bytes) -> None:
        """The master appended."""
        if offset != len(self.now):
            raise Violation(f"the master wrote at {offset}, but its log ended at {len(self.now)}")
        self.now.extend(data)

    def came_back(self, start: int, data: bytes, damaged: Iterable[tuple[int, int]] = ()) -> int:
        """The master started and holds `data` from offset `start` on; where its log goes on from what it was, or the end.

        What it calls damaged is taken for what was there before: nobody is served these bytes.
        """
        data = patched(start, data, damaged, self.now)
        shared = start + common(data, self.now, start)
        if shared < start + len(data):
            self.lives.append(self.now[:start] + data)
        elif shared < len(self.now):
            self.lives.append(self.now[:shared])
        return shared

    def fitting(self, start: int, data: bytes) -> set[int]:
        """The lives that hold these bytes at this place."""
        end = start + len(data)
        return {number for number, life in enumerate(self.lives) if len(life) >= end and life[start:end] == data}


def patched(start: int, data: bytes, damaged: Iterable[tuple[int, int]], was: bytes | bytearray) -> bytes:
    """`data`, which lies at `start`, with what was there before in damaged ranges: nobody is served these bytes."""
    found = bytearray(data)
    for low, high in damaged:
        before = was[max(low, start) : min(high, start + len(data))]
        found[max(low, start) - start : max(low, start) - start + len(before)] = before
    return bytes(found)


def common(data: bytes, life: bytes | bytearray, start: int) -> int:
    """How many bytes of `data`, which lie at `start`, a life shares."""
    size = min(len(data), max(0, len(life) - start))
    if data[:size] == life[start : start + size]:
        return size
    low, high = 0, size  # The first `low` are the same.
    while high - low > 1:
        middle = (low + high) // 2
        if data[low:middle] == life[start + low : start + middle]:
            low = middle
        else:
            high = middle
    return low


# Of a record's head: no CRC covers it, and it means nothing for the framing.
_UNCHECKED = (range(12, 28), range(36, 84))


def is_undetectable(sent: bytes, arrived: bytes, offset: int) -> bool:
    """Whether bytes differ only where neither framing nor the CRC of a body tells; `sent` begins with a record."""
    at = 0
    while at + 8 <= len(sent):
        size = int.from_bytes(sent[at : at + 4], "big")
        body_end = at + 88 + int.from_bytes(sent[at + 84 : at + 88], "big")
        topic_end = body_end + 1 + sent[body_end] if body_end < len(sent) else body_end
        for position in range(at, min(at + size, len(sent))):
            if sent[position] != arrived[position]:
                inside = position - at
                in_text = body_end < position < topic_end or position >= topic_end + 2
                if not in_text and not any(inside in unchecked for unchecked in _UNCHECKED):
                    return False
        at += max(size, 8)
    return True


@define(eq=False)
class Holder:
    """What a slave holds, as it is on its disk, whatever it says."""

    name: str
    history: History
    start: int = 0
    end: int = 0
    fits: set[int] = field(factory=lambda: {0})  # The lives that its log is a part of.
    held: int = 0  # The end of what it ever held of the present life.
    durable: int = 0  # The same, on its disk.
    tainted: bool = False  # A bit flipped on the way where no checksum could tell.

    def came_back(self, start: int, data: bytes) -> None:
        """It opened its log, or cut it, and these bytes are in it."""
        self.start, self.end = (start, start + len(data)) if data else (0, 0)
        self.fits = self.history.fitting(start, data) if data else set(range(len(self.history.lives)))
        self.tainted = self.tainted and not self.fits
        self._check(f"its log from {start} to {self.end}")

    def appended(self, offset: int, data: bytes, *, flipped: bool) -> None:
        """It put these bytes at its log's end; `flipped`: bits were flipped on their way."""
        if offset != self.end and self.end:
            raise Violation(f"{self.name} appended at {offset}, but its log ended at {self.end}")
        if not self.end:
            self.start = offset
        self.end = offset + len(data)
        self.fits &= self.history.fitting(offset, data)
        if not self.fits and flipped and not self.tainted:
            self.tainted = is_undetectable(self.history.now[offset : self.end], data, offset)
        self._check(f"bytes {offset} to {self.end}")

    def _check(self, what: str) -> None:
        if not self.fits and not self.tainted:
            raise Violation(f"{self.name}: {what} are nothing that a master ever wrote there")
        if self.is_of_present or self.tainted:
            self.held = max(self.held, self.end)

    def new_life(self, shared: int) -> None:
        """The master came back with another log: what it was before counts up to `shared`."""
        self.held, self.durable = min(self.held, shared), min(self.durable, shared)
        newest = len(self.history.lives) - 1
        if self.end <= shared and newest - 1 in self.fits:
            self.fits.add(newest)

    def flushed(self, durable_end: int) -> None:
        """Its disk holds so much."""
        if self.is_of_present or self.tainted:
            self.durable = max(self.durable, durable_end)

    @property
    def is_of_present(self) -> bool:
        """Whether all that it holds is part of what the master's log is now."""
        return len(self.history.lives) - 1 in self.fits


@define(eq=False)
class Message:
    """One message and what became of it."""

    number: int
    body: bytes
    phy_offset: int
    end: int
    queue: tuple[str, int, int]  # Topic, queue, number in it.
    life: int
    answers: list[str] = field(factory=list)

    @property
    def acked(self) -> bool:
        return self.answers == ["ok"]

    def answer(self, word: str) -> None:
        """Its producer was told; `ok` or why not. Raises Violation when that is the second answer."""
        self.answers.append(word)
        if len(self.answers) > 1:
            raise Violation(f"message {self.number} was answered twice: {self.answers}")


@define(eq=False)
class Ledger:
    """All messages."""

    history: History = field(factory=History)
    messages: list[Message] = field(factory=list)
    acked: int = 0
    refused: int = 0

    def answer(self, message: Message, word: str) -> None:
        """The producer was told; `ok` or why not. Raises Violation."""
        message.answer(word)
        if word == "ok":
            self.acked += 1
        else:
            self.refused += 1

    def new_life(self, shared: int) -> list[Message]:
        """The master came back with less; the acknowledged messages that it lacks now."""
        lost = [each for each in self.messages if each.acked and each.end > shared and each.life >= 0]
        for message in self.messages:
            if message.end > shared:
                message.life = -1  # No master has it any more.
        return lost
