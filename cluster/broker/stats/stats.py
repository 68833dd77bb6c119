"""Statistics of puts and gets by topic, queue and group, for mqadmin statsAll and request 315. No I/O, no clock.

    puts                    growth of the consume queues, read with each sample: sends pay nothing for it
    group_get, send_back    increments, once a pull
    sample                  records the counters; the broker calls it every second
    view                    one statistic by RocketMQ's name and key, over minute, hour and day

A topic's numbers are the sums of its queues', so all messages of a queue count, also those that the broker puts itself.
Source: BrokerStatsManager.java, Stats.java (RocketMQ 4.9.7). There a topic's queues are counted for delayed messages only.
`Windows` decides which of three windows are due; StatsItem.java has a timer thread for each. Times are seconds, monotonic.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from attrs import define, field, frozen

from twinlog.cluster.remoting.names import SCHEDULE_TOPIC
from twinlog.store.log.commit_log import PutResult
from twinlog.store.queue.consume_queue import ConsumeQueue

NUMS, SIZE, LATENCY_MS, CALLS = range(4)  # Numbers of a counter; CALLS counts requests.
PERIODS = MINUTE, HOUR, DAY = range(3)
_PACES = ((10.0, 7), (600.0, 7), (3600.0, 25))  # Seconds between two samples, and length of their list.

Counts = tuple[int, int, int, int]
_ZERO: Counts = (0, 0, 0, 0)


@define(eq=False)
class Counter:
    """Totals since the counter was made; callers add to the fields."""

    nums: int = 0
    size: int = 0  # Bytes.
    latency_ms: int = 0
    calls: int = 0
    next_offset: int = 0  # Of a queue: offset of the group's next pull. Not sampled.
    _samples: tuple[deque[tuple[float, Counts]], ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._samples = tuple(deque(maxlen=length) for _, length in _PACES)

    @property
    def counts(self) -> Counts:
        return self.nums, self.size, self.latency_ms, self.calls

    def sample(self, period: int, now: float) -> None:
        """Record the totals. Before the first sample comes one with zeros, as in RocketMQ."""
        samples = self._samples[period]
        if not samples:
            samples.append((now - _PACES[period][0], _ZERO))
        samples.append((now, self.counts))

    def span(self, period: int) -> tuple[tuple[float, Counts], tuple[float, Counts]] | None:
        """Return the oldest and the newest sample of a period; None before the first."""
        samples = self._samples[period]
        return (samples[0], samples[-1]) if samples else None

    @property
    def is_idle(self) -> bool:
        """True when nothing was counted for a day."""
        day = self._samples[DAY]
        return len(day) == day.maxlen and day[0][1] == self.counts


@frozen
class CounterSnapshot:
    """Growth of a counter: in total, per second, and per call (0 where calls are not counted)."""

    sum: int = 0
    tps: float = 0.0
    average: float = 0.0

    def to_json(self) -> dict[str, float]:
        """Return BrokerStatsItem's JSON."""
        return {"avgpt": self.average, "sum": self.sum, "tps": self.tps}


def snapshot(counters: Iterable[Counter], what: int, period: int) -> CounterSnapshot:
    """Return the growth of `counters` together over a period."""
    spans = [span for counter in counters if (span := counter.span(period)) is not None]
    if not spans:
        return CounterSnapshot()
    total = sum(after[what] - before[what] for (_, before), (_, after) in spans)
    calls = sum(after[CALLS] - before[CALLS] for (_, before), (_, after) in spans)
    seconds = max(end for _, (end, _) in spans) - min(begin for (begin, _), _ in spans)
    return CounterSnapshot(total, total / seconds, total / calls if calls else 0.0)


