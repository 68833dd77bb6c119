"""Where frames of LZ4 and zstd end: what inflates them does not say that one is cut. Bytes in, places out; no I/O.

Only the structure is looked at: headers and the sizes of blocks. Sources: LZ4 Frame Format 1.6.4; RFC 8878, section 3.1.1.
"""

LZ4_MAGIC, ZSTD_MAGIC = 0x184D2204, 0xFD2FB528


def is_whole_lz4(data: bytes) -> bool:
    """Whether a whole frame begins here: magic, flags, block size, content size?, dictionary?, checksum, blocks, 0, checksum?"""
    if len(data) < 7 or _number(data, 0, 4) != LZ4_MAGIC:
        return False
    flags = data[4]
    at = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    while at + 4 <= len(data):
        size = _number(data, at, 4) & 0x7FFFFFFF
        at += 4
        if size == 0:
            return at + (4 if flags & 0x04 else 0) <= len(data)
        at += size + (4 if flags & 0x10 else 0)
    return False


def is_whole_zstd(data: bytes) -> bool:
    """Whether a whole frame begins here: magic, descriptor, window?, dictionary?, content size?, blocks, checksum?"""
    if len(data) < 6 or _number(data, 0, 4) != ZSTD_MAGIC:
        return False
    descriptor = data[4]
    is_single = bool(descriptor & 0x20)
    at = 5 + (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 0x3]
    at += (1 if is_single else 0, 2, 4, 8)[descriptor >> 6]
    while at + 3 <= len(data):
        header = _number(data, at, 3)
        is_run = header >> 1 & 0x3 == 1  # One byte stands for all of the block.
        at += 3 + (1 if is_run else header >> 3)
        if header & 1:
            return at + (4 if descriptor & 0x04 else 0) <= len(data)
    return False


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")
