"""The walk over many records at once says what the walk from record to record says, of sound logs and of damaged ones."""

import random

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store import golden
from tests.store.records import HOST_V6, messages
from twinlog.store.record import column_scan
from twinlog.store.record.column_scan import scan_columns
from twinlog.store.record.columns import java_hashes
from twinlog.store.record.keys import keys_of
from twinlog.store.record.message import (
    BORN_HOST_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_AND_MAGIC,
    Message,
    body_crc,
    encode_message,
)
from twinlog.store.record.properties import java_hash
from twinlog.store.record.scan import SCHEDULE_TOPIC, scan_records

DELAYS_MS = (1000, 5000)
FILE_SIZE = 16 << 10


def same(data, at=0, file_size=FILE_SIZE, *, check_crc=True):
    """Both walks, compared in all they say; returns the outcome."""
    plain = scan_records(bytes(data), at, file_size, check_crc=check_crc, delays_ms=DELAYS_MS)
    found = scan_columns(data, at, file_size, check_crc=check_crc, delays_ms=DELAYS_MS)
    assert (found.consumed, found.error, found.needed) == (plain.consumed, plain.error, plain.needed)
    assert list(found.entries) == [entry._replace(properties=b"") for entry in plain.entries]
    keys, expected = found.entries.keys, keys_of(plain.entries)
    assert keys.hashes.tolist() == expected.hashes
    assert keys.phy_offsets.tolist() == expected.phy_offsets
    assert keys.timestamps.tolist() == expected.timestamps
    return found


def log_of(messages_, start=0, file_size=FILE_SIZE):
    """Their records as a log has them, with blanks at the ends of files."""
    data = bytearray()
    for number, message in enumerate(messages_):
        size = len(encode_message(message))
        room = file_size - (start + len(data)) % file_size
        if size + 8 > room:
            data += SIZE_AND_MAGIC.pack(room, MAGIC_BLANK).ljust(room, b"\0")
        at = start + len(data)
        data += encode_message(
            attrs.evolve(message, phy_offset=at, queue_offset=number, body_crc=body_crc(message.body))
        )
    return data


def usual(number, body=b"x" * 30, topic="T1", *, queue_id=0, more=b"\x02TAGS\x01TagA", **fields):
    properties = b"UNIQ_KEY\x01%032X" % (number * 7919) + b"\x02WAIT\x01true" + more
    return Message(topic, queue_id, body, properties, store_timestamp=1000 + number, **fields)


@st.composite
def logs(draw):
    """Many records of one producer or of several, with others among them."""
    rnd = random.Random(draw(st.integers(0, 1 << 32)))
    sizes = draw(st.sampled_from([(30,), (30, 31, 500), tuple(range(0, 60)), (0,)]))
    topics = draw(st.sampled_from([("T1",), ("T1", "T2", "longer"), tuple(f"t{i}" for i in range(12)), ("a", "é")]))
    mores = draw(
        st.lists(
            st.sampled_from(
                [
                    b"",
                    b"\x02TAGS\x01TagA",
                    b"\x02TAGS\x01TagB",
                    b"\x02TAGS\x01Tag\xc3\xa9",
                    b"\x02TAGS\x01",
                    b"\x02KEYS\x01k1 k2",
                    b"\x02KEYS\x01k1k2k",
                    b"\x02KEYS\x01 a  b",
                    b"\x02KEYS\x01abc\x02KEYS\x01d",
                    b"\x02TAGS\x01TagA\x02",
                    b"\x02TAGS\x01a\x01b\x02KEYS\x01x",
                    b"\x02xTAGS\x01TagA",
                    b"\x02UNIQ_KEY\x01other",
                    b"\x02plain",
                    b"\x02DELAY\x012",
                    b"\x02Z\x01\x00",
                ]
            ),
            min_size=1,
            max_size=5,
        )
    )
    odd = draw(st.lists(messages(), max_size=3))
    found = []
    for number in range(draw(st.integers(0, 150))):
        found.append(
            usual(
                number,
                rnd.randbytes(rnd.choice(sizes)),
                rnd.choice(topics),
                queue_id=rnd.randrange(3),
                more=rnd.choice(mores),
                sys_flag=rnd.choice((0, 0, 0, 4, 8, 12)),
            )
        )
    for message in odd:
        found.insert(rnd.randrange(len(found) + 1), message)
    if draw(st.booleans()):
        found.insert(rnd.randrange(len(found) + 1), usual(3, topic=SCHEDULE_TOPIC, more=b"\x02DELAY\x012"))
    start = draw(st.sampled_from([0, FILE_SIZE, 3 * FILE_SIZE - 5000]))
    return start, log_of(found, start)


