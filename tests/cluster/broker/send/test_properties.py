"""A message's properties on their way into the log, against a model that does what RocketMQ's code does step by step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.java_map import JavaHashMap
from twinlog.cluster.broker.send.properties import SendProperties
from twinlog.store.record.properties import parse_properties, tags_code

NAMES = [
    "TAGS",
    "KEYS",
    "UNIQ_KEY",
    "WAIT",
    "CLUSTER",
    "DELAY",
    "TRAN_MSG",
    "PGROUP",
    "a",
    "b",
    "Aa",
    "BB",
    "user",
    "n",
]
names = st.one_of(st.sampled_from(NAMES), st.text("abcXYZ_é长", min_size=1, max_size=4))
values = st.one_of(st.sampled_from(["true", "false", "True", "1", "TagA"]), st.text("ab\x01 é", min_size=0, max_size=5))
pairs = st.lists(st.tuples(names, values), max_size=18)
texts = st.one_of(
    pairs.map(lambda items: "\x02".join(f"{name}\x01{value}" for name, value in items)),
    st.text("ab\x01\x02", max_size=12),
).flatmap(lambda text: st.sampled_from([text, text + "\x02", "\x02" + text]))


def rocketmqs(text):
    """SendMessageProcessor: read into a map, CLUSTER put, WAIT taken out, written."""
    properties = JavaHashMap()
    for segment in text.split("\x02"):
        name, separator, value = segment.partition("\x01")
        if separator and name and value:
            properties.put(name, value)
    properties.put("CLUSTER", "C1")
    properties.remove("WAIT")
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items())


@given(st.lists(texts, max_size=4))
def test_stored_bytes_are_rocketmqs(several):
    """Also when messages with other names, or the same, came before: what was learnt from them changes nothing."""
    rewriter = SendProperties("C1")
    for text in [*several, *several]:
        stored, read = rewriter.rewrite(text), parse_properties(text)
        assert stored.raw.decode() == rocketmqs(text)
        assert stored.tags_code == tags_code(read.get("TAGS", ""))
        assert stored.wait == (read.get("WAIT", "true").lower() == "true")
        assert stored.special == ("DELAY" in read or "TRAN_MSG" in read)


@pytest.mark.parametrize("count", [11, 12, 13, 24, 25])
def test_a_map_that_grew_for_a_while(count):
    """WAIT and CLUSTER count where the map doubles, though WAIT is not stored."""
    text = "\x02".join(f"p{n}\x01v" for n in range(count)) + "\x02WAIT\x01true"
    assert SendProperties("C1").rewrite(text).raw.decode() == rocketmqs(text)


def test_kinds_are_remembered_within_bounds():
    rewriter = SendProperties("C1")
    for number in range(10_000):
        rewriter.rewrite(f"name{number}\x01v")
    assert len(rewriter._plans) <= 4096
    rewriter.rewrite("x" * 2000 + "\x01v")
    assert max(len(name) for names in rewriter._plans for name in names) < 100
