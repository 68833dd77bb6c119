"""Files with secrets: what is written is what is meant, and no error repeats it."""

import pytest

from twinlog.cluster.config.plain_yaml import PlainYamlError, load_plain


@pytest.mark.parametrize("text", ["012345670", "1_000", "0x1F", "1e9", "12:30:00", "yes", "2026-01-01", "007", ".inf"])
def test_texts_stay_as_they_are_written(text):
    assert load_plain(f"secretKey: {text}".encode()) == {"secretKey": text}


def test_tables_lists_and_nothing():
    assert load_plain(b"a:\nb: ~\nc: ''\nd: [1, {e: null}]\nf: 'null'") == {
        "a": None,
        "b": None,
        "c": "",
        "d": ["1", {"e": None}],
        "f": "null",
    }
    assert load_plain(b"") is None


BROKEN = [
    "a: !!bool maybe",
    "a: !!int x",
    "a: !!timestamp x",
    "a: !Geheim123",
    "a: 1\na: Geheim123",
    "? [a]\n: b",
    "a: [Geheim123",
    "a: @Geheim123",
    'a: "\\UFFFFFFFF Geheim123"',
    "a: *Geheim123",
    "[" * 5_000,
    "a: \0Geheim123",
]


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_broken_is_said_without_its_text(text):
    with pytest.raises(PlainYamlError) as refusal:
        load_plain(text.encode())
    assert "Geheim123" not in str(refusal.value)
    assert refusal.value.__cause__ is None
