"""Compares the units of consume queues with the records that they should lead to, for the scrub. On the loop's thread."""

from collections.abc import Iterator

import trio
from attrs import define, field

from store.consume_queue import UNIT, ConsumeQueue, Unit
from store.consume_queue_table import ConsumeQueueTable
from store.message import QUEUELESS, TRANSACTION_MASK
from store.read_check import ReadCheck
from store.record_scan import DispatchEntry

_ENTRIES_AT_A_TIME = 500  # Without a pause.


@define(eq=False)
class Run:
    """Messages `start` to `end` of a queue, one behind the other and sound."""

    start: int
    end: int


@define(eq=False)
class UnitScrub:
    """The units of one file's records. `runs`: of each queue, the last stretch in which all were right."""

    queues: ConsumeQueueTable
    check: ReadCheck
    runs: dict[ConsumeQueue, Run] = field(factory=dict, init=False)

    async def compare(self, entries: list[DispatchEntry]) -> None:
        """Compare the units of records of one file, given in order; wrong ones are told."""
        for at in range(0, len(entries), _ENTRIES_AT_A_TIME):
            by_queue: dict[tuple[str, int], list[DispatchEntry]] = {}
            for entry in entries[at : at + _ENTRIES_AT_A_TIME]:
                if entry.sys_flag & TRANSACTION_MASK not in QUEUELESS:
                    by_queue.setdefault((entry.topic, entry.queue_id), []).append(entry)
            for (topic, queue_id), group in by_queue.items():
                queue = self.queues.find(topic, queue_id)
                if queue is not None:
                    for run in _consecutive(group):
                        self._compare_run(queue, run)
            await trio.lowlevel.checkpoint()

    def _compare_run(self, queue: ConsumeQueue, entries: list[DispatchEntry]) -> None:
        first, count = entries[0].queue_offset, len(entries)
        there, expected = _units(queue, first, count), b"".join(UNIT.pack(*entry[3:6]) for entry in entries)
        if there == expected:
            self._good(queue, first, first + count)
            return
        for entry, unit in zip(entries, UNIT.iter_unpack(there), strict=False):
            # A record of a topic that was deleted and made anew has no unit: another one has its number now.
            sound = self.check.unit(queue, entry.queue_offset, *unit)
            if Unit(*unit).is_blank and entry.queue_offset >= queue.min_offset:
                says = f"it is a blank, but its message lies at {entry.phy_offset}"
                self.check.known.unit(queue.topic, queue.queue_id, entry.queue_offset, says)
            elif sound is None:
                self.check.distrust_below(queue, entry.queue_offset + 1)
            elif sound == unit[1:] and unit[0] == entry.phy_offset:
                self._good(queue, entry.queue_offset, entry.queue_offset + 1)

    def _good(self, queue: ConsumeQueue, start: int, end: int) -> None:
        run = self.runs.get(queue)
        if run is None or run.end != start:
            self.runs[queue] = Run(start, end)
        else:
            run.end = end

    def trust(self) -> None:
        """Nothing of the file is left: what was right needs no check any more."""
        for queue, run in self.runs.items():
            self.check.trust(queue, run.start, run.end)


def _consecutive(entries: list[DispatchEntry]) -> Iterator[list[DispatchEntry]]:
    """Stretches in which each message is the next one of its queue."""
    start = 0
    for at in range(1, len(entries) + 1):
        if at == len(entries) or entries[at].queue_offset != entries[at - 1].queue_offset + 1:
            yield entries[start:at]
            start = at


def _units(queue: ConsumeQueue, first: int, count: int) -> bytes:
    """The units of `count` messages, across files; fewer where there are none."""
    pieces: list[bytes] = []
    while count and (piece := queue.read(first, count)):
        pieces.append(piece)
        first += len(piece) // UNIT.size
        count -= len(piece) // UNIT.size
    return b"".join(pieces)
