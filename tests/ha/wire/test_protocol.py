"""Both ends of the stream: where it is cut must not matter, and what has no place in it must be refused."""

import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.ha.errors import HAProtocolError
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER, BODY_SIZE_MAX, NO_REQUEST_YET, BatchReader, ReportReader
from twinlog.store.record.scan import scan_records

CAPTURE = Path(__file__).parents[2] / "golden" / "ha" / "rocketmq-4.9.7.jsonl.xz"
CAPTURED_FILE_SIZE = 131_072


def captured(direction: str) -> bytes:
    with lzma.open(CAPTURE, "rt") as lines:
        chunks = [json.loads(line) for line in lines]
    assert {chunk["conn"] for chunk in chunks} == {1}
    return b"".join(bytes.fromhex(chunk["hex"]) for chunk in chunks if chunk["dir"] == direction)


FROM_MASTER, FROM_SLAVE = captured("<"), captured(">")


def log_of(stream: bytes) -> bytes:
    """The log that a captured stream carries, taken apart as plainly as can be."""
    log, at = b"", 0
    while at < len(stream):
        phy_offset, size = BATCH_HEADER.unpack_from(stream, at)
        at += BATCH_HEADER.size
        assert phy_offset == len(log)
        log += stream[at : at + size]
        at += size
    return log


LOG = log_of(FROM_MASTER)


def reader(
    next_offset: int | None = None, file_size: int = CAPTURED_FILE_SIZE, *, buffer_size: int = 4096, **options: int
) -> BatchReader:
    buffer = bytearray(max(buffer_size, BATCH_HEADER.size))
    return BatchReader(next_offset=next_offset, file_size=file_size, buffer=buffer, **options)


def feed(batches: BatchReader, data: bytes) -> None:
    """Give it `data` as a socket would, never more than it has room for."""
    while data:
        space = batches.free_space()
        taken = min(len(space), len(data))
        space[:taken] = data[:taken]
        batches.received(taken)
        data = data[taken:]


def take(batches: BatchReader) -> bytes:
    """Consume whole records, as a slave does."""
    scan = scan_records(batches.staged, batches.staged_offset, batches.file_size, check_crc=True)
    assert scan.error is None
    batches.reserve(scan.needed)
    data = bytes(batches.staged[: scan.consumed])
    batches.consume(scan.consumed)
    return data


def test_the_capture_is_worth_the_name():
    """It has heartbeats, several files, and every byte of the slave's log."""
    assert FROM_MASTER.startswith(BATCH_HEADER.pack(0, 0))
    assert len(LOG) > 2 * CAPTURED_FILE_SIZE
    scan = scan_records(LOG, 0, CAPTURED_FILE_SIZE, check_crc=True)
    assert (scan.consumed, scan.error) == (len(LOG), None)


def test_two_pieces_of_the_captured_stream():
    """Every place to cut in the first frames: heartbeats, a small record, the head of a larger one."""
    stream = FROM_MASTER[:600]
    for cut in range(len(stream)):
        batches = reader(buffer_size=1024)
        feed(batches, stream[:cut])
        feed(batches, stream[cut:])
        assert bytes(batches.staged) == LOG[: batches.staged_size]
        assert batches.staged_size == len(stream) - batches.frames * BATCH_HEADER.size


@pytest.mark.slow
@pytest.mark.parametrize("buffer_size", [1, 100, 4096, 1 << 20])
def test_the_captured_stream_byte_by_byte(buffer_size):
    """Also through a buffer that is smaller than a record, or than a header."""
    batches, log = reader(buffer_size=buffer_size), bytearray()
    for at in range(len(FROM_MASTER)):
        feed(batches, FROM_MASTER[at : at + 1])
        if at % 500 == 0:
            log += take(batches)
    assert log + take(batches) == LOG


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 60_000) | st.integers(20_000, 100_000), min_size=3, max_size=20), st.integers(12, 200_000)
)
def test_the_captured_stream_cut_anywhere(sizes, buffer_size):
    batches, log, at = reader(buffer_size=buffer_size), bytearray(), 0
    while at < len(FROM_MASTER):
        for size in sizes:
            feed(batches, FROM_MASTER[at : at + size])
            log += take(batches)
            at += size
    assert log == LOG
    assert batches.staged_size == 0


