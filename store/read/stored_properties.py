"""The properties of a message as they lie in the log, for filters that ask for them."""

from struct import Struct

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.record.message import BORN_HOST_V6, MAGIC_V2, RECORD_V4, STORE_HOST_V6

_MAGIC_AT, _SYS_FLAG_AT = 4, 36
_I32, _I16 = Struct(">i"), Struct(">h")
_V6_MORE = 12  # Bytes that an address of that kind is longer.
_WHOLE_MAX = 16 << 10  # Up to this size a record is read in one go; of longer ones the body is passed over.


def stored_properties(log: CommitLog, phy_offset: int, size: int) -> bytes:
    """`name 0x01 value` pairs joined by 0x02, of the sound record at an offset; empty where none can be read.

    By system calls: a sector that cannot be read would end the process if it were looked at through the map.
    """
    file = log.files.file_at(phy_offset)
    if file is None or phy_offset + size > file.end:
        return b""
    position = phy_offset - file.start
    try:
        head = file.read(position, min(size, _WHOLE_MAX))
        if len(head) < RECORD_V4.size:
            return b""
        (sys_flag,) = _I32.unpack_from(head, _SYS_FLAG_AT)
        body_at = RECORD_V4.size
        if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
            body_at += _V6_MORE * (bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6))
        body_end = body_at + _I32.unpack_from(head, body_at - 4)[0]
        if not body_at <= body_end < size - 2:
            return b""
        tail = head[body_end:] if size <= _WHOLE_MAX else file.read(position + body_end, size - body_end)
    except OSError:
        return b""
    is_v2 = _I32.unpack_from(head, _MAGIC_AT)[0] == MAGIC_V2
    topic_end = 2 + _I16.unpack_from(tail)[0] if is_v2 else 1 + tail[0]
    if topic_end + 2 > len(tail):
        return b""
    return tail[topic_end + 2 : topic_end + 2 + _I16.unpack_from(tail, topic_end)[0]]
