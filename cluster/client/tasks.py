"""Several requests at once, and their errors."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn, TypeVar

import anyio


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
