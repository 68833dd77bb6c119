"""Samples of the last 15 minutes, and estimates from their slope. Pure: the caller passes the time.

One column for each member and quantity, as charts want them: {"t": [...], "lag_bytes": {"broker-a-1": [...]}, ...}.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

SECONDS_KEPT = 900.0
SLOPE_SECONDS = 15.0  # Of the newest samples, from which the end of catching up is estimated.
QUANTITIES = ("lag_bytes", "lag_seconds", "ack_p50", "ack_p99", "rate")
Values = Mapping[str, float | None]  # By member.


@frozen
class Sample:
    """One moment. Each quantity by member, where it is known: lag of slaves, acks and rate of masters."""

    at: float
    values: Mapping[str, Values]


@define
class Series:
    """A ring of samples, oldest first."""

    seconds_kept: float = SECONDS_KEPT
    _samples: deque[Sample] = field(factory=deque, init=False)

    def add(self, sample: Sample) -> None:
        """Take the newest; forget what is too old. A clock that was set back does not turn the ring round."""
        while self._samples and self._samples[-1].at >= sample.at:
            self._samples.pop()
        self._samples.append(sample)
        while sample.at - self._samples[0].at > self.seconds_kept:
            self._samples.popleft()

    def recent(self, quantity: str, member: str, seconds: float = SLOPE_SECONDS) -> list[tuple[float, float]]:
        """(time, value) of the newest unbroken stretch in which it was known."""
        found: list[tuple[float, float]] = []
        for sample in reversed(self._samples):
            value = sample.values.get(quantity, {}).get(member)
            if value is None or self._samples[-1].at - sample.at > seconds:
                break
            found.append((sample.at, value))
        return found[::-1]

    def columns(self) -> dict[str, Any]:
        """The samples as columns, for charts."""
        return columns(self._samples)


def columns(samples: Iterable[Sample]) -> dict[str, Any]:
    """Samples by quantity and member instead of by time; null where a value is not known."""
    samples = list(samples)
    shown: dict[str, Any] = {"t": [round(each.at, 1) for each in samples]}
    for quantity in QUANTITIES:
        names = sorted({name for each in samples for name in each.values.get(quantity, {})})
        shown[quantity] = {name: [each.values.get(quantity, {}).get(name) for each in samples] for name in names}
    return shown


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Change a second by least squares; None for fewer than three points."""
    if len(points) < 3:
        return None
    mean_t = sum(t for t, _ in points) / len(points)
    mean_v = sum(v for _, v in points) / len(points)
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    return sum((t - mean_t) * (v - mean_v) for t, v in points) / spread if spread else None


def catch_up_seconds(points: Sequence[tuple[float, float]]) -> float | None:
    """Seconds until the lag is 0, if it goes on falling as since its peak; None: caught up, or no end in sight."""
    peak = max(range(len(points)), key=lambda i: (points[i][1], i), default=0)
    change = slope(points[peak:])
    if change is None or points[-1][1] <= 0 or change >= 0:
        return None
    left = points[-1][1] / -change
    return left if left < 86_400 else None


def is_growing(points: Sequence[tuple[float, float]]) -> bool:
    """True if the lag is at its peak and grows by more than noise: a tenth over the period."""
    change = slope(points)
    if change is None or not 0 < max(value for _, value in points) <= points[-1][1] * 1.01:
        return False
    return change * (points[-1][0] - points[0][0]) > 0.1 * max(points[-1][1], 1.0)
