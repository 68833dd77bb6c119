"""Rates of counters: one sample a second, kept for ten minutes. No I/O, no clock.

Source: StoreStatsService.java, BrokerStats.java (RocketMQ 4.9.8).
"""

from collections import deque

from attrs import define, field

SAMPLES_MAX = 601
WINDOWS_SECONDS = (10, 60, 600)


@define(eq=False)
class Rates:
    """Samples of several counters, in a fixed order."""

    _samples: deque[tuple[float, tuple[int, ...]]] = field(factory=lambda: deque(maxlen=SAMPLES_MAX), init=False)

    def sample(self, now: float, *counters: int) -> None:
        self._samples.append((now, counters))

    def over(self, counter: int, seconds: float) -> float | None:
        """Return the growth per second over the last `seconds`; None while the samples cover less."""
        if len(self._samples) < 2:
            return None
        newest, values = self._samples[-1]
        for time, earlier in reversed(self._samples):
            if newest - time >= seconds - 0.5:
                return (values[counter] - earlier[counter]) / (newest - time)
        return None

    def recent(self, counter: int, seconds: float = 10) -> float:
        """Return the growth per second over the last `seconds`, or over all samples while they cover less."""
        rate = self.over(counter, seconds)
        if rate is not None or len(self._samples) < 2:
            return rate or 0.0
        (oldest, earlier), (newest, values) = self._samples[0], self._samples[-1]
        return (values[counter] - earlier[counter]) / (newest - oldest) if newest > oldest else 0.0

    def text(self, counter: int) -> str:
        """Format the rates over 10 s, 1 min and 10 min as mqadmin does; fewer numbers after a start."""
        rates = [rate for seconds in WINDOWS_SECONDS if (rate := self.over(counter, seconds)) is not None]
        return " ".join(f"{rate:.4f}" for rate in rates) or f"{self.recent(counter):.4f}"


@define(eq=False)
class DailyTotals:
    """Values of a counter at the last two midnights."""

    day: int = 0  # Of the last sample; any count of days.
    yesterday_morning: int = 0
    today_morning: int = 0

    def sample(self, day: int, total: int) -> None:
        if self.day and day != self.day:
            self.yesterday_morning, self.today_morning = self.today_morning, total
        self.day = day


@define(eq=False)
class PullCounters:
    """Counters of answered pulls since the start."""

    found: int = 0
    missed: int = 0
    messages: int = 0

    def count(self, messages: int) -> None:
        """Count a pull that was answered with so many messages."""
        self.messages += messages
        if messages:
            self.found += 1
        else:
            self.missed += 1


# Order of the counters in a sample.
PUTS, PUT_BYTES, GETS_FOUND, GETS_MISSED, GET_MESSAGES = range(5)


@define(eq=False)
class Throughput:
    """Puts and gets of a broker: totals, rates, and totals of days."""

    pulls: PullCounters = field(factory=PullCounters, init=False)
    rates: Rates = field(factory=Rates, init=False)
    puts_by_day: DailyTotals = field(factory=DailyTotals, init=False)
    gets_by_day: DailyTotals = field(factory=DailyTotals, init=False)

    def sample(self, now: float, day: int, put_counts: tuple[int, int]) -> None:
        """Call once a second. `put_counts`: messages and bytes of the store; `day`: a number that changes each day."""
        (messages, size), pulls = put_counts, self.pulls
        self.rates.sample(now, messages, size, pulls.found, pulls.missed, pulls.messages)
        self.puts_by_day.sample(day, messages)
        self.gets_by_day.sample(day, pulls.messages)
