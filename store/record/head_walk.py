"""Where records begin in a stretch of log, going by what each says of its size. No I/O."""

import numpy as np

from twinlog.store.record.columns import Ints
from twinlog.store.record.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN, SIZE_AND_MAGIC

_MAGICS = (MAGIC_V1, MAGIC_V2)
_RUN_MIN = 16  # Records of one size in a row.


def walk_heads(data: memoryview, phy_offset: int, file_size: int) -> tuple[Ints, int]:
    """Where whole records begin, going by what each says of its size, and where that ends."""
    unpack, starts, pieces = SIZE_AND_MAGIC.unpack_from, list[int](), list[Ints]()
    append = starts.append
    at, end, same, last = 0, len(data), 0, 0
    file_end = file_size - phy_offset % file_size
    while end - at >= SIZE_AND_MAGIC.size:
        size, magic = unpack(data, at)
        if magic in _MAGICS and size >= RECORD_SIZE_MIN and at + size <= min(end, file_end):
            append(at)
            at += size
            same = same + 1 if size == last else 0
            last = size
            if same == _RUN_MIN:
                same = 0
                count = _run(data, at, size, min(end, file_end))
                pieces += [np.array(starts, np.int64), np.arange(at, at + count * size, size)]
                starts.clear()
                at += count * size
        elif magic == MAGIC_BLANK and size == file_end - at and file_end <= end:
            at = file_end
        else:
            break
        if at == file_end:
            file_end += file_size
    return np.concatenate([*pieces, np.array(starts, np.int64)]), at


def _run(data: memoryview, at: int, size: int, end: int) -> int:
    """How many whole records of version 1 and of this size follow each other from `at` on."""
    count = (end - at) // size
    if not count:
        return 0
    heads = np.ndarray((count,), np.dtype(">u8"), data, at, (size,))
    differ = heads != np.uint64(size << 32 | MAGIC_V1 & 0xFFFFFFFF)
    return int(differ.argmax()) if differ.any() else count
