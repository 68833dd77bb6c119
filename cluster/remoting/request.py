"""Requests as handlers see them, replies, and the table of handlers by request code.

A handler is a public method `(header, request) -> Reply | None`, plain or async; the class of `header` says which request code it
serves. Source: NettyRemotingAbstract, RocketMQ 4.9.8.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_type_hints

import structlog
from attrs import define

from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import ONEWAY, RemotingCommand, encode, encode_header
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.header_fields import RequestHeader, as_text
from twinlog.cluster.remoting.member_auth import Signed
from twinlog.cluster.remoting.response_template import TemplateReply

log = structlog.get_logger()


@define
class Reply:
    """The reply of a handler. A body may be several views, which are sent without being copied together."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    ext: dict[str, str] | None = None
    body: bytes | Sequence[bytes | memoryview] = b""

    @classmethod
    def success(cls, body: bytes | Sequence[bytes | memoryview] = b"", **fields: object) -> "Reply":
        """A reply with code 0 and these header fields; None is left out."""
        return cls(ext={name: as_text(value) for name, value in fields.items() if value is not None}, body=body)

    def frame(self, command: RemotingCommand) -> Sequence[bytes | memoryview]:
        """Encode the response to a command, in pieces. Raises RemotingProtocolError when it is too long for peers."""
        body = [self.body] if isinstance(self.body, bytes) else self.body
        response = RemotingCommand.response_to(command, self.code, remark=self.remark, ext=self.ext)
        return encode_header(response, sum(map(len, body))), *(part for part in body if len(part))


AnyReply = Reply | TemplateReply


@define(eq=False)
class Request:
    """A request: its connection, its command, and the way to reply later. `signed`: a member's valid signature."""

    connection: Connection
    command: RemotingCommand
    signed: Signed | None = None

    @property
    def body(self) -> bytes | memoryview:
        """The body as received."""
        return self.command.body

    def reply(self, reply: AnyReply) -> None:
        """Send a reply; a oneway request gets none. Raises RemotingProtocolError when it is too long for peers."""
        if not self.command.flag & ONEWAY:
            frame = reply.frame(self.command) if self.signed is None else self._signed_frame(reply, self.signed)
            self.connection.write(*frame)

    def _signed_frame(self, reply: AnyReply, signed: Signed) -> tuple[bytes]:
        assert isinstance(reply, Reply)  # Templates answer pulls.
        body = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
        response = RemotingCommand.response_to(self.command, reply.code, remark=reply.remark, ext=reply.ext, body=body)
        signed.sign_response(response)
        return (encode(response),)

    def answer_with(self, handler: "Callable[[], AnyReply | None]") -> None:
        """Carry out a request that was held, as if it had come now."""
        try:
            reply = handler()
        except Exception as error:
            reply = explain(error, self)
        if reply is not None:
            self.reply(reply)


class Handler(NamedTuple):
    """An entry of the dispatch table."""

    function: Callable[..., Any]
    header: type[RequestHeader]


BatchHandler = Callable[[Connection, list[Any]], None]
QuickReader = Callable[[bytes | memoryview], Any]
"""Reads a frame for the batch handler; None: it has to be decoded. What it returns has the request's `command`."""
Check = Callable[[Request], Reply | None]


def handlers_of(*processors: object) -> dict[int, Handler]:
    """Request code to handler: the public methods `(self, header, request)` of these objects, by the annotation of `header`."""
    table: dict[int, Handler] = {}
    for processor in processors:
        for name, function in inspect.getmembers(type(processor), inspect.isfunction):
            if name.startswith("_") or list(inspect.signature(function).parameters)[1:2] != ["header"]:
                continue
            header = get_type_hints(function)["header"]
            assert header.code not in table, f"two handlers for {header.code!r}"
            table[header.code] = Handler(getattr(processor, name), header)
    return table


def explain(error: Exception, request: Request) -> Reply:
    """The reply for a handler that raised: the code of a RequestError; any other error is logged, and is code 1."""
    if isinstance(error, RequestError):
        return Reply(error.code, error.remark)
    log.error(
        "request failed",
        code=request.command.code,
        peer=request.connection.remote_address,
        exc_info=(type(error), error, error.__traceback__),
    )
    return failure(error)


def failure(error: Exception) -> Reply:
    """The reply for an unexpected error: code 1."""
    return Reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
