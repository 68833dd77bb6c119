"""The layout of an index file, and the rules around it that need no file."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.indexes import java_abs, java_hash
from twinlog.store.index.image import IndexImage, page_runs
from twinlog.store.index.layout import IndexHeader, IndexLayout, absolute, index_hash, next_name
from twinlog.store.record.keys import keys_of, message_keys
from twinlog.store.record.properties import parse_properties
from twinlog.store.record.scan import DispatchEntry

NOW = datetime(2026, 1, 31, 23, 59, 59, 123_999)


def test_the_default_file_has_rocketmqs_size():
    layout = IndexLayout(5_000_000, 20_000_000)
    assert layout.file_size == 420_000_040
    assert layout.item_position(1) == 40 + 20_000_000 + 20


def test_hashes_have_no_sign_and_the_least_number_none_at_all():
    assert index_hash("TopicTest", "k1") == 2746024
    assert absolute(-(1 << 31)) == 0
    assert absolute(-5) == absolute(5) == 5


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (None, "20260131235959123"),
        ("20260131235959122", "20260131235959123"),
        ("20260131235959123", "20260131235959124"),
        ("20260201000000999", "20260201000001000"),  # The clock went back.
        ("20260131235959999", "20260131235960000"),  # No time, but a number, and in order.
    ],
)
def test_a_name_is_local_time_but_always_behind_the_last(last, expected):
    assert next_name(NOW, last) == expected


def test_a_header_that_says_item_0_means_1():
    assert IndexHeader.unpack(bytes(40)).next_item == 1
    assert IndexHeader().pack() == bytes(40)
    assert IndexHeader.unpack(IndexHeader(1, 2, 3, 4, 5, 6).pack()) == IndexHeader(1, 2, 3, 4, 5, 6)


# Keys


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ("", []),
        ("UNIQ_KEY\x01u", ["u"]),
        ("UNIQ_KEY\x01u\x02", ["u"]),  # As 5.x ends them.
        ("KEYS\x01 a  b \x02UNIQ_KEY\x01u\x02TAGS\x01t", ["u", "a", "b"]),
        ("KEYS\x01a a", ["a", "a"]),
        ("KEYS\x01 ", []),
        ("UNIQ_KEY\x01\x02KEYS\x01", []),
        ("UNIQ_KEY\x01first\x02UNIQ_KEY\x01last", ["last"]),
        ("UNIQ_KEY\x01first\x02UNIQ_KEY\x01", ["first"]),
        ("KEYS\x01a\x02KEYS\x01", ["a"]),
        ("MY_UNIQ_KEY\x01u\x02XKEYS\x01a\x02BODY\x01UNIQ_KEY\x01z", []),
        ("UNIQ_KEY\x01u\x01v", ["u\x01v"]),
        ("UNIQ_KEY", []),
    ],
)
def test_keys_of_a_message(properties, expected):
    assert [key.decode() for key in message_keys(properties.encode())] == expected
    entry = DispatchEntry("T", 0, 0, 7, 100, 0, 99, 0, properties.encode())
    hashes = [java_abs(java_hash(f"T#{key}")) for key in expected]
    assert keys_of([entry]) == (hashes, [7] * len(expected), [99] * len(expected))


pieces = st.sampled_from(["UNIQ_KEY", "KEYS", "KEY", "\x01", "\x02", " ", "A" * 32, "é" * 16, "日本", "😀", "x"])


@given(st.lists(st.lists(pieces, max_size=12).map("".join), max_size=8), st.sampled_from([0, 4, 8, 12]))
def test_any_properties_are_read_as_rocketmq_reads_them(many, sys_flag):
    expected = []
    for number, text in enumerate(many):
        properties = parse_properties(text)
        keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
        expected += [(java_abs(java_hash(f"T#{key}")), number) for key in keys if key and sys_flag != 12]
    entries = [DispatchEntry("T", 0, 0, n, 1, 0, 0, sys_flag, text.encode()) for n, text in enumerate(many)]
    hashes, phy_offsets, _ = keys_of(entries)
    assert list(zip(hashes, phy_offsets, strict=True)) == expected


def usual(number, size=32, makers=1):
    maker = f"{number % makers:X}".ljust(size - 12, "F")
    return f"TAGS\x01a\x02UNIQ_KEY\x01{maker}{number:012X}\x02WAIT\x01true"


ODD = [
    "",
    "UNIQ_KEY\x01",
    "TAGS\x01a\x02UNIQ_KEY\x01short",
    usual(1, 31),
    usual(1, 33),
    usual(1)[:-11],
    usual(1)[:-12],
    usual(1)[2:],
]
ODD += [usual(1) + more for more in ("\x02KEYS\x01k", "\x02UNIQ_KEY\x01other", "\x02UNIQ_KEY\x01")]
ODD += [more + usual(1) for more in ("KEYS\x01a\x02", "xKEY", "UNIQ_KEY\x01x")]
ODD += [
    usual(1).replace(old, new, 1)
    for old, new in (("00", "é"), ("FF", "é"), ("00", "\x020"), ("FF", "\x02F"), ("FF", "\x01F"))
]
ODD += [usual(1).replace(old, new) for old, new in (("\x02UNIQ", "xUNIQ"), ("UNIQ_KEY", "UNIQ_KEYS"))]


@pytest.mark.slow
@pytest.mark.parametrize("odd", [None, *ODD])
@pytest.mark.parametrize("at", [0, 1, 199])
def test_many_alike_are_read_as_each_alone(odd, at):
    for lead in (0, len("TAGS\x01a\x02")):  # With the key in front, and behind another property.
        texts = [usual(number)[lead:] for number in range(200)]
        texts[at] = texts[at] if odd is None else odd
        assert_like_alone(as_entries(texts))
    assert_like_alone(
        [*as_entries([usual(1)] * 9), *as_entries([usual(1)], topic="U"), *as_entries([usual(1)], sys_flag=12)]
    )


@pytest.mark.parametrize("size", [13, 15, 16, 17, 32, 33, 56, 300])
@pytest.mark.parametrize("makers", [1, 2, 100])
def test_keys_of_several_clients(size, makers):
    assert_like_alone(as_entries([usual(number, size, makers) for number in range(200)]))


def with_keys(number, keys="order-{}", before=""):
    return f"{before}KEYS\x01{keys.format(number * 7919)}\x02UNIQ_KEY\x01{number:032X}\x02WAIT\x01true"


ODD_WITH_KEYS = [
    "",
    usual(1),
    with_keys(1, "a b"),
    with_keys(1, " "),
    with_keys(1, ""),
    with_keys(1, "é"),
    with_keys(1, "myKEY"),
    with_keys(1, "x" * 70),
    with_keys(1, before="KEYS\x01a\x02"),
    with_keys(1, before="xKEYS\x01a\x02"),
    with_keys(1, before="x"),
    with_keys(1).replace("UNIQ_KEY\x01", "UNIQ_KEY\x01\x02x\x01"),
    with_keys(1).replace("UNIQ", "xUNIQ"),
    with_keys(1).replace("UNIQ_KEY", "KEYS"),
    with_keys(1).replace("KEYS", "UNIQ_KEY"),
    "KEYS\x01a\x02KEYS\x01b",
    "UNIQ_KEY\x01a\x02UNIQ_KEY\x01b",
]


@pytest.mark.parametrize("odd", [None, *ODD_WITH_KEYS])
@pytest.mark.parametrize("at", [0, 1, 39])
def test_keys_of_many_messages_with_keys_of_their_own(odd, at):
    texts = [with_keys(number) for number in range(40)]
    if odd is not None:
        texts[at] = odd
    assert_like_alone(as_entries(texts))


def test_keys_of_messages_where_one_has_what_another_lacks():
    texts = [with_keys(number) for number in range(40)]
    texts[3], texts[4] = "KEYS\x01a\x02KEYS\x01b\x02UNIQ_KEY\x01c", "UNIQ_KEY\x01d"
    texts[5], texts[6] = "UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02KEYS\x01c", "KEYS\x01d"
    assert_like_alone(as_entries(texts))


@pytest.mark.parametrize("keys", ["a b", " a  b ", "a\tb c\n", "{} x", "{}" + "0" * 40, "{}" + "0" * 80])
def test_several_keys_of_each_of_many_messages(keys):
    assert_like_alone(as_entries([with_keys(number, keys) for number in range(200)]))


@pytest.mark.parametrize("sys_flag", [0, 4, 8, 12])
def test_messages_with_keys_in_a_transaction(sys_flag):
    texts = [with_keys(number) for number in range(20)]
    assert_like_alone(as_entries(texts, sys_flag=sys_flag))
    mixed = [*as_entries(texts), *as_entries(texts, "U"), *as_entries(texts, sys_flag=sys_flag)]
    assert_like_alone(mixed)


def as_entries(texts, topic="T", sys_flag=0):
    return [DispatchEntry(topic, 0, 0, n, 1, 0, n + 1, sys_flag, text.encode()) for n, text in enumerate(texts)]


def assert_like_alone(entries):
    found = [keys_of([entry]) for entry in entries]
    assert keys_of(entries) == tuple([item for each in found for item in each[part]] for part in range(3))
    assert keys_of(entries[::-1]) == tuple([item for each in found[::-1] for item in each[part]] for part in range(3))


# The image


def test_what_could_not_be_written_comes_again():
    image = IndexImage(IndexLayout(10, 10))
    image.put([3, 4], [0, 100], [1, 2])
    first = image.take_unwritten()
    assert image.take_unwritten() is None
    image.put([5], [200], [3])
    image.not_written(first)
    both = image.take_unwritten()
    assert (both.first, len(both.items), both.pages, both.header.next_item) == (1, 60, {0}, 4)
    image.put([6], [300], [4])
    image.wrote(both)
    rest = image.take_unwritten()
    assert (rest.first, len(rest.items), rest.header.next_item) == (4, 20, 5)
    image.wrote(rest)
    assert image.unwritten_bytes == 0


def test_seconds_are_between_0_and_the_largest_number():
    image = IndexImage(IndexLayout(10, 10), begin_timestamp=5000, end_timestamp=5000)
    image.put([1, 2, 3, 4, 5], [0, 1, 2, 3, 4], [4000, 4999, 1 << 50, 3000, 6999])
    seconds = [int.from_bytes(image.tail[1][at + 12 : at + 16]) for at in range(0, 100, 20)]
    assert seconds == [0, 0, (1 << 31) - 1, 0, 2]  # After the first, since the first.


def test_pages_are_written_in_runs_of_neighbours():
    assert page_runs(frozenset()) == []
    assert page_runs(frozenset({7, 1, 2, 3, 9})) == [(1, 4), (7, 8), (9, 10)]
    assert page_runs(frozenset({0, 7, 1, 3, 9, 12}), 1) == [(0, 4), (7, 10), (12, 13)]
    assert page_runs(frozenset({2, 5, 9}), 2) == [(2, 6), (9, 10)]
