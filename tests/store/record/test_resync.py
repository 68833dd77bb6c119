"""Behind damage of any kind the next sound record is found, and nothing that only looks like one."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store import golden
from tests.store.records import messages
from twinlog.store.record.message import MAGIC_BLANK, MAGIC_V2, SIZE_AND_MAGIC, Message, body_crc, encode_message
from twinlog.store.record.resync import next_record

FILE_SIZE = 4096


def record(phy_offset, body=b"hello", **fields):
    message = Message("T", 0, body, phy_offset=phy_offset, store_timestamp=1, body_crc=body_crc(body))
    return encode_message(attrs.evolve(message, **fields))


def log(start, end, body=b"hello"):
    """The bytes of a log, and where its records lie."""
    data, offsets = bytearray(), []
    while start + len(data) < end:
        at = start + len(data)
        room = FILE_SIZE - at % FILE_SIZE
        piece = record(at, body)
        if len(piece) + 8 > room:
            data += SIZE_AND_MAGIC.pack(room, MAGIC_BLANK).ljust(room, b"\0")
        else:
            data += piece
            offsets.append(at)
    return bytes(data), offsets


DATA, OFFSETS = log(FILE_SIZE * 7, FILE_SIZE * 10)


def reader(data, start):
    def read(offset, size):
        assert offset // FILE_SIZE == (offset + size - 1) // FILE_SIZE, "never beyond one file"
        return data[offset - start :][:size]

    return read


def find_record(data, at, start, file_size):
    """The position of the next record in `data`, whose first byte lies at `start`; -1 for none."""

    def read(offset, size):
        return data[offset - start :][:size]

    found = next_record(read, start + at, start + len(data), file_size)
    return -1 if found is None else found - start


@given(at=st.integers(0, len(DATA)), window=st.integers(37, 5000))
def test_the_next_record_is_found_from_anywhere(at, window):
    """Across file ends, and wherever the windows are cut."""
    start = FILE_SIZE * 7
    expected = next((offset for offset in OFFSETS if offset >= start + at), None)
    read = reader(DATA, start)
    assert next_record(read, start + at, start + len(DATA), FILE_SIZE, window=window) == expected


@given(message=messages(), garbage=st.binary(max_size=60), more=st.binary(max_size=20))
def test_any_kind_of_record_is_found(message, garbage, more):
    raw = encode_message(attrs.evolve(message, phy_offset=(1 << 40) + len(garbage)))
    assert find_record(garbage + raw + more, 0, 1 << 40, 1 << 30) == len(garbage)


@pytest.mark.parametrize("position", range(4, len(record(0))))
def test_what_is_damaged_is_passed_over(position):
    """Where a change can be noticed at all: in what adds up, in the offset, and in the body."""
    raw = bytearray(record(0))
    raw[position] ^= 0x40
    next_one = record(len(raw))
    unnoticed = (*range(12, 28), *range(36, 84), len(raw) - 3)  # Queue id, times, hosts, topic: no check of their own.
    expected = 0 if position in unnoticed else len(raw)
    assert find_record(bytes(raw) + next_one, 0, 0, FILE_SIZE) == expected


def test_a_record_inside_a_body_is_none():
    inner = record(0)
    damaged = b"\0" * 8 + record(0, body=inner)[8:]
    assert next_record(reader(damaged, 0), 0, len(damaged), FILE_SIZE) is None


@pytest.mark.parametrize("missing", [1, 5, 40, 90])
def test_a_record_that_is_not_whole_is_none(missing):
    raw = record(0)
    assert next_record(reader(raw, 0), 0, len(raw) - missing, FILE_SIZE) is None


def test_a_record_does_not_cross_the_end_of_a_file():
    at = FILE_SIZE - 50
    data = record(at) + record(at + len(record(at)))
    assert find_record(data, 0, at, FILE_SIZE) == len(record(at))


def test_version_2_is_found():
    raw = record(3, topic="t" * 200, magic=MAGIC_V2)
    assert find_record(b"abc" + raw, 0, 0, FILE_SIZE) == 3


@pytest.mark.parametrize(("version", "name"), golden.ALL)
def test_in_captured_logs(version, name, tmp_path):
    """From one byte behind each record's start the next record is found, in the real RocketMQ's bytes."""
    files = golden.log_files(golden.unpack(version, name, tmp_path) / "commitlog")
    data = b"".join(files.values())
    at, found = find_record(data, 0, 0, golden.FILE_SIZE), []
    while at >= 0:
        found.append(at)
        at = find_record(data, at + 1, 0, golden.FILE_SIZE)
    assert len(found) > 300
    assert found[0] == 0
