"""Hearing of a master by a member: how long ago, in time in which it listened. No I/O; times are monotonic seconds.

Heard are bytes and heartbeats of the HA stream, and lease requests of a master that serves. Silence counts only while this member
listens: each look counts at most LOOK_SECONDS_MAX, however late it comes, so that a process whose CPU was taken away, or that
stood still, does not take its own absence for its master's.
"""

import math

from attrs import define, field, frozen

LOOK_SECONDS_MAX = 0.5


def look_seconds(now: float, looked_at: float | None) -> float:
    """Seconds that a look counts, by when the one before was; None: it is the first."""
    return min(max(now - looked_at, 0.0), LOOK_SECONDS_MAX) if looked_at is not None else 0.0


@frozen(kw_only=True)
class Patience:
    """Seconds until a master is suspected: of silence, and after its process was found to be gone."""

    silence: float
    restart: float


@define(eq=False)
class Hearing:
    """`look` is called a few times a second. A member that starts waits for its master's first word as for any other."""

    patience: Patience
    silent_seconds: float = field(default=0.0, init=False)
    gone_seconds: float | None = field(
        default=None, init=False
    )  # Since connections were refused first; None: they are not.
    why_given_up: str = field(default="", init=False)  # The master's own word that it does not serve.
    _looked_at: float | None = field(default=None, init=False)
    _heard_at: float = field(default=-math.inf, init=False)

    def heard(self, at: float) -> None:
        """The master was heard at a time, maybe before the last look. Bytes do not take back that it does not serve."""
        if at > self._heard_at:
            self._heard_at, self.silent_seconds, self.gone_seconds = at, 0.0, None

    def serves(self, at: float) -> None:
        """The master said that it serves, or another one is to be waited for."""
        self.why_given_up = ""
        self.heard(at)

    def gave_up(self, why: str) -> None:
        """The master said that it does not serve: it is suspected at once."""
        self.why_given_up = why

    def refused(self) -> None:
        """A connection to it was refused: no process is there. One that was never heard may only not be started yet."""
        if self.gone_seconds is None and self._heard_at > -math.inf:
            self.gone_seconds = 0.0

    def accepted(self) -> None:
        """A process is there again, or still: it has until silence speaks against it."""
        self.gone_seconds = None

    def look(self, now: float) -> None:
        """Count the time since the last look."""
        step = look_seconds(now, self._looked_at)
        if self._looked_at is not None and self._heard_at >= self._looked_at:
            step = min(step, max(now - self._heard_at, 0.0))
        self._looked_at = now
        self.silent_seconds += step
        if self.gone_seconds is not None:
            self.gone_seconds += step

    @property
    def seconds_left(self) -> float:
        """Until the master is suspected, if nothing more is heard; 0 or less: it is."""
        if self.why_given_up:
            return 0.0
        left = self.patience.silence - self.silent_seconds
        if self.gone_seconds is not None:
            left = min(left, self.patience.restart - self.gone_seconds)
        return left

    @property
    def is_suspected(self) -> bool:
        """True if the master may be gone."""
        return self.seconds_left <= 0
