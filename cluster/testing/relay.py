"""TCP relays between the members of a cluster, which can part them.

Members reach each other, and the name server, only by relays; clients connect to them directly. A relay finds out who connects by
the owner of the connection's other end. While the network is cut between two, their bytes wait, as they do in a real network
until TCP gives up: connections neither end nor fail, and nobody answers.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskGroup
from attrs import define, field, frozen

CHUNK = 1 << 16
CONNECT_SECONDS = 5.0
FAILED = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)


@frozen
class Way:
    """From a port that members are told to the one at which the member listens."""

    told: int
    real: int


@define(eq=False)
class Network:
    """All relays; its coroutines run in one loop. `owner` names the member that has this local port, "" for others."""

    host: str
    owner: Callable[[int], str]
    _tasks: TaskGroup = field(init=False)
    _isolated: frozenset[str] = field(default=frozenset(), init=False)
    _changed: anyio.Event = field(init=False)
    _open: dict[str, tuple[anyio.CancelScope, anyio.Event]] = field(factory=dict, init=False)  # And that it is shut.

    @asynccontextmanager
    async def running(self) -> "AsyncIterator[Network]":
        """Relay for as long as the block lasts."""
        self._changed = anyio.Event()
        async with anyio.create_task_group() as self._tasks:
            yield self
            self._tasks.cancel_scope.cancel()

    async def isolate(self, members: frozenset[str]) -> None:
        """Cut these off from all others; none: all are connected."""
        self._isolated = members
        self._changed.set()
        self._changed = anyio.Event()

    async def open(self, member: str, ways: tuple[Way, ...]) -> None:
        """Listen for a member, which is about to run. Raises OSError."""
        listeners = [await anyio.create_tcp_listener(local_host=self.host, local_port=way.told) for way in ways]
        scope, is_shut = self._open[member] = anyio.CancelScope(), anyio.Event()

        async def serve() -> None:
            async with AsyncExitStack() as stack:
                for listener in listeners:
                    await stack.enter_async_context(listener)
                with scope:
                    async with anyio.create_task_group() as serving:
                        for way, listener in zip(ways, listeners, strict=True):
                            serving.start_soon(listener.serve, partial(self._carry, member, way.real))
            is_shut.set()

        self._tasks.start_soon(serve)

    async def shut(self, member: str) -> None:
        """Refuse connections to a member that does not run, and end those that there are: what a kernel does."""
        if member in self._open:
            scope, is_shut = self._open.pop(member)
            scope.cancel()
            await is_shut.wait()

    def _is_cut(self, one: str, other: str) -> bool:
        return (one in self._isolated) != (other in self._isolated)  # One that is not known is on the side of most.

    async def _connected(self, one: str, other: str) -> None:
        while self._is_cut(one, other):
            await self._changed.wait()

    async def _carry(self, member: str, port: int, here: SocketStream) -> None:
        async with here:
            with suppress(*FAILED):
                source = await anyio.to_thread.run_sync(self.owner, here.extra(SocketAttribute.remote_port))
                await self._connected(source, member)
                with anyio.fail_after(CONNECT_SECONDS):
                    there = await anyio.connect_tcp(self.host, port)
                async with there, anyio.create_task_group() as pumps:
                    pumps.start_soon(self._pump, here, there, source, member, pumps)
                    pumps.start_soon(self._pump, there, here, source, member, pumps)

    async def _pump(self, source: SocketStream, sink: SocketStream, one: str, other: str, pumps: TaskGroup) -> None:
        """Carry bytes one way; the end of one way ends both, as no peer here half-closes."""
        with suppress(anyio.EndOfStream, *FAILED):
            while True:
                data = await source.receive(CHUNK)
                await self._connected(one, other)
                await sink.send(data)
        await self._connected(one, other)
        pumps.cancel_scope.cancel()
