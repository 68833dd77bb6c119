"""An operation of Admin for a request: with a time limit, and its errors in HTTP's words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from cluster.admin import Admin
from cluster.http.errors import HttpError
from cluster.http.kept_admin import OpenAdmin
from cluster.remoting.errors import RemotingError

ASK_SECONDS_MAX = 20.0


@asynccontextmanager
async def asking(open_admin: OpenAdmin, seconds_max: float = ASK_SECONDS_MAX) -> AsyncIterator[Admin]:
    """The Admin for a block. Raises HttpError for all that a person can mend."""
    try:
        with trio.fail_after(seconds_max):
            async with open_admin() as admin:
                yield admin
    except trio.TooSlowError as error:
        raise HttpError(
            status=504,
            what=f"No answer within {seconds_max:g} s.",
            why="A member or name server is slow.",
            next_step="See who with: GET /v1/cluster",
        ) from error
    except RemotingError as error:
        raise HttpError(
            status=503,
            what="The cluster cannot be asked.",
            why=str(error),
            next_step="Is the name server running, and reachable from here?",
        ) from error
