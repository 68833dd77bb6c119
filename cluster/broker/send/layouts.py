"""Layouts of send requests: a header as an expression with gaps for what differs from message to message. No I/O.

In JSON the gaps lie between quotes, and white space and the order of the fields are the client's:

    {"code":310,"extFields":{"a":"my-group","b":"orders", ... "e":"_","g":"_","i":"UNIQ_KEY\\u0001_"},"opaque":_, ...}

In RocketMQ's own binary form, which its benchmark programs use, each text has its length before it. Those of the properties and
of all fields differ, too; they are compared with what the values take. Formats: remoting/command.py.
"""

import re
from collections.abc import Callable, Mapping

from attrs import frozen

from twinlog.cluster.broker.send.properties import SendProperties
from twinlog.cluster.remoting.command import JSON, OPAQUE_AT, ROCKETMQ, BinaryFields, binary_fields
from twinlog.store.record.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, WAIT

# A template has so many properties at most, and comes from a header of so many bytes.
VALUES_MAX, HEADER_SIZE_MAX = 16, 4096
# Gaps: what the careful way takes for them, or less. A value is not empty, and has no escapes.
_QUEUE_ID, _TIME, _NUMBER, _VALUE = rb"(\d{1,4})", rb"(\d{1,18})", rb"(0|[1-9]\d{0,8})", rb"([ !#-\[\]-~\x80-\xff]+)"
# The same in the binary form, the queue and the time with their lengths.
_SIZED_QUEUE_ID = rb"\0\0\0(?:\x01(?=\d\D)|\x02(?=\d\d\D)|\x03(?=\d{3}\D)|\x04(?=\d{4}\D))" + _QUEUE_ID
_SIZED_TIME = rb"\0\0\0%b(\d{%d})"
_BINARY_NUMBER, _ANY_SIZE = rb"([\0-\x7f][\0-\xff]{3})", rb"([\0-\xff]{4})"
_TIME_DIGITS_MAX = 18
_MARK, _MARKS = "\0{}\0", re.compile(rb"\0(\d+)\0")


@frozen
class PropertiesLayout:
    """The properties string: what the client sends, and what is stored: a format with %b for each value.

    `more`: bytes that the client's string has more than the stored one.
    """

    pattern: bytes
    stored: bytes
    values: int
    more: int


@frozen
class Layout:
    """A header as an expression, and which of its groups is what. The last three are of the binary form."""

    pattern: bytes
    queue_id: int
    born: int
    values: slice
    opaque: int
    serialize_type: int = JSON
    properties_size: int = -1
    fields_size: int = -1
    fields_at: int = -1  # Where the fields begin, in the frame.


def properties_layout(text: str, rewriting: SendProperties, serialize_type: int) -> PropertiesLayout | None:
    """Put gaps for the values of a properties string, but WAIT's; None where names or their order are unusual."""
    bare = text.rstrip(PROPERTY_SEPARATOR)
    pairs = [segment.partition(NAME_VALUE_SEPARATOR) for segment in bare.split(PROPERTY_SEPARATOR)]
    names = [name for name, _, _ in pairs]
    if len(names) > VALUES_MAX:
        return None
    gaps = [name for name in names if name != WAIT]
    marked = [
        f"{name}{NAME_VALUE_SEPARATOR}{_MARK.format(gaps.index(name)) if name != WAIT else value}"
        for name, _, value in pairs
    ]
    stored = rewriting.rewrite(PROPERTY_SEPARATOR.join(marked)).raw
    # Another order, or a name that is there twice or that the broker writes itself.
    if _MARKS.findall(stored) != [b"%d" % number for number in range(len(gaps))]:
        return None
    sent: Callable[[str], str] = _escaped if serialize_type == JSON else str
    own = re.escape(sent(NAME_VALUE_SEPARATOR).encode())
    parts = [
        re.escape(name.encode()) + own + (_VALUE if name != WAIT else re.escape(value.encode()))
        for name, _, value in pairs
    ]
    between = re.escape(sent(PROPERTY_SEPARATOR).encode())
    marks = PROPERTY_SEPARATOR.join(marked) + PROPERTY_SEPARATOR * (len(text) - len(bare))
    return PropertiesLayout(
        between.join(parts) + between * (len(text) - len(bare)),
        _MARKS.sub(b"%b", stored.replace(b"%", b"%%")),
        len(gaps),
        len(marks.encode()) - len(stored),
    )


