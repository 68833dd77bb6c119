"""Requests by their headers: `call` sends one and returns the response, whose code is one of those expected.

The header classes know code, wire names and types; client and server share them. Source: MQClientAPIImpl (RocketMQ 4.9.8).
"""

from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

from attrs import define

from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import HeaderError, RemotingProtocolError, RequestError
from twinlog.cluster.remoting.header_fields import RequestHeader, decode_header

T = TypeVar("T")
SUCCESS = frozenset({ResponseCode.SUCCESS})


class Answer(Protocol):
    """The answer to a request that was sent. Call it once, under a time limit of your own."""

    @property
    def is_here(self) -> bool:
        """True when calling it does not wait."""

    async def __call__(self) -> RemotingCommand: ...


class Caller(Protocol):
    """The part of RemotingClient that calls need."""

    async def request(
        self, address: str, command: RemotingCommand, *, timeout_ms: float = 3_000
    ) -> RemotingCommand: ...

    async def oneway(self, address: str, command: RemotingCommand, *, timeout_ms: float = 3_000) -> None: ...

    async def begin(self, address: str, command: RemotingCommand, *, timeout_ms: float = 3_000) -> Answer: ...


@define
class Response:
    """The response to a call. Its readers raise RemotingProtocolError for what RocketMQ would not have sent."""

    code: int
    remark: str | None
    ext: dict[str, str] | None
    body: bytes | memoryview

    @property
    def is_success(self) -> bool:
        return self.code == ResponseCode.SUCCESS

    def header(self, kind: type[T]) -> T:
        """The header fields as that class."""
        try:
            return decode_header(kind, self.ext)
        except HeaderError as error:
            raise RemotingProtocolError(f"a response has not the expected header: {error.remark}") from error

    def read(self, parse: Callable[[bytes], T]) -> T:
        """The body, parsed."""
        return _parsed(parse, bytes(self.body))

    def json(self, parse: Callable[[Any], T]) -> T:
        """The JSON value that the body is, parsed."""
        return _parsed(lambda body: parse(fastjson.loads(body)), self.body)


def _parsed(parse: Callable[[Any], T], body: Any) -> T:
    try:
        return parse(body)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise RemotingProtocolError(f"a response has not the expected form: {type(error).__name__}: {error}") from error


def response(command: RemotingCommand, expected: Collection[int] = SUCCESS) -> Response:
    """Raises RequestError for a code that is not expected."""
    if command.code not in expected:
        raise RequestError(command.code, command.remark or "no reason given")
    return Response(command.code, command.remark, command.ext, command.body)


async def call(
    client: Caller,
    address: str,
    header: RequestHeader,
    body: bytes = b"",
    *,
    expected: Collection[int] = SUCCESS,
    timeout_ms: float = 3_000,
) -> Response:
    """Send one request and wait for its response.

    Raises RequestError for a code that is not expected, RemotingConnectError without a connection, and RemotingTimeoutError
    without a response in time.
    """
    return response(await client.request(address, header.command(body), timeout_ms=timeout_ms), expected)
