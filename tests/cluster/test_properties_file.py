"""The grammar of java.util.Properties.load, one rule a case; expected values are what Java gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.properties_file import Entry, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("brokerName=broker-a", [("brokerName", "broker-a", 1)]),
        ("  brokerName = broker-a", [("brokerName", "broker-a", 1)]),
        ("brokerName:broker-a", [("brokerName", "broker-a", 1)]),
        ("brokerName broker-a", [("brokerName", "broker-a", 1)]),
        ("brokerName\t=\tbroker-a\n", [("brokerName", "broker-a", 1)]),
        ("# a=1\n! b=2\n\n  # c=3\nd=4", [("d", "4", 5)]),
        ("a=1\r\nb=2\rc=3", [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]),
        ("namesrvAddr=one:9876;\\\n    two:9876\nb=1", [("namesrvAddr", "one:9876;two:9876", 1), ("b", "1", 3)]),
        ("a=one\\\\\nb=2", [("a", "one\\", 1), ("b", "2", 2)]),
        ("a=x\\\n# no comment", [("a", "x# no comment", 1)]),
        ("a=1\na=2", [("a", "1", 1), ("a", "2", 2)]),
        ("key\\ with\\=signs\\:=1", [("key with=signs:", "1", 1)]),
        ("a=\\u00e9\\t\\q", [("a", "é\tq", 1)]),
        ("a==b", [("a", "=b", 1)]),
        ("messageDelayLevel=1s 5s", [("messageDelayLevel", "1s 5s", 1)]),
        ("novalue", [("novalue", "", 1)]),
        ("=value", [("", "value", 1)]),
        ("a=", [("a", "", 1)]),
        ("a=end\\", [("a", "end", 1)]),
        ("\ufeffa=1", [("a", "1", 1)]),
        ("listenPort = 10911  ", [("listenPort", "10911", 1)]),
        ("\\\n a=1", [("a", "1", 1)]),
        ("", []),
    ],
)
def test_grammar(text, expected):
    assert parse_properties(text) == [Entry(*each) for each in expected]


@given(st.text(alphabet=" \t\n\r\\=:#!ab1u0\f"))
def test_every_text_is_a_properties_file(text):
    for entry in parse_properties(text):
        assert entry.line >= 1


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_escaped_comes_back(table):
    """Java's own writer escapes like this, so what RocketMQ rewrote (request 25) reads back."""

    def escaped(text: str) -> str:
        return "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in text)

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in table.items())
    assert {entry.key: entry.value for entry in parse_properties(text)} == table