def layout_of(
    header: bytes, ext: Mapping[str, str], opaque: int, properties: PropertiesLayout, serialize_type: int
) -> Layout | None:
    """Find the gaps in a header; None where one could be mistaken for another."""
    if serialize_type == JSON:
        return _json_layout(header, ext, opaque, properties)
    return _binary_layout(header, binary_fields(header), properties)


def _json_layout(header: bytes, ext: Mapping[str, str], opaque: int, properties: PropertiesLayout) -> Layout | None:
    text = _escaped(ext["i"])
    # Without other escapes each quote begins or ends a text, so what is there once is what was decoded.
    if header.count(b"\\") != text.count("\\"):
        return None
    gaps = [
        (f'"e":"{ext["e"]}"'.encode(), b'"e":"%b"' % _QUEUE_ID, 1),
        (f'"g":"{ext["g"]}"'.encode(), b'"g":"%b"' % _TIME, 1),
        (f'"i":"{text}"'.encode(), b'"i":"%b"' % properties.pattern, properties.values),
        (b'"opaque":%d' % opaque, b'"opaque":%b' % _NUMBER, 1),
    ]
    if any(header.count(literal) != 1 for literal, _, _ in gaps):
        return None
    places = [(header.index(literal), len(literal), pattern, count) for literal, pattern, count in gaps]
    pattern, (queue_id, born, values, number) = _with_gaps(header, places)
    return Layout(pattern, queue_id, born, slice(values, values + properties.values), number)


def _binary_layout(header: bytes, fields: BinaryFields, properties: PropertiesLayout) -> Layout | None:
    at = {key: (start, end) for key, start, end in fields.values}
    digits = at["g"][1] - at["g"][0]
    if len(at) != len(fields.values) or not 0 < digits <= _TIME_DIGITS_MAX:  # A key twice.
        return None
    sized_time = _SIZED_TIME % (re.escape(bytes([digits])), digits)
    places = [
        _sized(at["e"], _SIZED_QUEUE_ID, 1),
        _sized(at["g"], sized_time, 1),
        _sized(at["i"], _ANY_SIZE + properties.pattern, 1 + properties.values),
        (OPAQUE_AT, 4, _BINARY_NUMBER, 1),
        (fields.start - 4, 4, _ANY_SIZE, 1),
    ]
    pattern, (queue_id, born, size, number, fields_size) = _with_gaps(header, places)
    values = slice(size + 1, size + 1 + properties.values)
    return Layout(pattern, queue_id, born, values, number, ROCKETMQ, size, fields_size, fields.start + 4)


def _sized(place: tuple[int, int], pattern: bytes, groups: int) -> tuple[int, int, bytes, int]:
    """The gap of a text, with its length."""
    start, end = place
    return start - 4, end - start + 4, pattern, groups


def _with_gaps(header: bytes, places: list[tuple[int, int, bytes, int]]) -> tuple[bytes, list[int]]:
    """An expression for the header, and the first group of each place, of which each is (start, size, pattern, groups)."""
    parts: list[bytes] = []
    at = group = 0
    groups = [0] * len(places)
    for i in sorted(range(len(places)), key=lambda i: places[i][0]):
        start, size, pattern, count = places[i]
        parts += (re.escape(header[at:start]), pattern)
        at, groups[i], group = start + size, group, group + count
    parts.append(re.escape(header[at:]))
    return b"".join(parts), groups


def _escaped(text: str) -> str:
    """As JSON has it, if nothing else needs an escape."""
    return text.replace(NAME_VALUE_SEPARATOR, "\\u0001").replace(PROPERTY_SEPARATOR, "\\u0002")
