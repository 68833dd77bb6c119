"""Bodies that clients compressed: each way, cut, changed, too long, and with something behind."""

import zlib

import lz4.frame
import pytest

from twinlog.store.record.compression import CompressionError, TooLongError, compression_of, decompress, zstd_library

LZ4, ZSTD, ZLIB, OLD = 0x101, 0x201, 0x301, 0x001
COMPRESS = {LZ4: lz4.frame.compress, ZSTD: zstd_library().compress, ZLIB: zlib.compress, OLD: zlib.compress}
BODY = b'{"id": 1, "name": "one"}' * 400


@pytest.mark.parametrize("sys_flag", COMPRESS)
@pytest.mark.parametrize("size", [0, 1, 1000, 3 << 20])
def test_a_body_is_what_its_producer_gave(sys_flag, size):
    body = (BODY * (size // len(BODY) + 1))[:size]
    assert decompress(COMPRESS[sys_flag](body), sys_flag, size_max=4 << 20) == body


def test_a_body_that_is_not_compressed_is_the_same_object():
    assert decompress(BODY, 0x300, size_max=1) is BODY


def test_lz4_of_linked_blocks():
    body = bytes(range(256)) * 2000
    packed = lz4.frame.compress(body, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True, content_checksum=True)
    assert decompress(packed, LZ4, size_max=1 << 20) == body


@pytest.mark.parametrize("sys_flag", COMPRESS)
def test_a_body_may_be_as_long_as_the_bound(sys_flag):
    packed = COMPRESS[sys_flag](BODY)
    assert decompress(packed, sys_flag, size_max=len(BODY)) == BODY
    with pytest.raises(TooLongError, match=f"longer than {len(BODY) - 1} when"):
        decompress(packed, sys_flag, size_max=len(BODY) - 1)


@pytest.mark.parametrize("sys_flag", COMPRESS)
def test_each_cut_is_noticed(sys_flag):
    packed = COMPRESS[sys_flag](BODY)
    for cut in range(len(packed)):
        with pytest.raises(CompressionError, match=r"it is no (lz4|zstd|zlib): "):
            decompress(packed[:cut], sys_flag, size_max=1 << 20)


@pytest.mark.parametrize("sys_flag", [LZ4, ZSTD])
def test_one_frame_is_read(sys_flag):
    """Thousands of frames in a few bytes would be read for hours."""
    packed = COMPRESS[sys_flag](BODY)
    with pytest.raises(CompressionError, match=f"{len(packed)} bytes follow its end"):
        decompress(packed * 2, sys_flag, size_max=1 << 20)


def test_names():
    assert [compression_of(flag) for flag in (0, 0x300, OLD, LZ4, ZSTD, ZLIB, 0x401)] == [
        None,
        None,
        "zlib",
        "lz4",
        "zstd",
        "zlib",
        "unknown",
    ]
    with pytest.raises(CompressionError, match="compression 4 is not known here"):
        decompress(BODY, 0x401, size_max=1 << 20)