@define
class Windows:
    """Decides which periods are due for a sample: the first time at once, then at their pace."""

    _next: list[float] = field(factory=list, init=False)

    def due(self, now: float) -> list[int]:
        """Return the periods to sample now. After a late call one sample is due, not those that were missed."""
        if not self._next:
            self._next = [now] * len(_PACES)
        found = [period for period, at in enumerate(self._next) if now >= at]
        for period in found:
            pace = _PACES[period][0]
            self._next[period] += pace * (1 + (now - self._next[period]) // pace)
        return found


K = TypeVar("K")

SCHEDULE_CONSUMER_GROUP = "SCHEDULE_CONSUMER"
COUNTERS_MAX = 20_000  # Of each kind: bounds memory for many groups, topics and queues.

# Counters of each statistic, and the number of them that it shows.
_VIEWS = {
    "TOPIC_PUT_NUMS": ("topic puts", NUMS),
    "TOPIC_PUT_SIZE": ("topic puts", SIZE),
    "QUEUE_PUT_NUMS": ("queue puts", NUMS),
    "QUEUE_PUT_SIZE": ("queue puts", SIZE),
    "GROUP_GET_NUMS": ("group gets", NUMS),
    "GROUP_GET_SIZE": ("group gets", SIZE),
    "GROUP_GET_LATENCY": ("latencies", LATENCY_MS),
    "QUEUE_GET_NUMS": ("queue gets", NUMS),
    "QUEUE_GET_SIZE": ("queue gets", SIZE),
    "SNDBCK_PUT_NUMS": ("send backs", NUMS),
    "BROKER_PUT_NUMS": ("broker puts", NUMS),
    "BROKER_GET_NUMS": ("broker gets", NUMS),
}


@define(eq=False)
class BrokerStatsManager:
    """`cluster`: the key of the broker's own numbers. `takes_puts`: this broker is a master now."""

    cluster: str
    queues: Callable[[], Iterable[tuple[str, int, ConsumeQueue]]] = tuple
    takes_puts: Callable[[], bool] = field(default=lambda: True, kw_only=True)
    puts: dict[tuple[str, int], Counter] = field(factory=dict, init=False)  # By topic and queue.
    gets: dict[tuple[str, int, str], Counter] = field(factory=dict, init=False)  # By topic, queue and group.
    send_backs: dict[tuple[str, str], Counter] = field(factory=dict, init=False)  # By topic and group.
    dead: dict[tuple[str, str], Counter] = field(factory=dict, init=False)  # Dead letters; likewise.
    # Gets, by topic and group.
    _of_groups: dict[tuple[str, str], list[Counter]] | None = field(default=None, init=False)
    broker_puts: Counter = field(factory=Counter, init=False)
    broker_gets: Counter = field(factory=Counter, init=False)
    _ends: dict[tuple[str, int], tuple[int, int]] | None = field(default=None, init=False)  # At the last sample.
    _not_calls: dict[tuple[str, int], int] = field(factory=dict, init=False)
    longest_get_ms: int = field(default=0, init=False)  # Since the start.
    _windows: Windows = field(factory=Windows, init=False)
    _overflow: Counter = field(factory=Counter, init=False)  # Used above COUNTERS_MAX, and not shown.

    # Counting

    def batch_put(self, topic: str, queue_id: int, count: int) -> None:
        """Note a request with `count` messages, so that calls are counted instead of messages."""
        key = topic, queue_id
        self._not_calls[key] = self._not_calls.get(key, 0) + count - 1

    def delivered(self, level: int, results: Sequence[PutResult]) -> None:
        """Count delivered messages of a delay level."""
        for result in results:
            self.group_get(SCHEDULE_CONSUMER_GROUP, SCHEDULE_TOPIC, level - 1, 1, result.size, 0)

    def group_get(
        self, group: str, topic: str, queue_id: int, count: int, size: int, latency_ms: int, next_offset: int = 0
    ) -> None:
        """Count a pull that was answered with messages; the next one starts at `next_offset`."""
        counter = self.gets.get((topic, queue_id, group)) or self._new_get((topic, queue_id, group))
        counter.nums += count
        counter.size += size
        counter.latency_ms += latency_ms
        counter.next_offset = next_offset
        if latency_ms > self.longest_get_ms:
            self.longest_get_ms = latency_ms
        counter.calls += 1
        self.broker_gets.nums += count

    def send_back(self, group: str, topic: str, count: int) -> None:
        """Count messages that a consumer sent back."""
        counter = self.send_backs.get((topic, group)) or self._new(self.send_backs, (topic, group))
        counter.nums += count
        counter.calls += 1

    def dead_letter(self, group: str, topic: str) -> None:
        """Count a message that became a dead letter."""
        counter = self.dead.get((topic, group)) or self._new(self.dead, (topic, group))
        counter.nums += 1

    def pulled_to(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset of a group's next pull; 0 if no pull was answered with messages since the start."""
        counter = self.gets.get((topic, queue_id, group))
        return counter.next_offset if counter is not None else 0

    def _new_get(self, key: tuple[str, int, str]) -> Counter:
        self._of_groups = None
        return self._new(self.gets, key)

    def _new(self, table: dict[K, Counter], key: K) -> Counter:
        if len(table) >= COUNTERS_MAX:
            return self._overflow
        counter = table[key] = Counter()
        return counter

    # Sampling

    def sample(self, now: float) -> None:
        """Sample all counters for the periods that are due; call it about every second."""
        due = self._windows.due(now)
        if due:
            self.take_puts()
        for period in due:
            for counter in self._all():
                if counter.nums:
                    counter.sample(period, now)
            if period == DAY:
                self._make_room()

    def take_puts(self) -> None:
        """Count the growth of the queues. Their content at the start, and growth on a slave, are not counted."""
        counts = self.takes_puts() and self._ends is not None
        ends = self._ends if self._ends is not None else {}
        for topic, queue_id, queue in self.queues():
            key, end, size = (topic, queue_id), queue.max_offset, queue.put_bytes
            before, size_before = ends.get(key) or (queue.min_offset, 0)
            ends[key] = end, size
            if counts and end > before:
                counter = self.puts.get(key) or self._new(self.puts, key)
                counter.nums += end - before
                counter.size += size - size_before
                counter.calls += end - before - self._not_calls.pop(key, 0)
                self.broker_puts.nums += end - before
        self._ends = ends

    def _all(self) -> Iterator[Counter]:
        for table in self._sampled:
            yield from table.values()
        yield from (self.broker_puts, self.broker_gets)

    # Removing

    @property
    def _sampled(self) -> tuple[dict[Any, Counter], ...]:
        return self.puts, self.gets, self.send_backs

    def _make_room(self) -> None:
        for table in self._sampled:
            if len(table) > COUNTERS_MAX // 2:
                self._drop(table, lambda _key, counter: counter.is_idle)

    def topics(self) -> set[str]:
        """Return the topics with counters."""
        return {key[0] for table in self._sampled for key in table}

    def topic_deleted(self, topic: str) -> None:
        for table in (*self._sampled, self.dead):
            self._drop(table, lambda key, _counter: key[0] == topic)

    def group_deleted(self, group: str) -> None:
        for table in (*self._sampled[1:], self.dead):  # Puts have no group.
            self._drop(table, lambda key, _counter: key[-1] == group)

    def _drop(self, table: dict[Any, Counter], is_unwanted: Callable[[Any, Counter], bool]) -> None:
        self._of_groups = None
        for key in [key for key, counter in table.items() if is_unwanted(key, counter)]:
            del table[key]

    # Reading

    def view(self, name: str, key: str) -> list[CounterSnapshot] | None:
        """Return a statistic by its name and key, over minute, hour and day; None if it is unknown or nothing was counted.

        Keys: topic, topic@queue, topic@group, queue@topic@group (latencies), topic@queue@group, and the cluster's name.
        """
        if name not in _VIEWS:
            return None
        kind, what = _VIEWS[name]
        counters = self._find(kind, key)
        if not counters and "PUT" in name:
            self.take_puts()
            counters = self._find(kind, key)
        return [snapshot(counters, what, period) for period in PERIODS] if counters else None

    def group_get_tps(self, group: str, topic: str) -> float:
        """Return the messages per second that a group got of a topic, over the last minute."""
        return snapshot(self._find("group gets", f"{topic}@{group}"), NUMS, MINUTE).tps

    def _find(self, kind: str, key: str) -> list[Counter]:
        if kind in ("broker puts", "broker gets"):
            counter = self.broker_puts if kind == "broker puts" else self.broker_gets
            return _one(counter if key == self.cluster else None)
        match kind, key.split("@"):
            case "topic puts", [topic]:
                return [counter for (name, _), counter in self.puts.items() if name == topic]
            case "queue puts", [topic, queue]:
                return _one(self.puts.get((topic, _number(queue))))
            case "group gets", [topic, group]:
                return self._gets_of(topic, group)
            case ("latencies", [queue, topic, group]) | ("queue gets", [topic, queue, group]):
                return _one(self.gets.get((topic, _number(queue), group)))
            case "send backs", [topic, group]:
                return _one(self.send_backs.get((topic, group)))
        return []

    def _gets_of(self, topic: str, group: str) -> list[Counter]:
        """Return the counters of all queues, from a table that is made once for many calls."""
        if self._of_groups is None:
            self._of_groups = {}
            for (name, _, whose), counter in self.gets.items():
                self._of_groups.setdefault((name, whose), []).append(counter)
        return self._of_groups.get((topic, group), [])


def _one(counter: Counter | None) -> list[Counter]:
    """Return a list of the counter, empty if it counted nothing."""
    return [counter] if counter is not None and counter.nums else []


def _number(text: str) -> int:
    """Read a queue id; -1 for an invalid one."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
