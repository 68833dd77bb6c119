"""Producers that wait until an offset is safe: on disk, or on a replica. A queue in offset order, no task per waiter."""

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from attrs import define, field


class PutStatus(Enum):
    """The outcome of a put. The first four mean stored. Source: PutMessageStatus."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"


class AckSink(Protocol):
    """The receiver of answers: a connection, or an internal put that waits."""

    def answer(self, frames: list[bytes]) -> None:
        """The messages are as safe as was asked; `frames` are the ready-made answers, in order."""

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        """The messages are stored, but not as safe as was asked; `reason` is for people."""


Answers = Sequence[tuple[int, bytes]]  # End offset and ready-made answer of messages, in the order of their offsets.


class Waiter(NamedTuple):
    """One message that waits for `end_offset` (bytes) until `deadline` (seconds, monotonic)."""

    end_offset: int
    deadline: float
    sink: AckSink
    frame: bytes


@define(eq=False)
class OffsetWaiters:
    """Waiters in the order of their offsets, which is the order of their deadlines, too."""

    _queue: deque[Waiter] = field(factory=deque, init=False)

    def add(self, end_offset: int, deadline: float, sink: AckSink, frame: bytes) -> None:
        """Make `sink` wait for `end_offset`; offsets must not fall from call to call."""
        assert not self._queue or end_offset >= self._queue[-1].end_offset, "release() would pass over a waiter"
        self._queue.append(Waiter(end_offset, deadline, sink, frame))

    def add_each(self, answers: Answers, deadline: float, sink: AckSink) -> None:
        """Do add() for several messages at once."""
        assert not self._queue or answers[0][0] >= self._queue[-1].end_offset, "release() would pass over a waiter"
        # tuple's own constructor takes half the time of the generated one.
        new = tuple.__new__
        self._queue += [new(Waiter, (end_offset, deadline, sink, frame)) for end_offset, frame in answers]

    def release(self, up_to: int) -> list[Waiter]:
        """Remove and return waiters whose message ends at or below `up_to`, oldest first."""
        queue, released = self._queue, []
        while queue and queue[0].end_offset <= up_to:
            released.append(queue.popleft())
        return released

    def expire(self, now: float) -> list[Waiter]:
        """Remove and return waiters whose deadline is reached, oldest first. Call release() before."""
        queue, expired = self._queue, []
        while queue and queue[0].deadline <= now:
            expired.append(queue.popleft())
        return expired

    def drain(self) -> list[Waiter]:
        """Remove and return all waiters."""
        waiters = list(self._queue)
        self._queue.clear()
        return waiters

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def next_deadline(self) -> float | None:
        """The deadline of the oldest waiter; None without waiters."""
        return self._queue[0].deadline if self._queue else None


def by_sink(waiters: Iterable[Waiter]) -> list[tuple[AckSink, list[bytes]]]:
    """Their frames by sink, for one call each; the order within a sink is kept."""
    gathered: dict[int, tuple[AckSink, list[bytes]]] = {}
    for waiter in waiters:
        key = id(waiter.sink)
        if key in gathered:
            gathered[key][1].append(waiter.frame)
        else:
            gathered[key] = (waiter.sink, [waiter.frame])
    return list(gathered.values())
