"""Bodies that travel packed. Pure. Sources: CompressionType, MessageSysFlag, DefaultMQProducerImpl (RocketMQ 4.9.8).

sys_flag bit 0: packed; bits 8 to 10 tell how. Clients before 4.9.4 wrote zlib without saying so (0).
"""

import zlib
from importlib import import_module
from typing import Any

COMPRESSED, COMPRESSION_TYPE = 0x1, 0x700
UNNAMED, LZ4, ZSTD, ZLIB = 0x000, 0x100, 0x200, 0x300
COMPRESS_FROM = 4096  # Bytes of a body; RocketMQ's compressMsgBodyOverHowmuch.
LEVEL = 5
BODY_SIZE_MAX = 64 * 1024 * 1024  # Of an unpacked body: a packed one of 4 MiB may claim gigabytes.


class CompressionError(ValueError):
    """A body is not what its flags say, is longer than 64 MiB, or needs a library that is not installed."""


def compress(body: bytes, *, at_least: int | None = COMPRESS_FROM) -> tuple[bytes, int]:
    """The body to send and the bits for its sys_flag; unchanged, 0 when it is short or does not shrink."""
    if at_least is None or len(body) < at_least:
        return body, 0
    packed = zlib.compress(body, LEVEL)
    return (packed, COMPRESSED | ZLIB) if len(packed) < len(body) else (body, 0)


def decompress(body: bytes, sys_flag: int) -> bytes:
    """The body as its producer gave it. Raises CompressionError."""
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & COMPRESSION_TYPE
    try:
        unpacked = _unpack(kind, body)
    except CompressionError:
        raise
    except Exception as error:  # Each library has errors of its own.
        raise CompressionError(f"a packed body cannot be read: {error}") from error
    if len(unpacked) > BODY_SIZE_MAX:
        raise CompressionError(f"a packed body is longer than {BODY_SIZE_MAX} bytes")
    return unpacked


def _unpack(kind: int, body: bytes) -> bytes:
    if kind in (UNNAMED, ZLIB):
        reader = zlib.decompressobj()
        unpacked = reader.decompress(body, BODY_SIZE_MAX + 1)
        if not reader.eof and len(unpacked) <= BODY_SIZE_MAX:
            raise CompressionError("a packed body ends early")
        return unpacked
    if kind == LZ4:
        return bytes(_library("lz4.frame").LZ4FrameDecompressor().decompress(body, max_length=BODY_SIZE_MAX + 1))
    if kind == ZSTD:
        with _library("zstandard").ZstdDecompressor().stream_reader(body) as stream:
            return bytes(stream.read(BODY_SIZE_MAX + 1))
    raise CompressionError(f"compression type {kind >> 8} is unknown")


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise CompressionError(f"the body is packed with {package}; to read it: pip install {package}") from error
