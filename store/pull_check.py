"""Checks the records of a pull before they are served, many at once: what lies close together is read from the disk in one go.

The same rules as ReadCheck.unit(), to which everything goes that is not plain and sound at a glance.
"""

import os
from collections.abc import Iterator

from store.consume_queue import UNIT, ConsumeQueue
from store.message import FIXED_SIZE
from store.read_check import ReadCheck, plain_tags_code

BROKEN = -1
_AT_ONCE = 32  # Units; a pull seldom asks for more.
_SPAN_MAX = 256 << 10  # Bytes; of a longer span most would be read in vain.
_AHEAD_SHIFT, _AHEAD_PIECES = 20, 4  # The disk is asked for the next pieces of 1 MiB, once for each.


def sound_units(
    check: ReadCheck, queue: ConsumeQueue, queue_offset: int, units: bytes
) -> Iterator[tuple[int, int, int]]:
    """Physical offset, size and tags code of each unit from `queue_offset` on, put right where they are wrong.

    Size BROKEN: it must not be served, which is told then.
    """
    damaged, queue_id, topic = check.known.damaged, queue.queue_id, check.stored_topic(queue.topic)
    for begin in range(0, len(units), _AT_ONCE * UNIT.size):
        group = units[begin : begin + _AT_ONCE * UNIT.size]
        start, data = _read_span(check, group)
        data_size = len(data)
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
            yield (phy_offset, *found) if found is not None else (phy_offset, BROKEN, code)
            queue_offset += 1


def _read_span(check: ReadCheck, units: bytes) -> tuple[int, bytes]:
    """Where the records of some units lie, and a copy of the log from there on; of no bytes where they are far apart.

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
