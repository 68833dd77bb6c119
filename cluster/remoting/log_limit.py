"""Lines that anybody can cause come seldom: a hundred thousand probes are no hundred thousand lines."""

import trio
from attrs import define, field


@define
class LogLimit:
    """One line for each key in so many seconds. Of more than `keys_max` all are forgotten: a line too many is no harm."""

    seconds: float = 60.0
    keys_max: int = 1000
    _told: dict[str, tuple[float, int]] = field(factory=dict, init=False)  # When, and how many times not since then.

    def due(self, key: str = "") -> int | None:
        """How many were left out since the last line; None: it is too early for another."""
        now = trio.current_time()
        at, left_out = self._told.get(key, (float("-inf"), 0))
        if now < at + self.seconds:
            self._told[key] = at, left_out + 1
            return None
        if len(self._told) >= self.keys_max:
            self._told.clear()
        self._told[key] = now, 0
        return left_out
