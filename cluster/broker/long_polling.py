"""Pulls that found nothing and wait for messages: no task and no timer per pull.

    arrival of a message -> the held pulls of its queue whose filter lets it through run again, in the next turn of the loop
    each 5 s (1 s without long polling) -> those run again whose queue has grown, filter or not, or whose time is up

Source: PullRequestHoldService.java, NotifyMessageArrivingListener.java (RocketMQ 4.9.8). So a pull may be held up to 5 s
longer than it asked for. Other than a 4.9 slave, ours wakes pulls on arrivals, too, as 5.x does.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import structlog
import trio
from attrs import define, field

from store.get_message import as_i32
from store.wakeup import Wakeup

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)

SCAN_SECONDS, SCAN_SECONDS_SHORT_POLLING = 5.0, 1.0
_RUNS_PER_TURN = 64  # Then other tasks get a chance.


@define(eq=False)
class HeldPull:
    """One pull that waits for something at `offset` or behind it."""

    topic: str
    queue_id: int
    offset: int
    wanted: frozenset[int] | None  # Tags codes; None: all.
    deadline: float  # Seconds, monotonic.
    connection: Hashable
    run_again: Callable[[], None]  # Must answer, without a further hold.

    def lets_through(self, codes: Sequence[int]) -> bool:
        wanted = self.wanted
        return wanted is None or any(as_i32(code) in wanted for code in codes)


def _remove(table: dict[K, dict[HeldPull, None]], key: K, pull: HeldPull) -> None:
    held = table.get(key)
    if held is not None:
        held.pop(pull, None)
        if not held:
            del table[key]


@define(eq=False)
class PullRequestHoldService:
    now: Callable[[], float]
    max_offset: Callable[[str, int], int]  # Of a queue: the offset of its next message.
    scan_seconds: float = SCAN_SECONDS
    _queues: dict[tuple[str, int], dict[HeldPull, None]] = field(factory=dict, init=False)
    _connections: dict[Hashable, dict[HeldPull, None]] = field(factory=dict, init=False)
    _ready: deque[HeldPull] = field(factory=deque, init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)

    def __len__(self) -> int:
        return sum(len(held) for held in self._queues.values())

    def hold(self, pull: HeldPull) -> None:
        """Keep it until something wakes it; the caller sees to connection_closed()."""
        self._queues.setdefault((pull.topic, pull.queue_id), {})[pull] = None
        self._connections.setdefault(pull.connection, {})[pull] = None

    def on_arrival(self, topic: str, queue_id: int, max_offset: int, codes: Sequence[int]) -> None:
        """Messages came: `max_offset` is now the queue's end, `codes` are their tags codes. Cheap when nobody waits."""
        held = self._queues.get((topic, queue_id))
        if not held:
            return
        for pull in [pull for pull in held if pull.offset < max_offset and pull.lets_through(codes)]:
            self._make_ready(pull)

    def connection_closed(self, connection: Hashable) -> None:
        for pull in list(self._connections.get(connection, ())):
            self._forget(pull)

    def scan(self) -> None:
        """Wake those whose queue has grown, or ends before them since the log was cut, and those whose time is up."""
        now = self.now()
        for (topic, queue_id), held in list(self._queues.items()):
            end = self.max_offset(topic, queue_id)
            for pull in [pull for pull in held if pull.offset != end or pull.deadline <= now]:
                self._make_ready(pull)

    def _make_ready(self, pull: HeldPull) -> None:
        self._forget(pull)
        self._ready.append(pull)
        self._wakeup.set()

    def _forget(self, pull: HeldPull) -> None:
        _remove(self._queues, (pull.topic, pull.queue_id), pull)
        _remove(self._connections, pull.connection, pull)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_ready)
            while True:
                await trio.sleep(self.scan_seconds)
                self.scan()

    async def _run_ready(self) -> None:
        while True:
            await self._wakeup.wait()
            while self._ready:
                for _ in range(min(_RUNS_PER_TURN, len(self._ready))):
                    self._run_one(self._ready.popleft())
                await trio.lowlevel.checkpoint()

    def _run_one(self, pull: HeldPull) -> None:
        try:
            pull.run_again()
        except Exception:
            log.exception("a held pull could not be answered", topic=pull.topic, queue_id=pull.queue_id)
