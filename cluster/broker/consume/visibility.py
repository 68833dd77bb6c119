"""Visibility of messages for consumers: the whole log, or only what survives the loss of this member (visibility=confirmed).

A master shows the log up to its confirmed offset, a slave up to the confirmed offset that its master last reported. The limit
goes back only when the log is truncated: a consumer must not be ahead of its queue. For pulls, messages behind the limit do not
exist yet: the pulls are held. Requests reach consume queues by Queues: only existing ones, and what is visible of them.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio
from attrs import define, field

from twinlog.cluster.broker.tables.topics import TopicConfigManager
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.util.wakeup import Wakeup

POLL_SECONDS, POLL_SECONDS_MAX = 0.002, 0.05
_ARRIVALS_MAX = 10_000  # Older ones are found by the scan of held pulls.


class _Arrival(NamedTuple):
    log_end: int
    topic: str
    queue_id: int
    max_offset: int
    codes: list[int]


@define(kw_only=True, eq=False)
class Visibility:
    """Limit of what consumers may read. `confirmed` returns the confirmed offset; `arrived` is called for messages that become
    visible, and `all_arrived` after the last of them, except within a dispatch of the store, which makes that call itself.
    """

    store: MessageStore
    confirmed: Callable[[], int]
    arrived: Callable[[str, int, int, Sequence[int]], None]
    all_arrived: Callable[[], None]
    shown: int = field(default=0, init=False)  # The greatest limit so far.
    _arrivals: deque[_Arrival] = field(factory=lambda: deque(maxlen=_ARRIVALS_MAX), init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)

    def limit(self) -> int:
        """Return the log offset from which on nothing is visible."""
        self.shown = max(self.shown, min(self.confirmed(), self.store.max_offset))
        return self.shown

    def truncated(self, phy_offset: int) -> None:
        """Lower the limit to the truncated log's end: other bytes will follow there."""
        self.shown = min(self.shown, phy_offset)
        self._arrivals.clear()

    def queue_end(self, queue: ConsumeQueue) -> int:
        """Return the offset at which a queue ends for consumers."""
        low, high, limit = queue.min_offset, queue.max_offset, self.limit()
        if high <= low or _ends_by(queue, high - 1, limit):
            return high
        while low < high:
            middle = (low + high) // 2
            if _ends_by(queue, middle, limit):
                low = middle + 1
            else:
                high = middle
        assert queue.min_offset <= low <= queue.max_offset, (queue.min_offset, low, queue.max_offset)
        return low

    def on_arrival(self, topic: str, queue_id: int, max_offset: int, codes: list[int]) -> None:
        """Report new messages of a queue to held pulls, now or once they are visible."""
        if self.store.max_offset <= self.limit():
            self.arrived(topic, queue_id, max_offset, codes)
        else:
            self._arrivals.append(_Arrival(self.store.max_offset, topic, queue_id, max_offset, codes))
            self._wakeup.set()

    async def run(self) -> None:
        """Report messages that become visible, until cancelled."""
        while True:
            await self._wakeup.wait()
            pause = POLL_SECONDS
            while self._arrivals:
                pause = POLL_SECONDS if self._report_visible() else min(pause * 2, POLL_SECONDS_MAX)
                await trio.sleep(pause)

    def _report_visible(self) -> bool:
        limit, before = self.limit(), len(self._arrivals)
        while self._arrivals and self._arrivals[0].log_end <= limit:
            self.arrived(*self._arrivals.popleft()[1:])
        self.all_arrived()
        return len(self._arrivals) < before


def _ends_by(queue: ConsumeQueue, offset: int, limit: int) -> bool:
    unit = queue.unit(offset)
    return unit is None or unit.phy_offset + unit.size <= limit


@define(eq=False, repr=False)
class Queues:
    """Consume queues of the store. `visibility` None: consumers may read all messages."""

    store: MessageStore
    topics: TopicConfigManager
    visibility: Visibility | None = field(default=None, kw_only=True)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue of the topic; None if it does not exist, so that requests create no queues."""
        config = self.topics.select(topic)
        if config is not None and 0 <= queue_id < max(config.read_queues, config.write_queues):
            return self.store.queue(topic, queue_id)
        known = (queue for name, number, queue in self.store.queues() if (name, number) == (topic, queue_id))
        return next(known, None)

    def end(self, topic: str, queue_id: int) -> int:
        """Return the offset of the queue's next message."""
        return self.store.queue(topic, queue_id).max_offset

    def shown_end(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message that consumers may read."""
        queue = self.store.queue(topic, queue_id)
        return queue.max_offset if self.visibility is None else self.visibility.queue_end(queue)
