"""Bodies that clients compressed: all three ways, and what is refused."""

import zlib

import pyarrow
import pytest

from cluster.pipeline.bodies import BodyError, Bounds, inflate

ZLIB, LZ4, ZSTD, OLD = 0x301, 0x101, 0x201, 0x001
BODY = b'{"id": 1, "name": "one"}' * 40


def packed(sys_flag: int, body: bytes = BODY) -> bytes:
    if sys_flag in (ZLIB, OLD):
        return zlib.compress(body, 5)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "lz4" if sys_flag == LZ4 else "zstd") as stream:
        stream.write(body)
    return sink.getvalue().to_pybytes()


def test_a_plain_body_is_what_it_is():
    assert inflate(b"x\x9c", 0, Bounds()) == b"x\x9c"


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD, OLD])
@pytest.mark.parametrize("size", [0, 1, 1000, 300_000])
def test_inflated(sys_flag, size):
    body = (BODY * (size // len(BODY) + 1))[:size]
    assert inflate(packed(sys_flag, body), sys_flag, Bounds()) == body


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD])
def test_bounds(sys_flag):
    """A body may be as large as a bound, and not a byte larger."""
    small = packed(sys_flag)
    assert inflate(small, sys_flag, Bounds(size_max=len(BODY))) == BODY
    with pytest.raises(BodyError, match=f"inflate to more than {len(BODY) - 1}: at most"):
        inflate(small, sys_flag, Bounds(size_max=len(BODY) - 1))
    with pytest.raises(BodyError, match="2 times as many"):
        inflate(small, sys_flag, Bounds(ratio_max=2))


@pytest.mark.parametrize("sys_flag", [ZLIB, ZSTD])
def test_a_bomb_is_not_inflated(sys_flag):
    """64 MiB of zeros: no more than the bound is ever held."""
    bomb = packed(sys_flag, bytes(64 << 20))
    with pytest.raises(BodyError):
        inflate(bomb, sys_flag, Bounds(size_max=1 << 20, ratio_max=1 << 20))


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD])
def test_damage_is_said(sys_flag):
    small = packed(sys_flag)
    for damaged in (small[:-8], small[: len(small) // 2], b"no such thing", b""):
        with pytest.raises(BodyError, match="it is no"):
            inflate(damaged, sys_flag, Bounds())


def test_an_unknown_compression():
    with pytest.raises(BodyError, match="compression 5"):
        inflate(b"x", 0x501, Bounds())
