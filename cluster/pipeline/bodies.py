"""Bodies as producers gave them: what a client compressed is inflated, within bounds. No I/O.

The record's sys flag says that a body is compressed, and how: zlib, LZ4 frames or zstd. A few bytes may inflate to any number, so
two bounds hold at once, one of size and one of the ratio. Source: MessageSysFlag, CompressionType; RocketMQ 5.3.3.
"""

import zlib
from collections.abc import Iterator

import pyarrow
from attrs import frozen

COMPRESSED, COMPRESSION_MASK = 0x1, 0x700
_ZLIB, _LZ4, _ZSTD = "zlib", "lz4", "zstd"
_COMPRESSIONS = {0: _ZLIB, 1: _LZ4, 2: _ZSTD, 3: _ZLIB}  # 0: of clients that know no other.
_PIECE = 64 << 10


@frozen(kw_only=True)
class Bounds:
    """Of what a body may inflate to: bytes, and how many times as many as are stored."""

    size_max: int = 64 << 20
    ratio_max: int = 1000  # zlib cannot exceed 1032.

    def limit(self, stored: int) -> int:
        """In bytes, for a body of which so many are stored."""
        return min(self.size_max, stored * self.ratio_max)


class BodyError(Exception):
    """The body cannot be inflated, or should not be. Keep it as it is stored; the message says why."""


def is_compressed(sys_flag: int) -> bool:
    """Whether a client compressed the body."""
    return bool(sys_flag & COMPRESSED)


def inflate(body: bytes, sys_flag: int, bounds: Bounds) -> bytes:
    """The body of a record as its producer gave it. Raises BodyError."""
    if not is_compressed(sys_flag):
        return body
    number = (sys_flag & COMPRESSION_MASK) >> 8
    kind = _COMPRESSIONS.get(number)
    if kind is None:
        raise BodyError(f"compression {number} is not known here")
    pieces, size, limit = [], 0, bounds.limit(len(body))
    try:
        for piece in _zlib_pieces(body) if kind == _ZLIB else _arrow_pieces(body, kind):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise BodyError(
                    f"{len(body)} bytes inflate to more than {limit}: at most {bounds.size_max} bytes and "
                    f"{bounds.ratio_max} times as many are taken"
                )
    except (zlib.error, OSError, pyarrow.ArrowException) as error:
        raise BodyError(f"it is no {kind}: {error}") from error
    return b"".join(pieces)


def _zlib_pieces(body: bytes) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    while not inflater.eof:
        piece = inflater.decompress(body, _PIECE)
        body = inflater.unconsumed_tail
        if not piece and not body and not inflater.eof:
            raise zlib.error("it ends too early")
        yield piece


def _arrow_pieces(body: bytes, kind: str) -> Iterator[bytes]:
    with pyarrow.input_stream(pyarrow.py_buffer(body), compression=kind) as stream:
        while piece := stream.read(_PIECE):
            yield piece