@settings(deadline=None, max_examples=150)
@given(logs(), st.booleans())
def test_sound_logs(log, check_crc):
    start, data = log
    found = same(data, start, check_crc=check_crc)
    assert found.error is None or "topic" in found.error


@settings(deadline=None, max_examples=40)
@given(logs())
def test_without_hashes_all_else_is_the_same(log):
    start, data = log
    found = scan_columns(data, start, FILE_SIZE, check_crc=True, hashes=False)
    whole = scan_columns(data, start, FILE_SIZE, check_crc=True)
    assert (found.consumed, found.error, found.needed) == (whole.consumed, whole.error, whole.needed)
    assert [entry._replace(tags_code=0) for entry in found.entries] == [
        entry._replace(tags_code=0) for entry in whole.entries
    ]


@settings(deadline=None, max_examples=150)
@given(logs(), st.data())
def test_damaged_and_cut_logs(log, data):
    """Bits turned, bytes zeroed, pieces lost, ends missing, another start: at any place."""
    start, raw = log
    for _ in range(data.draw(st.integers(0, 3))):
        if not raw:
            break
        at = data.draw(st.integers(0, len(raw) - 1))
        match data.draw(st.sampled_from(["flip", "zero", "lose", "cut", "fill"])):
            case "flip":
                raw[at] ^= 1 << data.draw(st.integers(0, 7))
            case "zero":
                raw[at : at + 512] = bytes(len(raw[at : at + 512]))
            case "lose":
                del raw[at : at + data.draw(st.integers(1, 200))]
            case "cut":
                del raw[at:]
            case "fill":
                raw[at] = 0xFF
    same(raw, start + data.draw(st.sampled_from([0, 0, 0, 0, 4])), check_crc=data.draw(st.booleans()))


HEAD_FIELDS = {"size": 0, "magic": 4, "crc": 8, "phy offset": 28, "sys flag": 36, "body size": 84, "topic size": 118}


@pytest.mark.parametrize("field", HEAD_FIELDS)
def test_each_byte_of_a_field_in_the_middle_of_a_run(field):
    """Whatever the field says then, the records before it are sound, and the verdict is the same."""
    sound = log_of([usual(number) for number in range(80)])
    size = len(encode_message(usual(0)))
    for number in (0, 20, 79):
        for at in range(4):
            for value in (0, 1, 0x7F, 0x80, 0xFF):
                raw = bytearray(sound)
                raw[number * size + HEAD_FIELDS[field] + at] = value
                found = same(raw)
                assert found.consumed >= number * size


def test_every_cut():
    """The size of the unfinished record is returned as soon as it is known."""
    raw = log_of([usual(number, b"x" * (number % 5)) for number in range(8)])
    for end in range(len(raw)):
        same(raw[:end])


def test_a_bad_crc_counts_only_where_it_is_checked():
    raw = log_of([usual(number) for number in range(60)])
    raw[40 * len(encode_message(usual(0))) + 90] ^= 1
    assert same(raw).error == "its body does not match its CRC"
    assert same(raw, check_crc=False).error is None


