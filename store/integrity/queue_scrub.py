"""Compares the units of consume queues with the records that they should lead to, for the scrub. On the loop's thread.

A wrong unit is put right once its file of the log was read, if digests prove its record: a record's CRC covers neither its number
nor its tag, so without them either may be what changed. And only while nothing in the log is known to be broken: of a topic that
was deleted and made anew two records have a number, and the later one, to which the unit belongs, may be the broken one.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

import trio
from attrs import define, field

from twinlog.store.integrity.read_check import ReadCheck
from twinlog.store.queue.consume_queue import UNIT, ConsumeQueue, Unit
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.record.message import QUEUELESS, TRANSACTION_MASK
from twinlog.store.record.scan import DispatchEntry

_ENTRIES_AT_A_TIME, _WRITES_AT_A_TIME = 500, 50  # Without a pause.
_WRONG_MAX = 10_000  # Units of one file; with more of them wrong a queue is to be made anew.


@define(eq=False)
class Run:
    """Messages `start` to `end` of a queue, one behind the other and sound."""

    start: int
    end: int


@define(eq=False)
class UnitScrub:
    """The units of one file's records. `runs`: of each queue, the last stretch in which all were right. `wrong`: what other units
    should be, by queue and number.
    """

    queues: ConsumeQueueTable
    check: ReadCheck
    runs: dict[ConsumeQueue, Run] = field(factory=dict, init=False)
    wrong: dict[tuple[ConsumeQueue, int], Unit] = field(factory=dict, init=False)

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
                self._wrong(queue, entry.queue_offset, Unit(*entry[3:6]))
            elif sound is None:
                self.check.distrust_below(queue, entry.queue_offset + 1)
                self._wrong(queue, entry.queue_offset, Unit(*entry[3:6]))
            elif unit[0] == entry.phy_offset and sound == unit[1:]:
                self._good(queue, entry.queue_offset, entry.queue_offset + 1)
            elif unit[0] == entry.phy_offset:
                self._wrong(queue, entry.queue_offset, Unit(unit[0], *sound))

    def _wrong(self, queue: ConsumeQueue, queue_offset: int, right: Unit) -> None:
        if len(self.wrong) < _WRONG_MAX or (queue, queue_offset) in self.wrong:
            self.wrong[queue, queue_offset] = right

    def _good(self, queue: ConsumeQueue, start: int, end: int) -> None:
        self.check.known.units_right(queue.topic, queue.queue_id, start, end)
        run = self.runs.get(queue)
        if run is None or run.end != start:
            self.runs[queue] = Run(start, end)
        else:
            run.end = end

    async def put_right(self, proves: Callable[[int, int], bool]) -> None:
        """Nothing of the file is left. `proves`: whether bytes of the log, from one offset to another, are what was written."""
        for number, ((queue, queue_offset), unit) in enumerate(self.wrong.items()):
            if not number % _WRITES_AT_A_TIME:
                await trio.lowlevel.checkpoint()
            if self.check.known.damaged or not proves(unit.phy_offset, unit.phy_offset + unit.size):
                continue
            if _fits(queue, queue_offset, unit):
                with suppress(OSError):  # It was told, and stays wrong.
                    if queue.put_right(queue_offset, unit):
                        self.check.known.unit_mended(queue.topic, queue.queue_id, queue_offset)

    def trust(self) -> None:
        """Nothing of the file is left: what was right needs no check any more."""
        for queue, run in self.runs.items():
            self.check.trust(queue, run.start, run.end)


def _fits(queue: ConsumeQueue, queue_offset: int, unit: Unit) -> bool:
    """Whether a message lies between those before and behind it."""
    before = queue.unit(queue_offset - 1) if queue_offset > queue.min_offset else None
    behind = queue.unit(queue_offset + 1)
    return (before is None or before.is_blank or before.phy_offset + before.size <= unit.phy_offset) and (
        behind is None or behind.is_blank or unit.phy_offset + unit.size <= behind.phy_offset
    )


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
