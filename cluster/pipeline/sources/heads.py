"""Records one after the other by what their heads say: size, magic, and the own place. Bodies are not looked at. No I/O.

As store/record/head_walk.py, but for records that go on behind the data, and checked against their places.
"""

from typing import NamedTuple

import numpy as np

from twinlog.store.record.columns import Ints, rows
from twinlog.store.record.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN, SIZE_AND_MAGIC

_PHY_OFFSET_AT = 28
HEAD_SIZE = _PHY_OFFSET_AT + 8
_LOOK = 64  # Records, then it is decided how to go on.
_SMALL = 400  # Bytes of a record: so many magics are quicker found together.
_MUCH = 64 << 10
_MAGIC_WORD = np.uint32(MAGIC_V1 & 0xFFFFFFFF).byteswap()


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
    found, at, is_blank = list[Ints](), 0, False
    while True:
        file_end = at + file_size - (phy_offset + at) % file_size
        starts, at = _walk_file(data, at, min(len(data), file_end), file_end)
        found.append(starts)
        is_blank = len(data) - at >= 8 and at < file_end and _says(data, at) == (file_end - at, MAGIC_BLANK)
        at = file_end if is_blank else at
        if at != file_end or at >= len(data):
            break
    starts = np.concatenate(found)
    if len(starts) and len(data) - starts[-1] < HEAD_SIZE:
        starts, at = starts[:-1], int(starts[-1])
    if len(starts):
        said = rows(data, 8, starts + _PHY_OFFSET_AT).view(">i8").ravel()
        misplaced = said != starts + phy_offset
        if misplaced.any():
            first = int(misplaced.argmax())
            return Heads(starts[:first], int(starts[first]), f"a record that says it lies at {int(said[first])}")
    if is_blank or len(data) - at < SIZE_AND_MAGIC.size:
        return Heads(starts, at, None, is_blank)
    return Heads(starts, at, _problem(*_says(data, at), file_size - (phy_offset + at) % file_size))


def _problem(size: int, magic: int, room: int) -> str | None:
    if magic == MAGIC_BLANK:
        return f"a blank of {size} bytes where the file has {room} left"
    if magic not in (MAGIC_V1, MAGIC_V2):
        return f"magic {magic & 0xFFFFFFFF:#010x} is no message's"
    if not RECORD_SIZE_MIN <= size <= room:
        return f"a record of {size} bytes where the file has {room} left"
    return None  # There is not enough of it.


def _says(data: memoryview, at: int) -> tuple[int, int]:
    size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
    return size, magic


def _walk_file(data: memoryview, at: int, limit: int, file_end: int) -> tuple[Ints, int]:
    """Where records begin before `limit`, and where that ends. The last one may go on behind it, but not behind the file."""
    starts: list[int] = []
    begin, at = at, _walk_some(data, at, limit, starts, _LOOK)
    together = np.zeros(0, np.int64)
    if len(starts) == _LOOK:
        if at - begin < _SMALL * _LOOK and limit - at > _MUCH:
            together, at = _walk_together(data, at, limit)
        first, starts = np.array(starts, np.int64), []
        together = np.append(first, together)
        at = _walk_some(data, at, limit, starts, limit)
    found = np.append(together, np.array(starts, np.int64))
    return (found[:-1], int(found[-1])) if at > file_end else (found, at)


def _walk_some(data: memoryview, at: int, limit: int, starts: list[int], count_max: int) -> int:
    """Append where records begin, from one to the next; where that ended."""
    unpack, append = SIZE_AND_MAGIC.unpack_from, starts.append
    last = limit - SIZE_AND_MAGIC.size
    for _ in range(count_max):
        if at > last:
            break
        size, magic = unpack(data, at)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_SIZE_MIN:
            break
        append(at)
        at += size
    return at


def _walk_together(data: memoryview, at: int, limit: int) -> tuple[Ints, int]:
    """The same, from all places that have the magic of version 1: as far as each ends where the next one begins."""
    found = []
    for shift in range(4):
        begin = at + shift
        words = np.frombuffer(data, np.uint32, (limit - begin) // 4, begin)
        found.append(np.flatnonzero(words == _MAGIC_WORD) * 4 + (begin - SIZE_AND_MAGIC.size // 2))
    starts = np.sort(np.concatenate(found))
    if not len(starts) or starts[0] != at:
        return np.zeros(0, np.int64), at
    ends = starts + rows(data, 4, starts).view(">i4").ravel()
    breaks = np.flatnonzero((ends[:-1] != starts[1:]) | (ends[:-1] - starts[:-1] < RECORD_SIZE_MIN))
    count = int(breaks[0]) if len(breaks) else len(starts) - 1
    return starts[:count], int(starts[count])
