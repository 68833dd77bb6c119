"""Properties: Java's hash, the order of Java's map, and what a reader leaves out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.java_map import JavaHashMap
from tests.store.records import names, properties
from twinlog.store.record.properties import (
    format_properties,
    hash_map_order,
    java_hash,
    parse_properties,
    tags_code,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("d", 100),
        ("TagA", 2598919),
        ("hello", 99162322),
        ("TopicTest#k1", 2746024),
        ("polygenelubricants", -(1 << 31)),
        ("长标签", 37635606),
        ("😀", 1772899),  # Two UTF-16 units.
        ("Aa", 2112),
        ("BB", 2112),
    ],
)
def test_java_hash(text, value):
    """Values that Java's own String.hashCode gave."""
    assert java_hash(text) == value


def test_tags_code():
    assert tags_code("") == 0
    assert tags_code("TagA") == 2598919


@given(st.lists(names, unique=True, max_size=60))
def test_order_is_the_hash_maps(keys):
    java = JavaHashMap()
    for key in keys:
        java.put(key, "")
    assert [keys[i] for i in hash_map_order(keys)] == [key for key, _ in java.items()]


@given(st.lists(names, unique=True, min_size=1, max_size=30), st.data())
def test_a_map_that_was_larger_keeps_its_table(keys, data):
    gone = data.draw(st.sampled_from(keys))
    java = JavaHashMap()
    for key in keys:
        java.put(key, "")
    java.remove(gone)
    left = [key for key in keys if key != gone]
    assert [left[i] for i in hash_map_order(left, puts=len(keys))] == [key for key, _ in java.items()]


@given(properties)
def test_what_is_written_is_read(pairs):
    text = format_properties(pairs)
    assert parse_properties(text) == pairs
    assert parse_properties(text + "\x02") == pairs
    assert parse_properties("\x02" + text) == pairs


def test_order_of_a_real_broker():
    text = format_properties({"UNIQ_KEY": "u", "TAGS": "t", "KEYS": "k", "CLUSTER": "c"})
    assert text == "KEYS\x01k\x02UNIQ_KEY\x01u\x02CLUSTER\x01c\x02TAGS\x01t"


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a", {}),
        ("a\x01", {}),
        ("\x01b", {}),
        ("\x01", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x01c", {"a": "b\x01c"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
        ("a\x01b\x02\x02c\x01\x02d\x01e\x02", {"a": "b", "d": "e"}),
    ],
)
def test_odd_strings(text, pairs):
    """Empty names and values are dropped, of two the last counts. Source: MessageDecoder.string2messageProperties."""
    assert parse_properties(text) == pairs
