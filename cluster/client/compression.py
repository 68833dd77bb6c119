"""Bodies that travel packed. Pure. Sources: CompressionType, MessageSysFlag, DefaultMQProducerImpl (RocketMQ 4.9.8).

sys_flag bit 0: packed; bits 8 to 10 tell how. Clients before 4.9.4 wrote zlib without saying so (0).
"""

import zlib

from twinlog.store.record import compression
from twinlog.store.record.compression import COMPRESSED, ZLIB, CompressionError

__all__ = ["COMPRESSED", "ZLIB", "CompressionError", "compress", "decompress"]

COMPRESS_FROM = 4096  # Bytes of a body; RocketMQ's compressMsgBodyOverHowmuch.
LEVEL = 5
BODY_SIZE_MAX = 64 * 1024 * 1024  # Of an unpacked body: a packed one of 4 MiB may claim gigabytes.


def compress(body: bytes, *, at_least: int | None = COMPRESS_FROM) -> tuple[bytes, int]:
    """The body to send and the bits for its sys_flag; unchanged, 0 when it is short or does not shrink."""
    if at_least is None or len(body) < at_least:
        return body, 0
    packed = zlib.compress(body, LEVEL)
    return (packed, COMPRESSED | ZLIB) if len(packed) < len(body) else (body, 0)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as its producer gave it. Raises CompressionError, also for one that is longer than 64 MiB."""
    return compression.decompress(body, sys_flag, size_max=BODY_SIZE_MAX)
