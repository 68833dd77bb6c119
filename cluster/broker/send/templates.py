"""Sends that differ from an earlier one in few values, read by one expression.

A producer writes the same header again and again: only the queue, the time, the request's number and the values of properties
differ. A template is such a header with gaps for these:

    {"code":310,"extFields":{"a":"my-group","b":"orders", ... "e":"_","g":"_","i":"UNIQ_KEY\\u0001_"},"opaque":_, ...}

A frame that fits a template of its connection is read in less than half of the time that decode() and SendRequests.read_plain()
take, with the same result. Every other frame is left to these two.
"""

import re
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any
from weakref import WeakKeyDictionary

from attrs import define, field, frozen

from twinlog.cluster.broker.send.properties import SendProperties
from twinlog.cluster.broker.send.requests import SEND_V2, Send, SendRequests
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting.command import JSON, ONEWAY, RemotingCommand, decode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RemotingProtocolError
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.record.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    WAIT,
)
from twinlog.store.record.scan import stored_tags_code

LEARN_AFTER = 16  # Frames of a connection that did not fit: then the next one is looked at. Twice as many each time.
CONNECTION_TEMPLATES_MAX, TEMPLATES_MAX = 4, 256  # Of a connection, of a broker.
# A template has so many properties at most, and comes from a header of so many bytes.
VALUES_MAX, HEADER_SIZE_MAX = 16, 4096
_WORD = Struct(">I")
_HEADER_AT = _WORD.size
# Gaps: what the careful way takes for them, or less. A value is not empty, and has no escapes.
_QUEUE_ID, _TIME, _NUMBER, _VALUE = rb"(\d{1,4})", rb"(\d{1,18})", rb"(0|[1-9]\d{0,8})", rb"([ !#-\[\]-~\x80-\xff]+)"
_MARK, _MARKS = "\0{}\0", re.compile(rb"\0(\d+)\0")
_new_tuple: Any = tuple.__new__  # Twice as fast as the NamedTuple's constructor.

Frame = bytes | memoryview


@frozen
class _Properties:
    """The properties string of a template: what the client sends, and what is stored: a format with %b for each value."""

    pattern: bytes
    stored: bytes
    values: int


@frozen
class _Layout:
    """A header as an expression, and which of its groups is what."""

    pattern: bytes
    queue_id: int
    born: int
    values: slice
    opaque: int


@define(eq=False)
class SendTemplate:
    """A header with gaps, and what all messages have in common that fit it."""

    topic: TopicConfig
    _layout: _Layout
    _properties: _Properties
    _first: Send  # The one that it was made of.
    _match: "Callable[[Frame, int], re.Match[bytes] | None]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._match = re.compile(self._layout.pattern).match

    def read(self, connection: Connection, frame: Frame) -> Send | None:
        """Read a frame without its length word; None: it does not fit."""
        found = self._match(frame, _HEADER_AT)
        if found is None or _WORD.unpack_from(frame)[0] != (end := found.end()) - _HEADER_AT:
            return None
        groups, layout, properties = found.groups(), self._layout, self._properties
        queue_id, values = int(groups[layout.queue_id]), groups[layout.values]
        if queue_id >= self.topic.write_queues:
            return None
        raw = properties.stored % values
        if not (raw.isascii() or _is_utf8(raw)):
            return None
        first, wait = self._first.message, self._first.wait
        message = (
            first.topic,
            queue_id,
            frame[end:],
            raw,
            0,
            first.sys_flag,
            int(groups[layout.born]),
            connection.remote_host,
            first.store_host,
            0,
            0,
            stored_tags_code(raw, 0, len(raw)),
        )
        like = self._first.command
        opaque = int(groups[layout.opaque])
        command = RemotingCommand(SEND_V2, opaque, like.flag, None, frame, None, like.version, like.language, JSON)
        send: Send = _new_tuple(Send, (command, _new_tuple(PutMessage, message), queue_id, wait))
        return send


@define(eq=False)
class _Progress:
    """The templates of a connection, the one that fitted last first, and its frames that fitted none."""

    templates: list[SendTemplate] = field(factory=list)
    misses: int = 0
    patience: int = LEARN_AFTER


