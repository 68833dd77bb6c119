"""Structured concurrency of the client: services that live as long as a block, and several requests at once."""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

import anyio
import anyio.abc
from attrs import define, field


@define(eq=False)
class Service:
    """Runs in the background of an `async with` block: ready when the block begins, ended when it is left.

    When the block is cancelled the service ends last, so that others inside can still use it to leave properly. An error of
    the service ends the block. With a task_group, `await task_group.start(service.run)` does the same.
    """

    _manager: AbstractAsyncContextManager[anyio.abc.TaskGroup] | None = field(default=None, init=False, repr=False)
    _scope: anyio.CancelScope | None = field(default=None, init=False, repr=False)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled; calls started() when the service can be used."""
        raise NotImplementedError

    async def _run_in_scope(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        assert self._scope is not None
        with self._scope:
            await self.run(task_status=task_status)

    async def __aenter__(self) -> Self:
        assert self._manager is None, "a service is entered once"
        self._manager, self._scope = anyio.create_task_group(), anyio.CancelScope()
        task_group = await self._manager.__aenter__()
        try:
            await task_group.start(self._run_in_scope)
        except BaseException as error:
            await self._leave(error)
            raise
        self._scope.shield = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._leave(error)

    async def _leave(self, error: BaseException | None) -> bool | None:
        """End the service. A single error is raised itself, not in an ExceptionGroup."""
        assert self._manager is not None
        assert self._scope is not None
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


def sole(group: BaseExceptionGroup[Any]) -> BaseException | None:
    """The only exception in a group, at any depth; None when there are several."""
    if len(group.exceptions) != 1:
        return None
    (inner,) = group.exceptions
    return sole(inner) if isinstance(inner, BaseExceptionGroup) else inner


T = TypeVar("T")


async def in_parallel(calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run calls concurrently; returns their results in the order of the calls.

    The first error cancels the rest and is raised itself, not in an ExceptionGroup.
    """
    calls = list(calls)
    results: dict[int, T] = {}
    errors: list[Exception] = []

    async def run(number: int, call: Callable[[], Awaitable[T]]) -> None:
        try:
            results[number] = await call()
        except Exception as error:
            errors.append(error)
            task_group.cancel_scope.cancel()

    async with anyio.create_task_group() as task_group:
        for number, call in enumerate(calls):
            task_group.start_soon(run, number, call)
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(calls))]


async def every(seconds: float, do: Callable[[], Awaitable[object]]) -> NoReturn:
    """Call `do` without end, after a pause each time."""
    while True:
        await anyio.sleep(seconds)
        await do()
