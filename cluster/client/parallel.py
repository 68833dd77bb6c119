"""Several requests at once, as one call with one result."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

T = TypeVar("T")


async def in_parallel(calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run all of them at the same time; their results in the order of the calls.

    The first error cancels the rest and is raised as it is, not in an ExceptionGroup.
    """
    calls = list(calls)
    results: dict[int, T] = {}
    errors: list[Exception] = []

    async def run(number: int, call: Callable[[], Awaitable[T]]) -> None:
        try:
            results[number] = await call()
        except Exception as error:
            errors.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for number, call in enumerate(calls):
            nursery.start_soon(run, number, call)
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(calls))]
