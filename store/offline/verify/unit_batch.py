"""The units of consume queues that the records of many windows should have, queue by queue. No I/O."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from twinlog.store.offline.queue_view import QueueKey
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.columns import Columns, Ints

_LAYOUT = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert _LAYOUT.itemsize == UNIT.size
_RUNS_MAX = 64


class QueueUnits(NamedTuple):
    """Units of one queue in the order of their records, whose queue offsets these are. `is_run`: each is one more than before."""

    key: QueueKey
    offsets: Ints
    units: bytes
    is_run: bool


@define(eq=False)
class UnitBatch:
    """Collects units; take() sorts them by queue."""

    count: int = 0
    _topics: dict[str, int] = field(factory=dict, init=False)
    _columns: list[tuple[Ints, ...]] = field(
        factory=list, init=False
    )  # Key, queue offset, physical offset, size, tags code.

    def add(self, records: Columns) -> None:
        """Add the units of all records that enter a queue."""
        topics = np.array([self._topics.setdefault(topic, len(self._topics)) for topic in records.topics], np.int64)
        keys = topics[records.topic] << 32 | records.queue_id & 0xFFFFFFFF
        columns = keys, records.queue_offset, records.phy_offset, records.size, records.tags_code
        queued = records.is_queued
        self._columns.append(columns if queued.all() else tuple(column[queued] for column in columns))
        self.count += len(self._columns[-1][0])

    def take(self) -> Iterator[QueueUnits]:
        """The units of each queue, in the order in which queues come first; the batch is empty then."""
        columns, names, count = self._columns, list(self._topics), self.count
        self._columns, self._topics, self.count = [], {}, 0
        if not count:
            return
        keys, offsets, *fields = (np.concatenate(each) for each in zip(*columns, strict=True))
        order = _order(keys)
        keys, offsets = keys[order], offsets[order]
        units = np.empty(count, _LAYOUT)
        for name, values in zip(_LAYOUT.names or (), fields, strict=True):
            units[name] = values[order]
        breaks = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        begins, ends = np.append(0, breaks), np.append(breaks, count)
        jumps = np.flatnonzero(offsets[1:] - offsets[:-1] != 1) + 1
        # A place where the next queue begins is no jump of the queue before.
        jumps = np.setdiff1d(jumps, breaks, assume_unique=True)
        is_run = np.searchsorted(jumps, begins) == np.searchsorted(jumps, ends)
        for number in np.argsort(order[begins]).tolist():
            begin, end = int(begins[number]), int(ends[number])
            key = int(keys[begin])
            queue_id = (key & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)
            part = units[begin:end].tobytes()
            yield QueueUnits((names[key >> 32], queue_id), offsets[begin:end], part, bool(is_run[number]))


def _order(keys: Ints) -> Ints:
    """As np.argsort(keys, kind="stable"), of which it sorts only the first of keys in a row: producers send many at once."""
    begins = np.append(0, np.flatnonzero(keys[1:] != keys[:-1]) + 1)
    sizes = np.diff(begins, append=len(keys))
    runs = np.argsort(keys[begins], kind="stable")
    sizes = sizes[runs]
    order: Ints = np.arange(len(keys)) + np.repeat(begins[runs] - (np.cumsum(sizes) - sizes), sizes)
    return order


def differing(expected: bytes, found: bytes) -> Iterator[tuple[int, bytes]]:
    """Runs of units that differ from those found: the number of the first one, and what is expected.

    Of very many runs one that has all of them.
    """
    there = np.frombuffer(found[: len(expected)].ljust(len(expected), b"\0"), np.uint8)
    should = np.frombuffer(expected, np.uint8)
    wrong = np.flatnonzero((there != should).reshape(-1, UNIT.size).any(axis=1))
    for run in _runs(wrong):
        yield run[0], expected[run[0] * UNIT.size : run[1] * UNIT.size]


def _runs(numbers: NDArray[Any]) -> list[tuple[int, int]]:
    """First and behind the last of numbers in a row."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    if len(breaks) >= _RUNS_MAX:
        return [(int(numbers[0]), int(numbers[-1]) + 1)]
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(numbers, breaks)]
