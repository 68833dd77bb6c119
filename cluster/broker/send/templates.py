"""Sends that differ from an earlier one in few values, read by one expression.

A producer writes the same header again and again: only the queue, the time, the request's number and the values of properties
differ. A template is such a header with gaps for these, in JSON or in RocketMQ's binary form (layouts.py).

A frame that fits a template of its connection is read in less than half of the time that decode() and SendRequests.read_plain()
take, with the same result. Every other frame is left to these two.
"""

import re
from collections.abc import Callable
from struct import Struct
from typing import Any
from weakref import WeakKeyDictionary

from attrs import define, field

from twinlog.cluster.broker.send.layouts import HEADER_SIZE_MAX, Layout, PropertiesLayout, layout_of, properties_layout
from twinlog.cluster.broker.send.requests import SEND_V2, Send, SendRequests
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting.command import JSON, ONEWAY, RemotingCommand, decode
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RemotingProtocolError
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.record.scan import stored_tags_code

LEARN_AFTER = 16  # Frames of a connection that did not fit: then the next one is looked at. Twice as many each time.
CONNECTION_TEMPLATES_MAX, TEMPLATES_MAX = 4, 256  # Of a connection, of a broker.
_WORD = Struct(">I")
_HEADER_AT = _WORD.size
_new_tuple: Any = tuple.__new__  # Twice as fast as the NamedTuple's constructor.

Frame = bytes | memoryview


@define(eq=False)
class SendTemplate:
    """A header with gaps, and what all messages have in common that fit it."""

    topic: TopicConfig
    _layout: Layout
    _properties: PropertiesLayout
    _first: Send  # The one that it was made of.
    _match: "Callable[[Frame, int], re.Match[bytes] | None]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._match = re.compile(self._layout.pattern).match

    def read(self, connection: Connection, frame: Frame) -> Send | None:
        """Read a frame without its length word; None: it does not fit."""
        found, layout = self._match(frame, _HEADER_AT), self._layout
        if (
            found is None
            or _WORD.unpack_from(frame)[0] != (end := found.end()) - _HEADER_AT | layout.serialize_type << 24
        ):
            return None
        groups, properties = found.groups(), self._properties
        queue_id, values = int(groups[layout.queue_id]), groups[layout.values]
        if queue_id >= self.topic.write_queues:
            return None
        raw = properties.stored % values
        if not (raw.isascii() or _is_utf8(raw)):
            return None
        number = groups[layout.opaque]
        if layout.serialize_type == JSON:
            opaque = int(number)
        elif (
            int.from_bytes(groups[layout.properties_size]) == len(raw) + properties.more
            and int.from_bytes(groups[layout.fields_size]) == end - layout.fields_at
        ):
            opaque = int.from_bytes(number)
        else:
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
        command = RemotingCommand(
            SEND_V2, opaque, like.flag, None, frame, None, like.version, like.language, like.serialize_type
        )
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
        if send is None or ext is None or command.flag & ~ONEWAY:
            return None
        size, kind = _WORD.unpack_from(frame)[0] & 0xFFFFFF, command.serialize_type
        properties = properties_layout(ext["i"], requests.properties, kind)
        if properties is None or size > HEADER_SIZE_MAX:
            return None
        header = bytes(frame[_HEADER_AT : _HEADER_AT + size])
        layout = layout_of(header, ext, command.opaque, properties, kind)
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


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