@pytest.mark.parametrize("bad", [None, 0, 1, 63, 64, 127, 128, 149])
@pytest.mark.parametrize("size", [1, 500, 2048, 2049])
def test_bodies_of_one_size_at_one_distance(size, bad):
    """Their CRCs are of bodies that are cut out many at a time, and the rest one by one."""
    log = log_of([usual(number, bytes([number]) * size) for number in range(150)], file_size=1 << 20)
    if bad is not None:
        record = len(log) // 150
        log[bad * record + 88 + size // 2] ^= 1
    assert len(same(log, file_size=1 << 20).entries) == (150 if bad is None else bad)


@pytest.mark.parametrize("odd", [1, 70, 140, 149])
def test_bodies_of_one_size_at_other_distances(odd):
    """One record has longer properties, or another body."""
    for other in ({"more": b"\x02TAGS\x01TagAB"}, {"body": b"y" * 31}):
        log = log_of([usual(number, **other if number == odd else {}) for number in range(150)], file_size=1 << 20)
        assert len(same(log, file_size=1 << 20).entries) == 150


@pytest.mark.parametrize("count", [64, 65, 127, 128, 129, 192])
@pytest.mark.parametrize("behind", [b"", b"x", b"x" * 200])
def test_bodies_of_one_size_up_to_the_end_of_the_data(count, behind):
    """As batches of one producer: the data ends with the last record."""
    data = log_of([usual(number) for number in range(count)], file_size=1 << 20) + behind
    found = same(data, file_size=1 << 20)
    assert len(found.entries) == count


def test_shapes_of_one_size_after_each_other():
    """What the last stretch had is tried first."""
    mores = [
        b"\x02KEYS\x01abcdef",
        b"\x02KEYS\x01ab def",
        b"\x02TAGS\x01abcdef",
        b"\x02KEYT\x01abcdef",
        b"\x02KEYS\x01ab\x02b\x01c",
    ]
    assert len({len(more) for more in mores}) == 1
    for more in [*mores, *reversed(mores)]:
        assert len(same(log_of([usual(number, more=more) for number in range(70)])).entries) == 70


def test_version_2_and_ipv6_among_others():
    raw = log_of(
        [
            usual(number, born_host=HOST_V6, sys_flag=BORN_HOST_V6)
            if number % 10 == 3
            else usual(number, magic=MAGIC_V2 if number % 10 == 7 else MAGIC_V1)
            for number in range(90)
        ]
    )
    assert len(same(raw).entries) == 90


def test_topics_that_are_mixed_to_one_number(monkeypatch):
    """They are distinguished all the same."""
    monkeypatch.setattr(column_scan, "_MIX", np.uint64(0))
    raw = log_of([usual(number, topic=("T1", "T2", "T22", "x" * 100)[number % 4]) for number in range(50)])
    assert len(same(raw).entries.topics) == 4


@pytest.mark.parametrize("size", [87, 88, 89, 127])
def test_a_short_topic_at_the_very_beginning_and_a_long_one(size):
    """There is less before the first than the long one takes."""
    names = ["T", "x" * size, "", "y" * size] * 20
    found = same(log_of([Message(name, 1, b"", b"", store_timestamp=1) for name in names if name]), 0)
    assert sorted(found.entries.topics) == ["T", "x" * size, "y" * size]


def test_nothing_refers_to_the_data():
    """So that a buffer can be filled anew, or grow."""
    raw = log_of([usual(number) for number in range(60)])
    found = scan_columns(raw, 0, FILE_SIZE, check_crc=True)
    expected = list(found.entries)
    raw[:] = bytes(len(raw))
    raw += b"more"  # BufferError while anybody holds it.
    assert list(found.entries) == expected


@given(st.lists(st.text(st.characters(min_codepoint=3, max_codepoint=127), min_size=1, max_size=80), min_size=1))
def test_hashes_are_javas(texts):
    for length in {len(text) for text in texts}:
        some = [text for text in texts if len(text) == length]
        data = b"".join(b"\xff" * 9 + text.encode() for text in some)
        ends = np.arange(1, len(some) + 1) * (9 + length)
        assert java_hashes(memoryview(data), ends, length).tolist() == [java_hash(text) & 0xFFFFFFFF for text in some]


@pytest.mark.parametrize("captured", golden.ALL, ids="-".join)
def test_captured_logs(captured, tmp_path):
    """Logs of the real RocketMQ, from the beginning and from each record on."""
    root = golden.unpack(*captured, tmp_path)
    for start, content in golden.log_files(root / "commitlog").items():
        found = same(content, start, golden.FILE_SIZE)
        for entry in found.entries[::37]:
            same(memoryview(content)[entry.phy_offset - start :], entry.phy_offset, golden.FILE_SIZE)
