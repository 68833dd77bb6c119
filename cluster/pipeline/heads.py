"""Records one after the other by what their heads say: size, magic, and the own place. Bodies are not looked at. No I/O."""

from typing import NamedTuple

import numpy as np

from store.columns import Ints, rows
from store.head_walk import walk_heads
from store.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN, SIZE_AND_MAGIC

_PHY_OFFSET_AT = 28
HEAD_SIZE = _PHY_OFFSET_AT + 8


class Heads(NamedTuple):
    """Positions in the data: where records begin, and where that ends, which is behind the data for a record that goes on there.

    `problem`: what lies there is neither record nor blank. None: less than HEAD_SIZE bytes are left, or what is there goes on.
    `is_blank`: the last thing was one.
    """

    starts: Ints
    end: int
    problem: str | None = None
    is_blank: bool = False


def read_heads(data: memoryview, phy_offset: int, file_size: int) -> Heads:
    """Walk from a record's start, the first byte of `data`, which lies at `phy_offset` of a log with files of that size."""
    starts, at = walk_heads(data, phy_offset, file_size)
    if len(starts):
        said = rows(data, 8, starts + _PHY_OFFSET_AT).view(">i8").ravel()
        misplaced = said != starts + phy_offset
        if misplaced.any():
            first = int(misplaced.argmax())
            return Heads(starts[:first], int(starts[first]), f"a record that says it lies at {int(said[first])}")
    if len(data) - at < SIZE_AND_MAGIC.size:
        return Heads(starts, at)
    size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
    room = file_size - (phy_offset + at) % file_size
    if magic == MAGIC_BLANK:
        problem = None if size == room else f"a blank of {size} bytes where the file has {room} left"
        return Heads(starts, at if problem else at + room, problem, problem is None)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return Heads(starts, at, f"magic {magic & 0xFFFFFFFF:#010x} is no message's")
    if not RECORD_SIZE_MIN <= size <= room:
        return Heads(starts, at, f"a record of {size} bytes where the file has {room} left")
    if len(data) - at < HEAD_SIZE:
        return Heads(starts, at)
    says = int.from_bytes(data[at + _PHY_OFFSET_AT : at + HEAD_SIZE], signed=True)
    if says != phy_offset + at:
        return Heads(starts, at, f"a record that says it lies at {says}")
    return Heads(np.append(starts, at), at + size)
