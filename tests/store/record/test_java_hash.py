"""Hashes of many keys at once are those of java.lang.String.hashCode."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.store.record.java_hash import power_of_31, utf8_hash, utf8_hashes, utf16_length
from twinlog.store.record.properties import java_hash

texts = st.one_of(st.text("0123456789ABCDEF", max_size=140), st.text(max_size=40))


def by_definition(text):
    """String.hashCode, unit by unit, unsigned."""
    h = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        h = (31 * h + high * 256 + low) % (1 << 32)
    return h


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("TopicTest#k1", 2746024), ("polygenelubricants", -(1 << 31)), ("é", 0xE9), ("😀", 1772899)],
)
def test_known_values(text, expected):
    assert utf8_hashes([text.encode()]) == [expected & 0xFFFFFFFF] == [java_hash(text) & 0xFFFFFFFF]


@given(st.lists(texts.filter(lambda text: text.isprintable()), max_size=300))
def test_many_at_once_are_hashed_as_each_alone(many):
    assert utf8_hashes([text.encode() for text in many]) == [by_definition(text) for text in many]


@pytest.mark.parametrize("length", [31, 32, 33, 63, 64, 65, 300])
@pytest.mark.parametrize("count", [1, 127, 128, 129])
def test_any_length_and_number(length, count):
    many = [(f"{i:04}" + "~\x7f" * 200)[:length] for i in range(count)]
    assert utf8_hashes([text.encode() for text in many]) == [by_definition(text) for text in many]


@given(texts, texts)
def test_a_prefix_is_added_by_a_power_of_31(prefix, text):
    raw = text.encode()
    whole = utf8_hash(prefix.encode()) * power_of_31(utf16_length(raw)) + utf8_hash(raw)
    assert whole & 0xFFFFFFFF == by_definition(prefix + text)


def test_what_is_no_utf8_counts_as_java_reads_it():
    """As U+FFFD, once for each maximal part of a character that is not whole."""
    assert utf8_hashes([b"a\xff", b"\xe9\x95"]) == [by_definition("a\ufffd"), by_definition("\ufffd")]
