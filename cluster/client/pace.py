"""How often a client asks again about a route that does not serve. Pure."""

import random
from collections.abc import Callable
from math import inf

from attrs import define, field

PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 1.0
CALM_SECONDS = 10.0  # Without a question: what comes then is other trouble, and begins anew.


def _jitter() -> float:
    return random.uniform(0.5, 1.0)  # Clients that lost the same master at the same moment do not ask in step.


@define
class Pace:
    """At once, then after about 0.1, 0.2, 0.4, 0.8 s, then every second; after 10 quiet seconds at once again."""

    due: float = field(default=-inf, init=False)  # The next question's earliest time.
    jitter: Callable[[], float] = field(default=_jitter, kw_only=True, repr=False)
    _pause: float = field(default=0.0, init=False)

    def asked(self, now: float) -> None:
        """Somebody asks now."""
        is_new = now >= self.due + CALM_SECONDS
        self._pause = PAUSE_SECONDS if is_new else min(2 * self._pause, PAUSE_SECONDS_MAX)
        self.due = now + self._pause * self.jitter()
