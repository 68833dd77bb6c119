"""Two answers of mqadmin made comparable: what differs from run to run becomes a word."""

import re
from collections.abc import Mapping

_WORDS = (
    (re.compile(r"\b[0-9A-F]{32,56}\b"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d(?:[:,.]\d+)?"), "<time>"),
    (re.compile(r"\b1[6-9]\d{11}\b"), "<ms>"),
    (re.compile(r"(?:\d{1,3}\.){3}\d{1,3}@[^\s,\"}\]]+"), "<client>"),
    (re.compile(r"/?127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"(?:\d{1,3}\.){3}\d{1,3}"), "<ip>"),
    (re.compile(r"V4_9_\d+"), "<version>"),
    (re.compile(r"@[0-9a-f]{5,8}\b"), "@<hash>"),
    (re.compile(r"\brt=\d+ms|\bspentTimeMills=\d+"), "<took>"),
    (re.compile(r"\b(true|false) \d+$", re.MULTILINE), r"\1 <took>"),
    (re.compile(r"\b0 days, .* seconds"), "<time>"),
    (re.compile(r"\"?version\"?[:=] ?40\d"), "version:<version>"),
    (re.compile(r"\b\d+\.\d+\b"), "<n>"),
    (re.compile(r"\b\d{8}[ -]?\d{6,9}\b"), "<time>"),
    (re.compile(r"\(\d+,\d+ms\)"), "(<queue>)"),
)
_BLANKS = re.compile(r"[ \t]+")


def normalise(text: str, words: Mapping[str, str]) -> str:
    """`words` are what this cluster calls its things: each is replaced by its name."""
    for name, value in sorted(words.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"<{name}>")
    text = "\n".join(_BLANKS.sub(" ", line).rstrip() for line in text.splitlines()).strip("\n")
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    return text


def names(text: str) -> set[str]:
    """What stands in front of `:` or `=` in each line."""
    found = (re.match(r"(?:<[^>]*>\s+)?\s*([^\s:=]+)\s*[:=]", line) for line in text.splitlines())
    return {match[1] for match in found if match}
