"""Asking again and again, for a screen that stays."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from twinlog.cluster.observe.refusals import words_of
from twinlog.cluster.remoting.errors import RemotingError

T = TypeVar("T")


async def watch(ask: Callable[[], Awaitable[T]], seconds: float, show: Callable[[T | str], None]) -> None:
    """Ask now and every so many seconds, for ever, and show each answer; a later failure is shown in words.

    Raises RemotingError when the first time fails.
    """
    show(await ask())
    while True:
        await trio.sleep(seconds)
        try:
            show(await ask())
        except RemotingError as error:
            show(words_of(error))
