"""The walk over a stretch of log: it stops at the first byte that is not what was written."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.records import HOST_V6, messages
from twinlog.store.record.message import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_AND_MAGIC,
    STORE_HOST_V6,
    Message,
    body_crc,
    encode_message,
)
from twinlog.store.record.scan import scan_records

FILE_SIZE = 4096


def record(phy_offset, body=b"hello", *, topic="T1", properties=b"TAGS\x01TagA\x02UNIQ_KEY\x01id", **more):
    message = Message(
        topic, 1, body, properties, phy_offset=phy_offset, body_crc=body_crc(body), store_timestamp=99, **more
    )
    return encode_message(message)


def log_of(bodies, start=0):
    data = b""
    for body in bodies:
        data += record(start + len(data), body)
    return data


def blank(size):
    return SIZE_AND_MAGIC.pack(size, MAGIC_BLANK)


def scan(data, at=0, **options):
    return scan_records(data, at, FILE_SIZE, check_crc=True, **options)


@given(messages(), st.booleans())
def test_entries_name_what_the_record_holds(message, as_view):
    """IPv6 hosts, version 2 and plain records alike."""
    message = attrs.evolve(message, phy_offset=3 * FILE_SIZE + 40)
    raw = encode_message(message)
    found = scan_records(memoryview(raw) if as_view else raw, message.phy_offset, 2 * FILE_SIZE, check_crc=True)
    assert (found.consumed, found.error, found.needed) == (len(raw), None, 0)
    (entry,) = found.entries
    assert entry.topic == message.topic
    assert entry[1:5] == (message.queue_id, message.queue_offset, message.phy_offset, message.size)
    assert entry[6:] == (message.store_timestamp, message.sys_flag, message.properties_raw)


def test_tags_code_is_the_last_tags():
    for properties, code in [
        (b"", 0),
        (b"TAGS\x01TagA", 2598919),
        (b"XTAGS\x01TagB\x02TAGS\x01TagA", 2598919),
        (b"TAGS\x01d\x02A\x01b\x02TAGS\x01TagA\x02", 2598919),
        (b"A\x01TAGS\x01d", 0),
        ("TAGS\x01长标签".encode(), 37635606),
        (b"TAGS\x01\xff", 65533),  # No UTF-8: Java reads a replacement character.
    ]:
        (entry,) = scan(record(0, properties=properties)).entries
        assert entry.tags_code == code


@pytest.mark.parametrize(
    ("delay", "due"),
    [
        (b"DELAY\x011", 1099),
        (b"DELAY\x012", 5099),
        (b"DELAY\x0199", 5099),
        (b"DELAY\x010", 0),
        (b"DELAY\x01x", 0),
        (b"", 0),
    ],
)
def test_schedule_topic_keeps_the_time_of_delivery(delay, due):
    data = record(0, topic="SCHEDULE_TOPIC_XXXX", properties=delay)
    assert [e.tags_code for e in scan(data, delays_ms=(1000, 5000)).entries] == [due]
    v6 = record(0, topic="SCHEDULE_TOPIC_XXXX", properties=delay, sys_flag=STORE_HOST_V6, store_host=HOST_V6)
    assert [e.tags_code for e in scan(v6, delays_ms=(1000, 5000)).entries] == [due]


def test_cut_at_every_byte():
    """Whatever is cut off, all whole records in front are found, and the size of the unfinished one once it is known."""
    bodies = [b"", b"x", b"y" * 100]
    data = log_of(bodies)
    ends = [0]
    for body in bodies:
        ends.append(ends[-1] + len(record(0, body)))
    for cut in range(len(data) + 1):
        found = scan(data[:cut])
        whole = [end for end in ends if end <= cut]
        assert (found.consumed, len(found.entries), found.error) == (whole[-1], len(whole) - 1, None)
        rest = cut - whole[-1]
        assert found.needed == (ends[len(whole)] - whole[-1] if rest >= 8 else 0)


@given(st.data())
def test_a_flipped_byte_never_makes_another_record(data):
    """Lengths, place and body cannot change unnoticed; the other header fields of a version 1 record have no check."""
    log = log_of([b"first", b"second one", b""])
    at = data.draw(st.integers(0, len(log) - 1))
    broken = bytearray(log)
    broken[at] ^= data.draw(st.integers(1, 255))
    good, found = scan(log), scan(bytes(broken))
    assert [(e.phy_offset, e.size) for e in found.entries] == [(e.phy_offset, e.size) for e in good.entries][
        : len(found.entries)
    ]
    for entry in found.entries:
        here = slice(entry.phy_offset, entry.phy_offset + entry.size)
        size = int.from_bytes(log[entry.phy_offset + 84 :][:4])
        body = slice(here.start + 88, here.start + 88 + size)
        assert broken[body] == log[body]
    if found.consumed < len(log):
        assert found.error or found.needed
        assert found.entries == good.entries[: len(found.entries)]


@given(st.binary(max_size=400), st.integers(0, 3))
def test_random_bytes_are_no_records(data, start):
    found = scan(data, start * FILE_SIZE)
    assert (found.consumed, found.entries) == (0, [])
    assert found.error or len(data) < 8


@given(messages((MAGIC_V2,)), st.integers(0, 255), st.data())
def test_damage_in_rare_layouts_is_an_error_and_no_exception(message, value, data):
    raw = bytearray(encode_message(attrs.evolve(message, phy_offset=0)))
    raw[data.draw(st.integers(4, len(raw) - 1))] = value
    scan(bytes(raw))


def test_a_record_that_lies_elsewhere_is_an_error():
    assert "lies at 91" in scan(record(91)).error


@pytest.mark.parametrize("topic", ["T\0", "", ".", "..", "../x", "a/b"])
@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
def test_a_topic_that_names_no_directory_is_an_error(topic, magic):
    """Zeros are what a crash leaves of bytes that did not reach the disk; paths must not lead elsewhere."""
    assert "names no directory" in scan(record(0, topic=topic, magic=magic)).error


def test_a_topic_that_is_no_text_is_an_error():
    raw = record(0).replace(b"\x02T1", b"\x02\xff1")
    assert scan(raw).error


def fill_up_to(end, start=0):
    """Records up to offset `end` exactly."""
    return record(start, b"z" * (end - start - len(record(0, b""))))


@pytest.mark.parametrize("before_end", [8, 9, 91, 1000])
def test_blank_reaches_exactly_to_the_end_of_the_file(before_end):
    data = fill_up_to(FILE_SIZE - before_end) + blank(before_end)
    whole = data.ljust(FILE_SIZE, b"\0")
    next_file = record(FILE_SIZE)
    found = scan(whole + next_file)
    assert (found.consumed, [e.phy_offset for e in found.entries], found.error) == (
        FILE_SIZE + len(next_file),
        [0, FILE_SIZE],
        None,
    )
    if before_end > 8:  # Whole only when all its bytes are there: a slave gets them like any others.
        found = scan(whole[:-1])
        assert (found.consumed, found.error, found.needed) == (FILE_SIZE - before_end, None, before_end)


@pytest.mark.parametrize("off_by", [-1, 1])
def test_blank_of_another_size_is_an_error(off_by):
    data = fill_up_to(FILE_SIZE - 100) + blank(100 + off_by)
    found = scan(data.ljust(FILE_SIZE, b"\0"))
    assert found.consumed == FILE_SIZE - 100
    assert "blank" in found.error


def test_a_whole_file_may_be_blank():
    assert scan(blank(FILE_SIZE).ljust(FILE_SIZE, b"\0")).consumed == FILE_SIZE


@pytest.mark.parametrize(("size", "fits"), [(FILE_SIZE - 1, True), (FILE_SIZE, True), (FILE_SIZE + 1, False)])
def test_a_record_ends_in_its_file(size, fits):
    found = scan(record(0, b"z" * (size - len(record(0, b"")))))
    assert (found.consumed == size, found.error is None) == (fits, fits)


def test_zeros_end_the_log():
    data = log_of([b"a"])
    found = scan(data.ljust(FILE_SIZE, b"\0"))
    assert found.consumed == len(data)
    assert "magic" in found.error
