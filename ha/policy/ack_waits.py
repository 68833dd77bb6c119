"""How long producers waited for slaves, and what became of them. No I/O, no clock."""

from collections.abc import Sequence
from typing import Literal

from attrs import define, field

from twinlog.store.log.offset_waiters import Waiter
from twinlog.store.util.histogram import BOUNDS, Counts, Histogram

Outcome = Literal["confirmed", "timeout", "not_available"]  # SEND_OK, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE.
OUTCOMES: tuple[Outcome, ...] = ("confirmed", "timeout", "not_available")


@define(eq=False)
class AckWaits:
    """By how many members had to hold the message, the master included, and outcome. Whoever need not wait is not counted."""

    waits: dict[tuple[int, Outcome], Histogram] = field(factory=dict, init=False)

    def ended(self, waiters: Sequence[Waiter], need: int, outcome: Outcome, *, now: float, timeout: float) -> None:
        """These waited, oldest first; each began `timeout` seconds before its deadline."""
        if not waiters:
            return
        histogram, began = self.waits.get((need, outcome)) or self._of(need, outcome), now + timeout
        longest = began - waiters[0].deadline
        if len(waiters) == 1:  # The usual case of a lone producer.
            histogram.note(longest)
        else:
            histogram.note_run(longest, began - waiters[-1].deadline, len(waiters))

    def refused(self, need: int) -> None:
        """One did not wait: there are too few slaves."""
        self._of(need, "not_available").note(0.0)

    def _of(self, need: int, outcome: Outcome) -> Histogram:
        found = self.waits.get((need, outcome))
        if found is None:
            found = self.waits[need, outcome] = Histogram()
        return found

    def look(self, now: float) -> None:
        """Call it every second or so."""
        for histogram in self.waits.values():
            histogram.look(now)

    def recent(self) -> tuple[int, ...]:
        """Those of the last minute who waited, by twinlog.store.util.histogram.BOUNDS."""
        found = [waits.recent() for (_, outcome), waits in self.waits.items() if outcome != "not_available"]
        return tuple(map(sum, zip(*found, strict=True))) if found else (0,) * len(BOUNDS)

    def taken(self) -> dict[tuple[int, Outcome], Counts]:
        """All that was counted, as values."""
        return {key: histogram.taken() for key, histogram in self.waits.items()}
