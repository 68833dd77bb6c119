"""Held pulls: pulls that found nothing and wait for messages, without a task or a timer per pull.

    on_arrival()         the held pulls of the queue whose filter accepts a message become ready
    run_ready()          after all arrivals: ready pulls run again in the same time slice; responses are sent per connection
    scan(), each 5 s     (1 s without long polling) pulls run again whose queue has grown, or whose time is up

Pulls of one queue with the same filter share one evaluation per arrival, so an arrival costs one evaluation for each filter
of its queue, and the pulls that it wakes.

Source: PullRequestHoldService.java, NotifyMessageArrivingListener.java (RocketMQ 4.9.8). As there, a pull may be held up to 5 s
longer than it asked for. Unlike a 4.9 slave, a slave wakes pulls on arrivals, too, as 5.x does.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from time import monotonic
from typing import TypeVar

import structlog
import trio
from attrs import define, field

from twinlog.cluster.remoting.connection import Connection
from twinlog.store.read.get_message import PropertyFilter, as_i32
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)

HELD_BYTES_MAX, HELD_PER_CONNECTION_MAX = 256 << 20, 20_000
_PULL_BYTES = 2_000  # Memory of a held pull without the client's expression.
SCAN_SECONDS, SCAN_SECONDS_SHORT_POLLING = 5.0, 1.0
FILTER_SECONDS_MAX = 0.01  # Of one arrival; pulls whose filter was not evaluated by then are woken.
SLICE_SECONDS = 0.01  # Then other tasks run.


@define(eq=False)
class HeldPull:
    """A pull that waits for a message at `offset` or behind it."""

    topic: str
    queue_id: int
    offset: int
    wanted: frozenset[int] | None  # Tags codes; None: all.
    deadline: float  # Seconds, monotonic.
    connection: Connection
    run_again: Callable[[], None]  # Must respond, without another hold.
    accepts: PropertyFilter | None = None  # Second filter, for messages that `wanted` lets through.
    text_size: int = 0  # Of what the client sent, such as an expression.

    @property
    def filter(self) -> "_Filter":
        """Key of pulls that want the same messages."""
        return self.wanted, self.accepts


_Filter = tuple[frozenset[int] | None, PropertyFilter | None]


def _remove(table: dict[K, dict[HeldPull, None]], key: K, pull: HeldPull) -> None:
    held = table.get(key)
    if held is not None:
        held.pop(pull, None)
        if not held:
            del table[key]


@define(eq=False)
class PullRequestHoldService:
    now: Callable[[], float]
    max_offset: Callable[[str, int], int]  # Offset of a queue's next message.
    long_polling: bool = True
    # True when a filter accepts a message of a queue between two offsets.
    any_accepted: Callable[[str, int, int, int, PropertyFilter], bool] = lambda *_: True
    _queues: dict[tuple[str, int], dict[_Filter, dict[HeldPull, None]]] = field(factory=dict, init=False)
    _connections: dict[Connection, dict[HeldPull, None]] = field(factory=dict, init=False)
    _ready: deque[HeldPull] = field(factory=deque, init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)
    held_bytes: int = field(default=0, init=False)  # Estimated memory of all held pulls.

    @property
    def scan_seconds(self) -> float:
        """Seconds between two scans."""
        return SCAN_SECONDS if self.long_polling else SCAN_SECONDS_SHORT_POLLING

    def __len__(self) -> int:
        return sum(len(held) for filters in self._queues.values() for held in filters.values())

    def hold(self, pull: HeldPull) -> bool:
        """Hold a pull until it becomes ready; the caller has connection_closed() called. False when too many are held."""
        size = _PULL_BYTES + pull.text_size
        of_its_connection = len(self._connections.get(pull.connection, ()))
        if self.held_bytes + size > HELD_BYTES_MAX or of_its_connection >= HELD_PER_CONNECTION_MAX:
            return False
        self.held_bytes += size
        self._queues.setdefault((pull.topic, pull.queue_id), {}).setdefault(pull.filter, {})[pull] = None
        self._connections.setdefault(pull.connection, {})[pull] = None
        return True

    def on_arrival(self, topic: str, queue_id: int, max_offset: int, codes: Sequence[int]) -> None:
        """Make pulls ready for new messages: `max_offset` is the queue's new end, `codes` are their tags codes.

        Cheap when no pull is held. The caller calls run_ready() after the last arrival.
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
                and monotonic() - began < FILTER_SECONDS_MAX
                and not self.any_accepted(topic, queue_id, start, max_offset, accepts)
            ):
                continue
            for pull in [pull for pull in held if pull.offset < max_offset]:
                self._make_ready(pull)

    def connection_closed(self, connection: Connection) -> None:
        for pull in list(self._connections.get(connection, ())):
            self._forget(pull)

    def scan(self) -> None:
        """Run pulls again whose queue has grown or was truncated below their offset, and pulls whose time is up."""
        now = self.now()
        for (topic, queue_id), filters in list(self._queues.items()):
            end = self.max_offset(topic, queue_id)
            held = [pull for pulls in filters.values() for pull in pulls]
            for pull in held:
                if pull.offset != end or pull.deadline <= now:
                    self._make_ready(pull)
        self.run_ready()

    def run_ready(self) -> None:
        """Answer ready pulls for one time slice; the rest is answered in the next slices."""
        if not self._ready:
            return
        corked: set[Connection] = set()
        slice_end = monotonic() + SLICE_SECONDS
        while self._ready and monotonic() < slice_end:
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
        assert self.held_bytes >= 0, self.held_bytes

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_rest)
            while True:
                await trio.sleep(self.scan_seconds)
                self.scan()

    async def _run_rest(self) -> None:
        while True:
            await self._wakeup.wait()
            self.run_ready()

    def _run_one(self, pull: HeldPull) -> None:
        try:
            pull.run_again()
        except Exception:
            log.exception("a held pull could not be answered", topic=pull.topic, queue_id=pull.queue_id)
