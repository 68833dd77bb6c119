"""A nursery for the tasks of one connection."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from twinlog.ha.errors import HAError, first_error


@asynccontextmanager
async def open_peer_nursery() -> AsyncGenerator[trio.Nursery, None]:
    """Like trio.open_nursery, but what a task says about the peer comes out as it is, not in a group.

    The body's end ends the other tasks. Anything that is no HAError comes out as trio would have it.
    """
    found: HAError | None = None
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()
    except* HAError as group:
        found = first_error(group)
    if found is not None:
        raise found
