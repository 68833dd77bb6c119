"""How long a master may believe that it is one, without having heard from the others again.

Nobody's safety rests on it: what is acknowledged is safe by the promises. It makes a master that is cut off say so at once. The
clock is monotonic, seconds. A watchdog's thread may give it up while the event loop stands still: each change is one assignment.
"""

import math

from attrs import define, field

ALWAYS = math.inf  # Asked then, it is held for ever: a group that has nobody to ask.
_NEVER = -math.inf


@define(eq=False)
class Lease:
    """Held for `seconds` from when enough of the group were asked that said yes."""

    seconds: float
    why: str = field(default="nobody was asked yet", init=False)  # It is not held, if so.
    _until: float = field(default=_NEVER, init=False)

    def grant(self, asked_at: float) -> None:
        """Enough members said yes to what they were asked then, not earlier."""
        self._until = max(self._until, asked_at + self.seconds)
        self.why = "too few of the group's members answer"

    def give_up(self, why: str) -> None:
        """From now on it is not held, until it is granted again."""
        self.why = why
        self._until = _NEVER

    def held(self, now: float) -> bool:
        """Whether it is."""
        return now < self._until

    def remaining(self, now: float) -> float:
        """Seconds, 0 when it is not held."""
        return max(self._until - now, 0.0)
