"""Services of the client on asyncio: each in a task of its own.

A task group around the block would forbid that another task leaves it than entered it, as fixtures of pytest-asyncio and cells
of a notebook do.
"""

import asyncio
from contextvars import ContextVar
from typing import Any, Protocol, Self

import anyio
import anyio.abc
from attrs import define, field

from twinlog.cluster.client.tasks import sole

# Those that the current task is a part of.
_services: ContextVar[frozenset["Background"]] = ContextVar("twinlog_services", default=frozenset())


class Runnable(Protocol):
    """A service."""

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Run until cancelled; calls started() when the service can be used."""


@define(eq=False)
class Background:
    """A task that runs a service. `block`: the task whose block it serves, which is cancelled when the service fails."""

    _block: asyncio.Task[Any] | None
    _scope: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _is_leaving: bool = field(default=False, init=False)
    _interrupted: bool = field(default=False, init=False)

    @classmethod
    def of_this_task(cls) -> Self:
        """One for a block of the current task."""
        return cls(asyncio.current_task())

    async def enter(self, service: Runnable) -> None:
        """See Host."""
        ready = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(service, ready), name=f"twinlog {type(service).__name__}")
        try:
            await asyncio.wait([self._task, ready], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self._end()
            raise
        if not ready.done():
            ready.cancel()
            self._is_leaving = True
            self._raise(None)
            raise RuntimeError(f"{type(service).__name__} ended before it was ready")

    async def _run(self, service: Runnable, ready: asyncio.Future[None]) -> None:
        try:
            _services.set(_services.get() | {self})
            with self._scope:
                await service.run(task_status=Ready(ready))
        finally:
            if not self._is_leaving and ready.done() and self._block is not None and not self._block.done():
                self._interrupted = self._block.cancel()

    async def leave(self, error: BaseException | None) -> bool | None:
        """See Host."""
        if self in _services.get():  # A handler, say: it would wait for itself.
            self._scope.cancel()
            return None
        await self._end()
        if self._interrupted and self._block is asyncio.current_task():
            assert self._block is not None
            self._block.uncancel()
        self._raise(error)
        return None

    async def _end(self) -> None:
        self._is_leaving = True
        self._scope.cancel()
        assert self._task is not None
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._task])

    def _raise(self, error: BaseException | None) -> None:
        """Raise the service's error, if it has one; the cancellation of the block was only a consequence then."""
        assert self._task is not None
        failure = None if self._task.cancelled() else self._task.exception()
        if failure is None:
            return
        if isinstance(failure, BaseExceptionGroup):
            failure = sole(failure) or failure
        if error is not None and not isinstance(error, asyncio.CancelledError):
            raise BaseExceptionGroup("the block and its service failed", [error, failure])
        raise failure from failure.__cause__


@define
class Ready:
    """The task status that run() gets."""

    _future: asyncio.Future[None]

    def started(self, value: None = None) -> None:
        """Let enter() return."""
        if not self._future.done():
            self._future.set_result(None)
