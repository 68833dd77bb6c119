"""Requests over one RemotingClient: what each family of them is built on."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from attrs import frozen

from twinlog.cluster.client.route import MessageQueue
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingError, RemotingProtocolError, RequestError

T = TypeVar("T")


class Caller(Protocol):
    """What is needed of RemotingClient."""

    async def request(self, address: str, command: RemotingCommand, *, timeout_ms: int = 3000) -> RemotingCommand: ...

    async def oneway(self, address: str, command: RemotingCommand, *, timeout_ms: int = 3000) -> None: ...

    async def begin(
        self, address: str, command: RemotingCommand, *, timeout_ms: int = 3000
    ) -> Callable[[], Awaitable[RemotingCommand]]: ...


@frozen
class Calls:
    """`namesrv` are asked in turn until one answers."""

    client: Caller
    namesrv: tuple[str, ...]
    timeout_ms: int = 3000

    async def _ask_namesrv(self, code: RequestCode, ext: dict[str, str] | None) -> RemotingCommand:
        failure: RemotingError | None = None
        for address in self.namesrv:
            try:
                return await self._call(address, code, ext)
            except RequestError:
                raise  # An answer; the others would give the same.
            except RemotingError as error:
                failure = error
        raise failure or RemotingConnectError("", "no name server is configured")

    async def _call(
        self,
        address: str,
        code: RequestCode,
        ext: dict[str, str] | None,
        body: bytes = b"",
        *,
        expected: Iterable[int] = (ResponseCode.SUCCESS,),
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        command = RemotingCommand(code, ext=ext, body=body)
        answer = await self.client.request(address, command, timeout_ms=timeout_ms or self.timeout_ms)
        if answer.code not in expected:
            raise RequestError(answer.code, answer.remark or "no reason given")
        return answer


def understood(read: Callable[[], T]) -> T:
    """Read an answer. Raises RemotingProtocolError when it is not what RocketMQ would have sent."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RemotingProtocolError(f"an answer has not the expected form: {type(error).__name__}: {error}") from error


def queue_fields(queue: MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic, "queueId": str(queue.queue_id)}
