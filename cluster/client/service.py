"""Services of the client, which live as long as a block."""

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, Self

import anyio
import anyio.abc
from attrs import define, field

from twinlog.cluster.client.tasks import sole
from twinlog.cluster.remoting.streams import on_trio


@define(eq=False)
class Service:
    """Runs in the background of an `async with` block: ready when the block begins, ended when it is left.

    When the block is cancelled the service ends last, so that others inside can still use it to leave properly. An error of
    the service ends the block. With a task group, `await task_group.start(service.run)` does the same. On asyncio open() and
    aclose() do, too, and any task may call aclose(), or leave the block: fixtures and notebooks do so.
    """

    _host: "Host | None" = field(default=None, init=False, repr=False)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; calls started() when the service can be used."""
        raise NotImplementedError

    async def open(self) -> Self:
        """Begin to run in the background, on asyncio; aclose() ends it. Raises as the block does when it begins."""
        if on_trio():
            raise RuntimeError("trio starts nothing without a nursery: use `async with`, or nursery.start() with `run`")
        await self._enter(_on_asyncio(interrupts=False))
        return self

    async def aclose(self) -> None:
        """End, as at the end of the block; nothing if it does not run. Within the service itself, as in a handler: soon."""
        if self._host is not None:
            await self._host.leave(None)

    async def _enter(self, host: "Host") -> None:
        if self._host is not None:
            raise RuntimeError(
                f"this {type(self).__name__} was started before, and cannot be started again: make another one"
            )
        self._host = host
        await host.enter(self)

    async def __aenter__(self) -> Self:
        await self._enter(_OnTrio() if on_trio() else _on_asyncio(interrupts=True))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._host is not None
        return await self._host.leave(error)


class Host(Protocol):
    """The carrier of a service."""

    async def enter(self, service: Service) -> None:
        """Start the service; returns when it is ready. Raises its error."""

    async def leave(self, error: BaseException | None) -> bool | None:
        """End the service. A single error is raised itself, not in an ExceptionGroup. `error`: of the block."""


def _on_asyncio(*, interrupts: bool) -> Host:
    from twinlog.cluster.client.background import (
        Background,
    )  # asyncio takes time to import, which trio's programs do without.

    return Background.of_this_task() if interrupts else Background(None)


@define(eq=False)
class _OnTrio:
    """A nursery around the block."""

    _manager: AbstractAsyncContextManager[anyio.abc.TaskGroup] = field(factory=anyio.create_task_group, init=False)
    _scope: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)

    async def enter(self, service: Service) -> None:
        task_group = await self._manager.__aenter__()
        try:
            await task_group.start(self._run_in_scope, service)
        except BaseException as error:
            await self.leave(error)
            raise
        self._scope.shield = True

    async def _run_in_scope(self, service: Service, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with self._scope:
            await service.run(task_status=task_status)

    async def leave(self, error: BaseException | None) -> bool | None:
        self._scope.cancel()
        try:
            trace = error.__traceback__ if error else None
            return await self._manager.__aexit__(type(error) if error else None, error, trace)
        except BaseExceptionGroup as group:
            only = sole(group)
            if only is error and error is not None:
                return None  # The block raises it itself.
            if only is None:
                raise
            raise only from only.__cause__
