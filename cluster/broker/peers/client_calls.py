"""Requests of this broker to its clients, on the connections that the clients have made.

A client that does not answer costs a slot until its time is over, and slots are few: all calls together, the bytes that
they keep, and those to one client are bounded. Source: Broker2Client.java (RocketMQ 4.9.8), which has threads for a bound.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field

from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.errors import RequestError

ANSWER_MS_MAX = 10_000


@define(eq=False, kw_only=True)
class ClientCalls:
    """Asks clients, at most so many at a time."""

    calls_max: int = 4096
    bytes_max: int = 64 << 20  # Of bodies.
    to_one_max: int = 512
    bytes_kept: int = field(default=0, init=False)
    _to: Counter[Connection] = field(factory=Counter, init=False)

    @property
    def under_way(self) -> int:
        """Calls without an answer yet."""
        return self._to.total()

    async def call(
        self, connection: Connection, command: RemotingCommand, *, timeout_ms: int = ANSWER_MS_MAX
    ) -> RemotingCommand:
        """The client's answer, whatever its code.

        Raises RequestError (SYSTEM_BUSY) when too many calls are under way, RemotingTimeoutError, RemotingConnectError.
        """
        with self._slot(connection, len(command.body)):
            return await connection.call(command, timeout_ms)

    @contextmanager
    def _slot(self, connection: Connection, size: int) -> Iterator[None]:
        if self._to[connection] >= self.to_one_max:
            raise _busy(f"{self.to_one_max} requests wait for the answer of {connection.remote_address}")
        if self.under_way >= self.calls_max or self.bytes_kept + size > self.bytes_max:
            raise _busy(f"{self.under_way} requests wait for answers of clients")
        self._to[connection] += 1
        self.bytes_kept += size
        try:
            yield
        finally:
            self.bytes_kept -= size
            self._to[connection] -= 1
            if not self._to[connection]:
                del self._to[connection]


def _busy(why: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_BUSY, f"system busy, try again later: {why}")
