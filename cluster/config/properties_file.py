"""The grammar of Java's properties files: text in, entries out. Source: java.util.Properties.load."""

import re
from collections.abc import Iterable, Mapping
from struct import iter_unpack

from attrs import frozen


class ConfigError(Exception):
    """The configuration cannot be used; the message has one line for each thing that is wrong. Exit status 2."""


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPELLED = {"\\": "\\\\", **{char: f"\\{letter}" for letter, char in _ESCAPES.items()}}
_BLANKS = " \t\f"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


@frozen
class Entry:
    """One `key=value` of a properties file and the line on which it starts, counted from 1."""

    key: str
    value: str
    line: int


def parse_properties(text: str) -> list[Entry]:
    """Return the entries of a properties file in order, including duplicates.

    `#` and `!` start a comment line; `=`, `:` or a space end the key; a backslash at the end of a line joins the next one. Never
    fails: as in Java, every text is a properties file. Spaces at the end of a value are dropped, unlike in Java, where they make
    a number invalid.
    """
    entries = []
    for number, line in _logical_lines(text):
        key, value = _KEY.fullmatch(line).groups()  # type: ignore[union-attr]  # matches any text
        entries.append(Entry(_unescape(key), _unescape(value.rstrip(_BLANKS)), number))
    return entries


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Return the text of a properties file with new values, in place of a key's last line or in new lines at the end.

    Comments, order and line ends are kept. Keys are names of options, which need no escapes.
    """
    lines = re.split(r"(\r\n|\r|\n)", text)  # Lines at even indexes, line ends at odd ones.
    starts = {entry.key: entry.line - 1 for entry in parse_properties(text)}
    end = lines[1] if len(lines) > 1 else "\n"
    added = []
    for key, value in values.items():
        line = f"{key}={_escape(value)}"
        if key not in starts:
            added.append(line)
            continue
        at = 2 * starts[key]
        goes_on = at
        while _is_continued(lines[goes_on]) and goes_on + 2 < len(lines):
            goes_on += 2
        lines[at] = line
        for place in range(at + 1, goes_on + 1):  # The continuation lines; indexes must not change.
            lines[place] = ""
    text = "".join(lines)
    if added:
        last = re.search(r"(?:\r\n|\r|\n)?\Z", text)
        assert last is not None  # It matches the end of any text.
        before = text[: last.start()]
        if _is_continued(before):  # Nothing follows it: it must not join the added line.
            before = before[:-1]
        text = before + (last[0] or (end if before else ""))
    return text + "".join(line + end for line in added)


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _escape(text: str) -> str:
    escaped = "".join(_SPELLED.get(char) or (char if " " <= char <= "~" else _as_units(char)) for char in text)
    start = len(escaped) - len(escaped.lstrip(" "))
    inside = escaped.strip(" ")  # Spaces at either end would be lost.
    return "\\u0020" * start + inside + "\\u0020" * (len(escaped) - start - len(inside))


def _as_units(char: str) -> str:
    return "".join(f"\\u{unit:04x}" for (unit,) in iter_unpack(">H", char.encode("utf-16-be", "surrogatepass")))


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    joined, start = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff")), 1):
        line = raw.lstrip(_BLANKS)
        if not joined:
            if not line or line[0] in "#!":
                continue
            start = number
        line = joined + line
        if _is_continued(line):
            joined = line[:-1] or " "  # A single backslash also starts a continued line.
            continue
        joined = ""
        yield start, line.lstrip(_BLANKS)
    if joined.strip(_BLANKS):
        yield start, joined.lstrip(_BLANKS)


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        what = match[1]
        return chr(int(what[1:], 16)) if len(what) == 5 else _ESCAPES.get(what, what)

    return _ESCAPE.sub(one, text)
