"""Inflation of compressed bodies: all three formats, and refusals."""

import contextlib
import zlib

import pyarrow
import pyarrow.compute
import pytest

from twinlog.cluster.pipeline.tables.bodies import InflateLimits, inflate, inflated_batches
from twinlog.store.record.compression import CompressionError

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
    assert inflate(b"x\x9c", 0, InflateLimits()) == b"x\x9c"


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD, OLD])
@pytest.mark.parametrize("size", [0, 1, 1000, 300_000])
def test_inflated(sys_flag, size):
    body = (BODY * (size // len(BODY) + 1))[:size]
    assert inflate(packed(sys_flag, body), sys_flag, InflateLimits()) == body


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD])
def test_bounds(sys_flag):
    """A body may be as large as a bound, and not a byte larger."""
    small = packed(sys_flag)
    assert inflate(small, sys_flag, InflateLimits(size_max=len(BODY))) == BODY
    with pytest.raises(CompressionError, match=f"inflate to more than {len(BODY) - 1}: at most"):
        inflate(small, sys_flag, InflateLimits(size_max=len(BODY) - 1))
    with pytest.raises(CompressionError, match="2 times as many"):
        inflate(small, sys_flag, InflateLimits(ratio_max=2, free=0))
    assert inflate(small, sys_flag, InflateLimits(ratio_max=2)) == BODY


@pytest.mark.parametrize("sys_flag", [ZLIB, ZSTD])
def test_a_bomb_is_not_inflated(sys_flag):
    """64 MiB of zeros: no more than the bound is ever held."""
    bomb = packed(sys_flag, bytes(64 << 20))
    with pytest.raises(CompressionError):
        inflate(bomb, sys_flag, InflateLimits(size_max=1 << 20, ratio_max=1 << 20))


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD])
def test_damage_is_said(sys_flag):
    small = packed(sys_flag)
    for damaged in (*(small[:cut] for cut in range(len(small))), b"no such thing at all"):
        with pytest.raises(CompressionError, match="it is no"):
            inflate(damaged, sys_flag, InflateLimits())


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD])
def test_any_bytes_are_inflated_or_refused(sys_flag):
    small = packed(sys_flag)
    for at in range(len(small)):
        changed = bytearray(small)
        changed[at] ^= 1 << at % 8
        with contextlib.suppress(CompressionError):
            assert len(inflate(bytes(changed), sys_flag, InflateLimits(size_max=1 << 20))) <= 1 << 20


def test_many_are_handed_over_in_parts():
    """So that no more than a bounded number of inflated bytes is held at once."""
    rows = 20
    stored = [packed(ZSTD, bytes(4 << 20)), b"plain", zlib.compress(b"x")[:-1]] * rows
    flags = [ZSTD, 0, ZLIB] * rows
    batch = pyarrow.record_batch(
        {"sys_flag": pyarrow.array(flags, pyarrow.int32()), "body": stored, "n": range(3 * rows)}
    )
    parts = list(inflated_batches(batch, InflateLimits()))
    assert len(parts) > 2
    assert max(part.nbytes for part in parts) < 40 << 20
    assert [number for part in parts for number in part["n"].to_pylist()] == list(range(3 * rows))
    problems = [problem is not None for part in parts for problem in part["body_problem"].to_pylist()]
    assert problems == [False, False, True] * rows
    (part,) = inflated_batches(batch.filter(pyarrow.compute.equal(batch["sys_flag"], 0)), InflateLimits())
    assert part["body"].to_pylist() == [b"plain"] * rows
    assert part["body_problem"].null_count == rows


def test_an_unknown_compression():
    with pytest.raises(CompressionError, match="compression 5"):
        inflate(b"x", 0x501, InflateLimits())
