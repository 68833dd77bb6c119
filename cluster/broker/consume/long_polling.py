"""Pulls that found nothing and wait for messages: no task and no timer per pull.

    arrival of a message -> the held pulls of its queue whose filter lets it through are ready
    all arrivals told    -> those that are ready run again, still in the same turn; a connection's answers go out together
    each 5 s (1 s without long polling) -> those run again whose queue has grown, filter or not, or whose time is up

Pulls of one queue that filter alike are asked about once an arrival, however many they are: an arrival costs as much as there
are filters in its queue, and whom it wakes.

Source: PullRequestHoldService.java, NotifyMessageArrivingListener.java (RocketMQ 4.9.8). So a pull may be held up to 5 s
longer than it asked for. Other than a 4.9 slave, ours wakes pulls on arrivals, too, as 5.x does.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from time import monotonic
from typing import Protocol, TypeVar

import structlog
import trio
from attrs import define, field

from twinlog.store.read.get_message import PropertyFilter, as_i32
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)

HELD_BYTES_MAX, HELD_PER_CONNECTION_MAX = 256 << 20, 20_000
_PULL_BYTES = 2_000  # What a held pull costs besides the texts that its client chose.
SCAN_SECONDS, SCAN_SECONDS_SHORT_POLLING = 5.0, 1.0
ASK_SECONDS_MAX = 0.01  # So long an arrival may be looked at by filters; pulls whose filter had no turn are woken.
TURN_SECONDS = 0.01  # Then other tasks get a chance.


class Asker(Hashable, Protocol):
    """The connection that a pull came by."""

    def cork(self) -> None:
        """Gather what is written from now on."""

    def uncork(self) -> None:
        """Send what was gathered."""


@define(eq=False)
class HeldPull:
    """One pull that waits for something at `offset` or behind it."""

    topic: str
    queue_id: int
    offset: int
    wanted: frozenset[int] | None  # Tags codes; None: all.
    deadline: float  # Seconds, monotonic.
    connection: Asker
    run_again: Callable[[], None]  # Must answer, without a further hold.
    accepts: PropertyFilter | None = None  # Of those with these codes only the messages that this one wants.
    text_size: int = 0  # Of what its client chose: such as an expression.

    @property
    def filter(self) -> "_Filter":
        """Pulls with the same one want the same messages."""
        return self.wanted, self.accepts


_Filter = tuple[frozenset[int] | None, PropertyFilter | None]


def _remove(table: dict[K, dict[HeldPull, None]], key: K, pull: HeldPull) -> None:
    held = table.get(key)
    if held is not None:
        held.pop(pull, None)
        if not held:
            del table[key]


def _nothing_known(_topic: str, _queue_id: int, _start: int, _end: int, _accepts: PropertyFilter) -> bool:
    return True


@define(eq=False)
class PullRequestHoldService:
    now: Callable[[], float]
    max_offset: Callable[[str, int], int]  # Of a queue: the offset of its next message.
    scan_seconds: float = SCAN_SECONDS
    # Whether a filter wants one of the messages from one offset to another of a queue.
    any_accepted: Callable[[str, int, int, int, PropertyFilter], bool] = _nothing_known
    _queues: dict[tuple[str, int], dict[_Filter, dict[HeldPull, None]]] = field(factory=dict, init=False)
    _connections: dict[Asker, dict[HeldPull, None]] = field(factory=dict, init=False)
    _ready: deque[HeldPull] = field(factory=deque, init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)
    held_bytes: int = field(default=0, init=False)  # About what all of them cost.

    def __len__(self) -> int:
        return sum(len(held) for filters in self._queues.values() for held in filters.values())

    def hold(self, pull: HeldPull) -> bool:
        """Keep it until something wakes it; the caller sees to connection_closed(). False: too many are kept already."""
        size = _PULL_BYTES + pull.text_size
        of_its_connection = len(self._connections.get(pull.connection, ()))
        if self.held_bytes + size > HELD_BYTES_MAX or of_its_connection >= HELD_PER_CONNECTION_MAX:
            return False
        self.held_bytes += size
        self._queues.setdefault((pull.topic, pull.queue_id), {}).setdefault(pull.filter, {})[pull] = None
        self._connections.setdefault(pull.connection, {})[pull] = None
        return True

    def on_arrival(self, topic: str, queue_id: int, max_offset: int, codes: Sequence[int]) -> None:
        """Messages came: `max_offset` is now the queue's end, `codes` are their tags codes. Cheap when nobody waits.

        The caller sees to run_ready() once it has told of all that came.
        """
        filters = self._queues.get((topic, queue_id))
        if not filters:
            return
        began, start = monotonic(), max_offset - len(codes)
        for (wanted, accepts), held in list(filters.items()):
            if wanted is not None and not any(as_i32(code) in wanted for code in codes):
                continue
            if (
                accepts is not None
                and monotonic() - began < ASK_SECONDS_MAX
                and not self.any_accepted(topic, queue_id, start, max_offset, accepts)
            ):
                continue
            for pull in [pull for pull in held if pull.offset < max_offset]:
                self._make_ready(pull)

    def connection_closed(self, connection: Asker) -> None:
        for pull in list(self._connections.get(connection, ())):
            self._forget(pull)

    def scan(self) -> None:
        """Wake those whose queue has grown, or ends before them since the log was cut, and those whose time is up."""
        now = self.now()
        for (topic, queue_id), filters in list(self._queues.items()):
            end = self.max_offset(topic, queue_id)
            held = [pull for pulls in filters.values() for pull in pulls]
            for pull in held:
                if pull.offset != end or pull.deadline <= now:
                    self._make_ready(pull)
        self.run_ready()

    def run_ready(self) -> None:
        """Answer those that are ready, as many as one turn of the loop has time for; the next turns answer the others."""
        if not self._ready:
            return
        corked: set[Asker] = set()
        turn_ends = monotonic() + TURN_SECONDS
        while self._ready and monotonic() < turn_ends:
            pull = self._ready.popleft()
            if pull.connection not in corked:
                corked.add(pull.connection)
                pull.connection.cork()
            self._run_one(pull)
        for connection in corked:
            connection.uncork()
        if self._ready:
            self._wakeup.set()

    def _make_ready(self, pull: HeldPull) -> None:
        self._forget(pull)
        self._ready.append(pull)

    def _forget(self, pull: HeldPull) -> None:
        queue = pull.topic, pull.queue_id
        filters = self._queues.get(queue)
        if filters is not None:
            _remove(filters, pull.filter, pull)
            if not filters:
                del self._queues[queue]
        _remove(self._connections, pull.connection, pull)
        self.held_bytes -= _PULL_BYTES + pull.text_size

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_others)
            while True:
                await trio.sleep(self.scan_seconds)
                self.scan()

    async def _run_others(self) -> None:
        while True:
            await self._wakeup.wait()
            self.run_ready()

    def _run_one(self, pull: HeldPull) -> None:
        try:
            pull.run_again()
        except Exception:
            log.exception("a held pull could not be answered", topic=pull.topic, queue_id=pull.queue_id)
