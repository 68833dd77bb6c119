"""The grammar of java.util.Properties.load, one rule a case; expected values are what Java gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.config.properties_file import Entry, parse_properties, with_values


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


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("# c\na=1\nb=2\n", {"a": "9"}, "# c\na=9\nb=2\n"),
        ("a=1\na=2", {"a": "9"}, "a=1\na=9"),  # The last one counts.
        ("a = one\\\n  two\nb=2", {"a": "9"}, "a=9\nb=2"),
        ("a=1\r\n", {"b": "2"}, "a=1\r\nb=2\r\n"),
        ("a=1", {"b": "2", "c": "3"}, "a=1\nb=2\nc=3\n"),
        ("", {"a": "x y"}, "a=x y\n"),
        ("\\\na", {"a": "", "b": ""}, "a=\nb=\n"),  # A line that is now shorter than its two were, without an end.
        ("! only a comment", {"a": " \u00e9\\\t"}, "! only a comment\na=\\u0020\\u00e9\\\\\\t\n"),
    ],
)
def test_values_are_put_into_a_file(text, values, expected):
    assert with_values(text, values) == expected


@given(
    st.text(alphabet="ab=:#!\\ \n\t\u00e9", max_size=40),
    st.dictionaries(
        st.sampled_from(["a", "b", "longKey"]),
        st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=10),
    ),
)
def test_what_was_put_in_is_read_and_the_rest_stays(text, values):
    before = {entry.key: entry.value for entry in parse_properties(text) if entry.key}
    after = {entry.key: entry.value for entry in parse_properties(with_values(text, values)) if entry.key}
    assert after == before | values