def test_captured_reports_are_the_ends_of_what_was_sent():
    reports = ReportReader().feed(FROM_SLAVE)
    assert reports[0] == 0
    assert reports == sorted(reports)
    assert reports[-1] == len(LOG)


@given(st.lists(st.integers(0, 20), max_size=50))
def test_captured_reports_cut_anywhere(sizes):
    reports, reader, at = [], ReportReader(), 0
    for size in [*sizes, len(FROM_SLAVE)]:
        reports += reader.feed(FROM_SLAVE[at : at + size])
        at += size
    assert reports == ReportReader().feed(FROM_SLAVE)


def test_ten_reports_in_one_segment_and_one_cut_in_two():
    reader = ReportReader()
    stream = b"".join(ACK.pack(offset) for offset in (NO_REQUEST_YET, *range(9)))
    assert reader.feed(stream[:75]) == [-1, *range(8)]
    assert reader.feed(stream[75:]) == [8]


@pytest.mark.parametrize(
    ("next_offset", "phy_offset", "size", "complaint"),
    [
        (100, 100, -1, "a body of -1 bytes"),
        (100, 100, BODY_SIZE_MAX + 1, "a body of 4194293 bytes"),
        (100, 101, 5, "offset 101 where 100 is next"),
        (100, 99, 0, "offset 99 where 100 is next"),  # A heartbeat counts, too.
        (None, 100, 5, "cannot begin at 100"),
        (None, -1, 0, "cannot begin at -1"),
        (1000, 1000, 25, "crosses the end of a file"),
    ],
)
def test_a_frame_that_has_no_place_here(next_offset, phy_offset, size, complaint):
    batches = reader(next_offset, file_size=1024)
    with pytest.raises(HAProtocolError, match=complaint):
        feed(batches, BATCH_HEADER.pack(phy_offset, size))


def test_what_came_before_a_bad_frame_is_kept():
    batches = reader(0)
    with pytest.raises(HAProtocolError):
        feed(batches, BATCH_HEADER.pack(0, 3) + b"abc" + BATCH_HEADER.pack(4, 1) + b"x")
    assert bytes(batches.staged) == b"abc"


@pytest.mark.parametrize("start", [0, 1024, 5 * 1024])
def test_an_empty_log_begins_at_any_file(start):
    batches = reader(None, file_size=1024)
    feed(batches, BATCH_HEADER.pack(start, 0) + BATCH_HEADER.pack(start, 2) + b"ab")
    assert (batches.staged_offset, bytes(batches.staged)) == (start, b"ab")


def test_a_heartbeat_fixes_where_an_empty_log_begins():
    batches = reader(None, file_size=1024)
    feed(batches, BATCH_HEADER.pack(1024, 0))
    with pytest.raises(HAProtocolError):
        feed(batches, BATCH_HEADER.pack(2048, 0))


def test_a_frame_may_end_exactly_with_the_file():
    batches = reader(1000, file_size=1024)
    feed(batches, BATCH_HEADER.pack(1000, 24) + bytes(24) + BATCH_HEADER.pack(1024, 1) + b"x")
    assert (batches.staged_size, batches.next_offset) == (25, 1025)


def test_the_buffer_grows_for_a_record_and_no_further_than_a_file():
    batches = reader(0, file_size=8192, buffer_size=64)
    batches.reserve(5000)
    assert len(batches.free_space()) >= 5000
    batches.reserve(1 << 40)
    assert len(batches.free_space()) <= 8192 + BATCH_HEADER.size
