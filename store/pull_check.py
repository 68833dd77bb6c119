"""Checks the records of a pull before they are served, many at once: what lies close together is read from the disk in one go.

The same rules as ReadCheck.unit(), to which everything goes that is not plain and sound at a glance.
"""

import os
from collections.abc import Iterator

from store.consume_queue import UNIT, ConsumeQueue
from store.crc import crc32
from store.message import BORN_HOST_V6, FIXED_SIZE, MAGIC_V1, RECORD_V4, STORE_HOST_V6
from store.read_check import ReadCheck
from store.record_scan import stored_tags_code

BROKEN = -1
_AT_ONCE = 32  # Units; a pull seldom asks for more.
_SPAN_MAX = 256 << 10  # Bytes; of a longer span most would be read in vain.
_AHEAD_SHIFT, _AHEAD_PIECES = 20, 4  # The disk is asked for the next pieces of 1 MiB, once for each.
_ANY_V6 = BORN_HOST_V6 | STORE_HOST_V6
_BODY_AT = RECORD_V4.size


def sound_units(
    check: ReadCheck, queue: ConsumeQueue, queue_offset: int, units: bytes
) -> Iterator[tuple[int, int, int]]:
    """Physical offset, size and tags code of each unit from `queue_offset` on, put right where they are wrong.

    Size BROKEN: it must not be served, which is told then.
    """
    unpack, damaged = RECORD_V4.unpack_from, check.known.damaged
    queue_id, raw = queue.queue_id, queue.topic.encode()
    topic = bytes((len(raw),)) + raw  # As it is stored.
    topic_size = len(topic)
    for begin in range(0, len(units), _AT_ONCE * UNIT.size):
        group = units[begin : begin + _AT_ONCE * UNIT.size]
        start, data = _read_span(check, group)
        data_size = len(data)
        for phy_offset, size, code in UNIT.iter_unpack(group):
            at = phy_offset - start
            end = at + size
            if at >= 0 and size >= FIXED_SIZE and end <= data_size and not damaged:
                own_size, magic, crc, says_id, _, says_queue, says, sys_flag, _, _, _, _, _, _, body_size = unpack(
                    data, at
                )
                body_at = at + _BODY_AT
                topic_at = body_at + body_size
                properties_at = topic_at + topic_size + 2
                if (
                    own_size == size
                    and magic == MAGIC_V1
                    and says == phy_offset
                    and says_queue == queue_offset
                    and says_id == queue_id
                    and not sys_flag & _ANY_V6
                    and body_size >= 0
                    and properties_at <= end
                    and properties_at + (data[properties_at - 2] << 8 | data[properties_at - 1]) == end
                    and data[topic_at : properties_at - 2] == topic
                    and (not body_size or crc32(data[body_at:topic_at]) & 0x7FFFFFFF == crc)
                    and code == stored_tags_code(data, properties_at, end)
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
