"""Finds where records begin by their heads alone: size, magic and own offset. Bodies are not read. No I/O."""

from typing import NamedTuple

import numpy as np

from twinlog.store.record.columns import Ints, rows
from twinlog.store.record.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN, SIZE_AND_MAGIC

_PHY_OFFSET_AT = 28
HEAD_SIZE = _PHY_OFFSET_AT + 8
_LOOK = 64  # Records; then the faster way for the rest is chosen.
_RUN_MIN = 16  # Records of one size in a row, from which on a run is looked for.
_SMALL = 400  # Bytes of a record: so many magics are quicker found together.
_MUCH = 64 << 10
_MAGIC_WORD = np.uint32(MAGIC_V1 & 0xFFFFFFFF).byteswap()


class Heads(NamedTuple):
    """Positions of records in the data, and of the end of the last one, which may lie behind the data.

    `problem`: why the bytes there are neither record nor blank. None: less than HEAD_SIZE bytes are left, or the data ends within
    a record. `blank`: position of a blank that came last.
    """

    starts: Ints
    end: int
    problem: str | None = None
    blank: int | None = None


def read_heads(data: memoryview, phy_offset: int, file_size: int) -> Heads:
    """Walk from the start of a record, the first byte of `data`, which lies at `phy_offset` of a log with files of that size."""
    found, at = list[Ints](), 0
    while True:
        file_end = at + file_size - (phy_offset + at) % file_size
        starts, at = _walk_file(data, at, min(len(data), file_end), file_end)
        found.append(starts)
        is_blank = len(data) - at >= 8 and at < file_end and _says(data, at) == (file_end - at, MAGIC_BLANK)
        blank, at = (at, file_end) if is_blank else (None, at)
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
    if blank is not None or len(data) - at < SIZE_AND_MAGIC.size:
        return Heads(starts, at, None, blank)
    return Heads(starts, at, _problem(*_says(data, at), file_size - (phy_offset + at) % file_size))


def whole_records(data: memoryview, phy_offset: int, file_size: int) -> tuple[Ints, int]:
    """Positions of the records that lie in `data` as a whole, and the end of these and of whole blanks behind them."""
    heads = read_heads(data, phy_offset, file_size)
    if heads.end <= len(data):
        return heads.starts, heads.end
    if heads.blank is not None:  # It goes on behind the data, or the last record does.
        return heads.starts, heads.blank
    return heads.starts[:-1], int(heads.starts[-1])


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
    """The starts of records before `limit`, and the end of the last one, which may be behind `limit`, but not behind the file."""
    begin = at
    found, at = _walk_some(data, at, limit, _LOOK)
    if len(found) >= _LOOK:
        together = np.zeros(0, np.int64)
        if at - begin < _SMALL * len(found) and limit - at > _MUCH:
            together, at = _walk_together(data, at, limit)
        rest, at = _walk_some(data, at, limit, limit)
        found = np.concatenate([found, together, rest])
    return (found[:-1], int(found[-1])) if at > file_end else (found, at)


def _walk_some(data: memoryview, at: int, limit: int, count_max: int) -> tuple[Ints, int]:
    """The starts of at least `count_max` records in a row, if there are so many, and the end of the last one."""
    unpack, starts, pieces = SIZE_AND_MAGIC.unpack_from, list[int](), list[Ints]()
    append = starts.append
    last, same, size_before = limit - SIZE_AND_MAGIC.size, 0, 0
    for _ in range(count_max):
        if at > last:
            break
        size, magic = unpack(data, at)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_SIZE_MIN:
            break
        append(at)
        at += size
        same = same + 1 if size == size_before else 0
        size_before = size
        if same == _RUN_MIN:
            same = 0
            count = _run(data, at, size, limit)
            pieces += [np.array(starts, np.int64), np.arange(at, at + count * size, size)]
            starts.clear()
            at += count * size
    return np.concatenate([*pieces, np.array(starts, np.int64)]), at


def _run(data: memoryview, at: int, size: int, end: int) -> int:
    """The number of whole records of version 1 and of this size in a row from `at` on."""
    count = (end - at) // size
    if count <= 0:
        return 0
    heads = np.ndarray((count,), np.dtype(">u8"), data, at, (size,))
    differ = heads != np.uint64(size << 32 | MAGIC_V1 & 0xFFFFFFFF)
    return int(differ.argmax()) if differ.any() else count


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
