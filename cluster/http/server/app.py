"""An application out of routes: guarded, and with every error as JSON."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from twinlog.cluster.http.server.errors import HttpError
from twinlog.cluster.http.server.guard import Guard

PATH_LENGTH_SHOWN = 200
NEXT_STEPS = {
    404: "See what there is with: GET /",
    405: "See the Allow header.",
}


def guarded_app(routes: Sequence[BaseRoute], *, allow_hosts: tuple[str, ...] = ()) -> Guard:
    """The ASGI application to serve."""
    app = Starlette(
        routes=list(routes),
        exception_handlers={HTTPException: _of_starlette, HttpError: _of_ours, Exception: _of_a_bug},
    )
    app.router.redirect_slashes = False
    return Guard(app, allow_hosts)


async def _of_starlette(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:PATH_LENGTH_SHOWN]
    what = {404: f"There is nothing at {path}.", 405: f"{request.method} is not for {path}."}
    return HttpError(
        status=error.status_code,
        what=what.get(error.status_code, f"{error.detail}."),
        next_step=NEXT_STEPS.get(error.status_code, ""),
        headers=error.headers or {},
    ).response()


async def _of_ours(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return error.response()


async def _of_a_bug(_request: Request, _error: Exception) -> Response:
    """Its traceback goes to the log."""
    return HttpError(
        status=500, what="The request failed.", why="That is a fault of twinlog's.", next_step="Look at the log."
    ).response()
