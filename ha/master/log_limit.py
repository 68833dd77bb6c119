"""Lets through so many log lines, however many strangers knock."""

from attrs import define, field


@define
class LogLimit:
    """A bucket of `burst` lines that refills at `per_second`."""

    burst: int = 10
    per_second: float = 0.2
    suppressed: int = field(default=0, init=False)  # Since the last line that was let through.
    _left: float = field(init=False)
    _at: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._left = self.burst

    def allows(self, now: float) -> bool:
        """Whether a line may be written at `now`, monotonic seconds; reset `suppressed` after having told it."""
        self._left = min(self._left + (now - self._at) * self.per_second, self.burst)
        self._at = now
        if self._left < 1:
            self.suppressed += 1
            return False
        self._left -= 1
        return True
