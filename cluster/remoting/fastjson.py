r"""JSON in fastjson 1.2's dialect, as in RocketMQ's bodies and config files. Text in, plain objects out.

    {0:"a",1:"b"}                                               map keys that are numbers are not quoted
    {{"brokerName":"broker-a","queueId":0,"topic":"T1"}:5}      map keys that are objects, too

Neither is JSON. `loads` reads both, and whatever else fastjson tolerates: single quotes, names without quotes, comments,
trailing commas. Source: RemotingSerializable.java (RocketMQ 4.9.8), JSONLexerBase.java (fastjson 1.2).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

DEPTH_MAX = 32
ODD_SIZE_MAX = 4 * 1024 * 1024  # Characters that the reader in Python takes, at about 1 us for each token.

_BARE_KEY = re.compile(r"([{,]\s*)(-?[0-9]+)(?=\s*:)")
_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\", "/": "/"}
_WORDS = {"true": True, "false": False, "null": None}
_NUMBER_SIZE_MAX = 40


class FastjsonError(ValueError):
    """The text is not JSON, not even in fastjson's dialect. The message names the line and column."""


class ObjectKey(str):
    """A map key that is an object: its JSON, compact and sorted. Written without quotes, as Java expects it."""

    __slots__ = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "ObjectKey":
        return cls(orjson.dumps(dict(fields), option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode())


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """Read one value. Map keys become text: `0` becomes "0", an object its ObjectKey; the last of equal keys counts.

    Raises FastjsonError when it cannot be read or is nested deeper than 32.
    """
    value = _standard(data)
    if value is _ODD:
        text = _text(data)
        value = _standard(_quote_bare_keys(text))
        if value is _ODD:
            value = _DialectReader(text).read()
    _check_depth(value)
    return value


_ODD = object()


def _standard(data: bytes | bytearray | memoryview | str) -> Any:
    """Read standard JSON; _ODD for anything else."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _ODD


def _text(data: bytes | bytearray | memoryview | str) -> str:
    try:
        return data if isinstance(data, str) else bytes(data).decode()
    except UnicodeDecodeError as error:
        raise FastjsonError(f"not UTF-8: {error}") from None


def _quote_bare_keys(text: str) -> str:
    """Turn `{0:` into `{"0":` outside strings: enough for nearly all that RocketMQ writes, and fast."""
    if "\\" in text or "\0" in text:
        return text
    parts = text.split('"')  # Every other part is inside quotes.
    parts[::2] = _BARE_KEY.sub("\\1\0\\2\0", '"'.join(parts[::2])).split('"')
    return '"'.join(parts).replace("\0", '"')


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > DEPTH_MAX:
            raise FastjsonError(f"nested deeper than {DEPTH_MAX}")
        level = [item for inner in level for item in (inner.values() if isinstance(inner, dict) else inner)]


class _DialectReader:
    """A recursive reader of the dialect: object = "{" [key ":" value {"," key ":" value}] "}", key = any of them."""

    def __init__(self, text: str) -> None:
        if len(text) > ODD_SIZE_MAX:
            raise FastjsonError(f"{len(text)} characters that are not standard JSON, at most {ODD_SIZE_MAX} are read")
        self.text = text
        self.at = 0

    def read(self) -> Any:
        value = self._value(0)
        self._skip()
        if self.at < len(self.text):
            raise self._error("the end")
        return value

    def _error(self, wanted: str) -> FastjsonError:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        found = repr(self.text[self.at : self.at + 20]) if self.at < len(self.text) else "the end"
        return FastjsonError(f"line {line} column {column}: {wanted} expected, found {found}")

    def _skip(self) -> str:
        """Step over blanks and comments; return the character that follows, "" at the end."""
        found = _BLANK.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.text[self.at : self.at + 1]

    def _value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise FastjsonError(f"nested deeper than {DEPTH_MAX}")
        first = self._skip()
        if first == "{":
            return self._object(depth + 1)
        if first == "[":
            return self._list(depth + 1)
        if first and first in "\"'":
            return self._string(first)
        if first == "-" or first.isdigit():
            return self._number()
        name = self._name()
        if name not in _WORDS:
            self.at -= len(name)
            raise self._error("a value")
        return _WORDS[name]

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.at += 1
        while self._skip() != "}":
            key = self._key(depth)
            self._take(":")
            found[key] = self._value(depth)
            if self._skip() != "}":
                self._take(",")
        self.at += 1
        return found

    def _key(self, depth: int) -> str:
        first = self._skip()
        if first == "{":
            return ObjectKey.of(self._value(depth))
        if first and first in "\"'":
            return self._string(first)
        if first == "-" or first.isdigit():
            return str(self._number())
        return self._name()

    def _list(self, depth: int) -> list[Any]:
        found = []
        self.at += 1
        while self._skip() != "]":
            found.append(self._value(depth))
            if self._skip() != "]":
                self._take(",")
        self.at += 1
        return found

    def _take(self, character: str) -> None:
        if self._skip() != character:
            raise self._error(repr(character))
        self.at += 1

    def _name(self) -> str:
        found = _NAME.match(self.text, self.at)
        if not found:
            raise self._error("a name or a value")
        self.at = found.end()
        return found[0]

    def _number(self) -> int | float:
        found = _NUMBER.match(self.text, self.at)
        if not found or len(found[0]) > _NUMBER_SIZE_MAX:
            raise self._error("a number")
        self.at = found.end()
        value = int(found[0]) if found[1] is found[2] is None else float(found[0])
        return value if -(2**63) <= value < 2**64 else float(value)  # As orjson reads them.

    def _string(self, quote: str) -> str:
        parts = []
        self.at += 1
        while True:
            plain = _PLAIN[quote].match(self.text, self.at)
            assert plain  # It matches the empty string, too.
            parts.append(plain[0])
            self.at = plain.end()
            if self.at >= len(self.text):
                raise self._error(f"a closing {quote}")
            if self.text[self.at] == quote:
                self.at += 1
                if len(parts) == 1:
                    return parts[0]
                # Java may write a character beyond the first plane as two escapes.
                return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            parts.append(self._escape())

    def _escape(self) -> str:
        letter = self.text[self.at + 1 : self.at + 2]
        digits = _HEX.match(self.text, self.at + 2) if letter == "u" else None
        if digits:
            self.at += 6
            return chr(int(digits[0], 16))
        if letter not in _ESCAPES or not letter:
            raise self._error("an escape")
        self.at += 2
        return _ESCAPES[letter]


def dumps(value: Any) -> bytes:
    """Write fastjson's compact form: int and ObjectKey keys without quotes, text quoted; the order is kept."""
    try:
        return orjson.dumps(value)  # The same when all keys are text. orjson refuses ObjectKey, a subclass of str.
    except TypeError:
        return "".join(_compact(value)).encode()


def dumps_ascii(value: Any) -> bytes:
    r"""Write standard JSON with sorted keys and non-ASCII as \uXXXX, as name servers write routes for new clients."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()
    return text.encode() if text.isascii() else re.sub("[^\0-\x7f]", _escaped, text).encode()


def pretty(value: Any) -> str:
    """Write fastjson's PrettyFormat, as in config/*.json: tabs, int keys unquoted and inline, no line feed at the end."""
    return "".join(_pretty(value, "\n"))


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2))


def _key(key: object) -> str:
    return str(key) if isinstance(key, int | ObjectKey) else orjson.dumps(key).decode()


def _compact(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        separator = "{"
        for key, item in value.items():
            yield f"{separator}{_key(key)}:"
            yield from _compact(item)
            separator = ","
        yield "}" if value else "{}"
    elif isinstance(value, list | tuple):
        separator = "["
        for item in value:
            yield separator
            yield from _compact(item)
            separator = ","
        yield "]" if value else "[]"
    else:
        yield orjson.dumps(value).decode()


def _pretty(value: Any, line: str) -> Iterator[str]:
    if not isinstance(value, Mapping) or not value:
        yield from _compact(value)
    elif isinstance(next(iter(value)), int):
        yield "{" + ",".join(f"{key}:{''.join(_pretty(item, line))}" for key, item in value.items())
        yield f"{line}}}"
    else:
        separator = "{"
        for key, item in value.items():
            yield f"{separator}{line}\t{_key(key)}:"
            yield from _pretty(item, line + "\t")
            separator = ","
        yield f"{line}}}"
