"""An operation of Admin for a request: with a time limit, and its errors in HTTP's words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from twinlog.cluster.admin import errors as told
from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.http.kept_admin import OpenAdmin
from twinlog.cluster.http.server.errors import HttpError

ASK_SECONDS_MAX = 20.0

STATUSES = {
    told.FAILED: 502,
    told.USAGE: 400,
    told.UNREACHABLE: 503,
    told.REFUSED: 409,
    told.TIMED_OUT: 504,
    told.PARTIAL: 502,
}
NOT_FOUND = {
    "NoGroupError",
    "NoMemberError",
    "NoMessageError",
    "NoQueueError",
    "NoRouteError",
    "NoTopicError",
}


@asynccontextmanager
async def asking(open_admin: OpenAdmin, seconds_max: float = ASK_SECONDS_MAX) -> AsyncIterator[Admin]:
    """The Admin for a block. Raises HttpError for all that a person can mend."""
    try:
        with trio.fail_after(seconds_max):
            async with open_admin() as admin:
                yield admin
    except HttpError:
        raise
    except trio.TooSlowError as error:
        raise HttpError(
            status=504,
            what=f"No answer within {seconds_max:g} s.",
            why="A member or name server is slow.",
            next_step="See who with: GET /v1/cluster",
        ) from error
    except Exception as error:
        found = http_error(error)
        if found is None:
            raise
        raise found from error


def http_error(error: BaseException) -> HttpError | None:
    """What the command line would tell of it, as an answer; None: a bug."""
    inner = told.innermost(error)
    if isinstance(inner, HttpError):
        return inner
    found = told.explain(inner, ())
    if found is None:
        return None
    status = 404 if type(inner).__name__ in NOT_FOUND else STATUSES[found.kind]
    if found.what == told.NOT_ALLOWED:
        status = 403
    return HttpError(status=status, what=found.what, why=found.why, next_step=found.next_step)
