"""Part of the log that consumers are shown: all of it, or what survives the loss of this member (visibility=confirmed).

A master shows what as many members hold as producers are promised, a slave what its master last said of that. Once shown stays
shown: consumers must not find themselves ahead of a queue. What is not shown yet is not there for pulls: they are held.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import trio
from attrs import define, field

from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.util.wakeup import Wakeup

LOOK_SECONDS, LOOK_SECONDS_MAX = 0.002, 0.05
_ARRIVALS_MAX = 10_000  # Those before are found by the held pulls' own scan.


class _Arrival(NamedTuple):
    log_end: int
    topic: str
    queue_id: int
    max_offset: int
    codes: list[int]


class _Store(Protocol):
    @property
    def max_offset(self) -> int: ...


@define(kw_only=True, eq=False)
class Visibility:
    """`confirmed` gives how far the log is as safe as promised, on a slave as far as it was told; `arrived` is told what
    consumers may be shown now, `all_arrived` is called after that, unless it is the store that tells.
    """

    store: _Store
    confirmed: Callable[[], int]
    arrived: Callable[[str, int, int, Sequence[int]], None]
    all_arrived: Callable[[], None]
    shown: int = field(default=0, init=False)  # The greatest limit so far.
    _arrivals: deque[_Arrival] = field(factory=lambda: deque(maxlen=_ARRIVALS_MAX), init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)

    def limit(self) -> int:
        """Bytes of the log from here on are not shown."""
        self.shown = max(self.shown, min(self.confirmed(), self.store.max_offset))
        return self.shown

    def truncated(self, phy_offset: int) -> None:
        """The log was cut: other bytes come behind this."""
        self.shown = min(self.shown, phy_offset)
        self._arrivals.clear()

    def queue_end(self, queue: ConsumeQueue) -> int:
        """The offset at which a queue ends for consumers."""
        low, high, limit = queue.min_offset, queue.max_offset, self.limit()
        if high <= low or _ends_by(queue, high - 1, limit):
            return high
        while low < high:
            middle = (low + high) // 2
            if _ends_by(queue, middle, limit):
                low = middle + 1
            else:
                high = middle
        return low

    def on_arrival(self, topic: str, queue_id: int, max_offset: int, codes: list[int]) -> None:
        """Messages are in a queue; whoever waits for them may have to wait a little longer."""
        if self.store.max_offset <= self.limit():
            self.arrived(topic, queue_id, max_offset, codes)
        else:
            self._arrivals.append(_Arrival(self.store.max_offset, topic, queue_id, max_offset, codes))
            self._wakeup.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wakeup.wait()
            pause = LOOK_SECONDS
            while self._arrivals:
                pause = LOOK_SECONDS if self._tell() else min(pause * 2, LOOK_SECONDS_MAX)
                await trio.sleep(pause)

    def _tell(self) -> bool:
        limit, before = self.limit(), len(self._arrivals)
        while self._arrivals and self._arrivals[0].log_end <= limit:
            self.arrived(*self._arrivals.popleft()[1:])
        self.all_arrived()
        return len(self._arrivals) < before


def _ends_by(queue: ConsumeQueue, offset: int, limit: int) -> bool:
    unit = queue.unit(offset)
    return unit is None or unit.phy_offset + unit.size <= limit
