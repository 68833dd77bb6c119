"""Whether the units of a consume queue can be true: at the speed of the struct module, since millions are looked at. No I/O.

A unit is i64 physical offset | i32 size | i64 tags code. Units of one queue lie one behind the other in the log; a blank
(0, 0x7FFFFFFF, 0) stands for a message that the log does not have.
"""

from itertools import islice
from operator import add, le
from struct import Struct

from twinlog.store.config import CONSUME_QUEUE_UNIT

UNIT = Struct(">qiq")
assert UNIT.size == CONSUME_QUEUE_UNIT
BLANK_SIZE = 0x7FFFFFFF  # The size in a blank: no record is as large as this.
BLANK = UNIT.pack(0, BLANK_SIZE, 0)
_RUNS = tuple((count, Struct(">" + "qi8x" * count)) for count in (4096, 256, 16))


def sound_units(units: bytes, behind: int, end: int) -> tuple[int, int]:
    """How many units from the first on can be true, and where in the log the last message among them ends.

    `behind` is the end of the message before, `end` that of the log.
    """
    count, at = 0, 0
    for run, struct in _RUNS:
        while len(units) - at >= struct.size:
            fields = struct.unpack_from(units, at)
            phy_offsets, sizes = fields[::2], fields[1::2]
            ends = tuple(map(add, phy_offsets, sizes))
            if (
                min(sizes) <= 0
                or phy_offsets[0] < behind
                or ends[-1] > end
                or not all(map(le, ends, islice(phy_offsets, 1, None)))
            ):
                break
            behind = ends[-1]
            at += struct.size
            count += run
    for phy_offset, size, _ in UNIT.iter_unpack(memoryview(units)[at : len(units) - len(units) % CONSUME_QUEUE_UNIT]):
        if size == BLANK_SIZE and phy_offset == 0:
            count += 1
            continue
        if size <= 0 or phy_offset < behind or phy_offset + size > end:
            break
        behind = phy_offset + size
        count += 1
    return count, behind