@define(eq=False)
class SendTemplates:
    """The templates of a broker's producers."""

    requests: SendRequests
    _templates: dict[bytes, SendTemplate] = field(factory=dict, init=False)  # By their expressions.
    _of: "WeakKeyDictionary[Connection, _Progress]" = field(factory=WeakKeyDictionary, init=False)

    def __attrs_post_init__(self) -> None:
        self.requests.settings.on_change.append(self._forget)

    def _forget(self) -> None:
        self._templates.clear()
        self._of.clear()

    def reader(self, connection: Connection) -> Callable[[Frame], Send | None] | None:
        """Return what reads the frames of one read; it returns None for one that has to be decoded. None: all have to be."""
        requests = self.requests
        if requests.gate.state != "open" or requests.restricted:
            return None
        progress = self._of.get(connection)
        if progress is None:
            progress = self._of[connection] = _Progress()
        templates, topics = progress.templates, requests.topics.table
        for template in templates:
            if topics.get(template.topic.name) is not template.topic:  # It was changed or deleted.
                templates[:] = [each for each in templates if topics.get(each.topic.name) is each.topic]
                break

        def read(frame: Frame) -> Send | None:
            for template in templates:
                if (send := template.read(connection, frame)) is not None:
                    if template is not templates[0]:
                        templates.remove(template)
                        templates.insert(0, template)
                    return send
            progress.misses += 1
            if progress.misses >= progress.patience:
                progress.misses, progress.patience = 0, 2 * progress.patience
                if (learnt := self._template_of(connection, frame)) is not None:
                    templates[:] = [learnt, *templates[: CONNECTION_TEMPLATES_MAX - 1]]
            return None

        return read

    def _template_of(self, connection: Connection, frame: Frame) -> SendTemplate | None:
        """Make the template of a frame, or find it; None: it is no plain send, or unusual."""
        requests = self.requests
        try:
            command = decode(frame)
        except RemotingProtocolError:
            return None
        ext, send = command.ext, requests.read_plain(connection, command)
        if send is None or ext is None or command.flag & ~ONEWAY or command.serialize_type != JSON:
            return None
        size = _WORD.unpack_from(frame)[0]
        properties = _properties_of(ext["i"], requests.properties)
        if properties is None or size > HEADER_SIZE_MAX:
            return None
        header = bytes(frame[_HEADER_AT : _HEADER_AT + size])
        layout = _layout_of(header, ext, command.opaque, properties)
        if layout is None:
            return None
        topic, template = requests.topics.table[send.message.topic], self._templates.get(layout.pattern)
        if template is None or template.topic is not topic:
            template = SendTemplate(topic, layout, properties, send._replace(message=send.message._replace(body=b"")))
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            self._templates[layout.pattern] = template
        command.body, command.ext = b"", None  # Else the template would keep them.
        read = template.read(connection, frame)
        # The host may be another one: a member forwarded the message.
        return template if read is not None and read[1:] == send[1:] and read.command.opaque == command.opaque else None


def _properties_of(text: str, rewriting: SendProperties) -> _Properties | None:
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
    own = re.escape(_escaped(NAME_VALUE_SEPARATOR).encode())
    parts = [
        re.escape(name.encode()) + own + (_VALUE if name != WAIT else re.escape(value.encode()))
        for name, _, value in pairs
    ]
    between = re.escape(_escaped(PROPERTY_SEPARATOR).encode())
    return _Properties(
        between.join(parts) + between * (len(text) - len(bare)),
        _MARKS.sub(b"%b", stored.replace(b"%", b"%%")),
        len(gaps),
    )


def _layout_of(header: bytes, ext: Mapping[str, str], opaque: int, properties: _Properties) -> _Layout | None:
    """Find the gaps in a header; None where one could be mistaken for another."""
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
    order = sorted(range(len(gaps)), key=lambda i: header.index(gaps[i][0]))
    parts: list[bytes] = []
    at = group = 0
    groups = [0] * len(gaps)
    for i in order:
        literal, pattern, count = gaps[i]
        place = header.index(literal)
        parts += (re.escape(header[at:place]), pattern)
        at, groups[i], group = place + len(literal), group, group + count
    parts.append(re.escape(header[at:]))
    queue_id, born, values, number = groups
    return _Layout(b"".join(parts), queue_id, born, slice(values, values + properties.values), number)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _escaped(text: str) -> str:
    """As JSON has it, if nothing else needs an escape."""
    return text.replace(NAME_VALUE_SEPARATOR, "\\u0001").replace(PROPERTY_SEPARATOR, "\\u0002")
