"""Decompression of message bodies: zlib, LZ4 frames or zstd, within a bound. Pure.

The broker stores a body as it was sent; bit 0 of the record's sys flag marks a compressed one, and bits 8 to 10 name the kind.
Everything that shows or passes on a body uses decompress(). Sources: MessageSysFlag, CompressionType, Lz4Compressor; RocketMQ
5.3.3.
"""

import sys
import zlib
from importlib import import_module
from typing import Any

COMPRESSED, COMPRESSION_TYPE = 0x1, 0x700
LZ4, ZSTD, ZLIB = 0x100, 0x200, 0x300
UNNAMED = 0x000  # Clients before 4.9.4 wrote zlib without saying so.
_NAMES = {UNNAMED: "zlib", LZ4: "lz4", ZSTD: "zstd", ZLIB: "zlib"}
_PIECE = 1 << 20  # Bytes decompressed at once, so that a bound is noticed before much memory is taken.


class CompressionError(ValueError):
    """A body cannot be decompressed: it differs from its sys flag, is cut, or is of an unknown kind."""


class TooLongError(CompressionError):
    """A body decompresses to more bytes than the caller takes."""


def compression_of(sys_flag: int) -> str | None:
    """The compression of a body: zlib, lz4, zstd or unknown; None when it is not compressed."""
    return _NAMES.get(sys_flag & COMPRESSION_TYPE, "unknown") if sys_flag & COMPRESSED else None


def decompress(body: bytes, sys_flag: int, *, size_max: int) -> bytes:
    """The body as its producer gave it.

    Raises CompressionError, and TooLongError when it has more than `size_max` bytes: a few bytes may decompress to any number.
    Not many more than `size_max` are ever held.
    """
    kind = compression_of(sys_flag)
    if kind is None:
        return body
    if kind == "unknown":
        raise CompressionError(f"compression {(sys_flag & COMPRESSION_TYPE) >> 8} is not known here")
    try:
        return _zlib(body, size_max) if kind == "zlib" else _frame(kind, body, size_max)
    except CompressionError:
        raise
    except Exception as error:  # Each library has errors of its own; that of LZ4 raises plain RuntimeError.
        raise CompressionError(f"it is no {kind}: {error}") from error


def _zlib(body: bytes, size_max: int) -> bytes:
    # Bytes behind the end are ignored, as by Java's InflaterInputStream.
    reader = zlib.decompressobj()
    found = reader.decompress(body, size_max + 1)
    if len(found) > size_max:
        raise _too_long(body, size_max)
    if not reader.eof:
        raise CompressionError("it is no zlib: it ends too early")
    return found


def _frame(kind: str, body: bytes, size_max: int) -> bytes:
    """The content of the body's single frame: clients write no second one. A chain of tiny frames would take hours to read."""
    reader = _frame_reader(kind)
    piece = reader.decompress(body, _PIECE)
    pieces, size = [piece], len(piece)
    while not reader.eof and size <= size_max:
        if not piece:
            raise CompressionError(f"it is no {kind}: it ends too early")
        piece = reader.decompress(b"", _PIECE)
        pieces.append(piece)
        size += len(piece)
    if size > size_max:
        raise _too_long(body, size_max)
    if reader.unused_data:
        raise CompressionError(f"it is no {kind}: {len(reader.unused_data)} bytes follow its end")
    return b"".join(pieces)


def _frame_reader(kind: str) -> Any:
    """A decompressor with the interface of those of bz2 and lzma. Its library is imported with the first such body."""
    return import_module("lz4.frame").LZ4FrameDecompressor() if kind == "lz4" else zstd_library().ZstdDecompressor()


def zstd_library() -> Any:
    """The module of the standard library (Python 3.14 or later), or the package that brings the same to older versions."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def _too_long(body: bytes, size_max: int) -> TooLongError:
    return TooLongError(f"{len(body)} bytes are longer than {size_max} when decompressed: that many are taken at most")
