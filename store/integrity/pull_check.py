"""Checks the records of a pull before they are served, many at once: adjacent records are read from the disk together.

The rules are those of ReadCheck.unit(), which handles all but plain, sound records. Records found sound are not checked again
by later pulls; while a consumer reads through a queue, the next records are checked while it works on the last ones.
"""

import os
from collections.abc import Iterator

import trio
from attrs import define, field

from twinlog.store.integrity.read_check import ReadCheck, plain_tags_code
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.message import FIXED_SIZE
from twinlog.store.util.wakeup import Wakeup

BROKEN = -1
_AT_ONCE = 32  # Units; a pull seldom asks for more.
_UNITS_AHEAD = 128  # That are checked before they are asked for.
_SPAN_MAX = 256 << 10  # Bytes; of a longer span most would be read in vain.
_AHEAD_SHIFT, _AHEAD_PIECES = 20, 4  # The disk is asked for the next pieces of 1 MiB, once for each.


def sound_units(
    check: ReadCheck, queue: ConsumeQueue, queue_offset: int, units: bytes
) -> Iterator[tuple[int, int, int]]:
    """Physical offset, size and tags code of each unit from `queue_offset` on, corrected where they are wrong.

    Size BROKEN: it must not be served; the damage is reported.
    """
    damaged, queue_id, topic = check.known.damaged, queue.queue_id, check.stored_topic(queue.topic)
    for begin in range(0, len(units), _AT_ONCE * UNIT.size):
        group = units[begin : begin + _AT_ONCE * UNIT.size]
        group_start, group_end = queue_offset, queue_offset + len(group) // UNIT.size
        if check.checked_end(queue, group_start) >= group_end:
            yield from UNIT.iter_unpack(group)
            queue_offset = group_end
            continue
        start, data = _read_span(check, group)
        data_size = len(data)
        all_sound = True
        for phy_offset, size, code in UNIT.iter_unpack(group):
            at = phy_offset - start
            if (
                at >= 0
                and size >= FIXED_SIZE
                and at + size <= data_size
                and not damaged
                and code == plain_tags_code(data, at, size, phy_offset, topic, queue_id, queue_offset)
            ):
                yield phy_offset, size, code
                queue_offset += 1
                continue
            found = check.unit(queue, queue_offset, phy_offset, size, code)
            all_sound = all_sound and found == (size, code)
            yield (phy_offset, *found) if found is not None else (phy_offset, BROKEN, code)
            queue_offset += 1
        if all_sound:
            check.checked(queue, group_start, group_end)


def _read_span(check: ReadCheck, units: bytes) -> tuple[int, bytes]:
    """The start of the records of some units, and a copy of the log from there on; of no bytes where they are far apart.

    By a system call: a sector that cannot be read raises OSError then, where the map would end the process.
    """
    start, _, _ = UNIT.unpack_from(units)
    last, size, _ = UNIT.unpack_from(units, len(units) - UNIT.size)
    span = last + size - start
    file = check.log.files.file_at(start)
    if file is None or not FIXED_SIZE <= span <= _SPAN_MAX or start >= file.end:
        return 0, b""
    piece = start >> _AHEAD_SHIFT
    if piece not in check.ahead:
        check.ahead.append(piece)
        begin = (piece + 1 << _AHEAD_SHIFT) - file.start
        os.posix_fadvise(file.fd, begin, _AHEAD_PIECES << _AHEAD_SHIFT, os.POSIX_FADV_WILLNEED)
    try:
        return start, file.read(start - file.start, min(span, file.end - start))
    except OSError:
        return 0, b""  # Which of the records cannot be read is found one by one.


@define(eq=False)
class CheckAhead:
    """Checks the records that follow a pull, a few at a time, so that other requests run in between."""

    check: ReadCheck
    _pulled: dict[ConsumeQueue, int] = field(factory=dict, init=False)  # How far consumers have read.
    _wakeup: Wakeup = field(factory=Wakeup, init=False)

    def pulled(self, queue: ConsumeQueue, next_offset: int) -> None:
        """A consumer got messages that had to be checked; its next pull will begin at `next_offset`."""
        self._pulled[queue] = next_offset
        self._wakeup.set()

    async def run(self) -> None:
        """Check ahead until cancelled."""
        while True:
            await self._wakeup.wait()
            while self._pulled:
                queue = next(iter(self._pulled))
                next_offset = self._pulled.pop(queue)
                if self._check_next(queue, next_offset):
                    self._pulled.setdefault(queue, next_offset)
                await trio.lowlevel.checkpoint()

    def _check_next(self, queue: ConsumeQueue, next_offset: int) -> bool:
        """Check the next records of a queue; True when there may be more to check."""
        begin = self.check.checked_end(queue, next_offset)
        if self.check.known.damaged or begin >= min(next_offset + _UNITS_AHEAD, self.check.trusted_from.get(queue, 0)):
            return False
        for _ in sound_units(self.check, queue, begin, queue.read(begin, _AT_ONCE)):
            pass
        return self.check.checked_end(queue, next_offset) > begin  # False behind damage: a pull will check again.
