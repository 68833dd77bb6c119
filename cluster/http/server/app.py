"""Endpoints and the application made of them: guarded, and with every error as JSON."""

import inspect
from collections.abc import Awaitable, Callable, Sequence

from attrs import frozen
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from twinlog.cluster.http.server.guard import Guard
from twinlog.cluster.http.server.responses import HttpError

Handler = Callable[[Request], Awaitable[Response]]


@frozen(kw_only=True)
class Parameter:
    """A parameter of the query, or a field of the body."""

    name: str
    doc: str


class Endpoint(Route):
    """One path with its handler for GET (and HEAD) or POST; OPTIONS and 405 list methods. The handler's docstring describes it.

    `parameters`: of the query, for POST of the body. `document`: the attrs class of its answer with 200.
    """

    def __init__(
        self,
        path: str,
        handler: Handler,
        *,
        method: str = "GET",
        parameters: Sequence[Parameter] = (),
        document: type | None = None,
    ) -> None:
        self.method, self.parameters, self.document = method, tuple(parameters), document
        self.doc = inspect.getdoc(handler) or ""
        allow = ", ".join(("GET", "HEAD", "OPTIONS") if method == "GET" else (method, "OPTIONS"))

        async def endpoint(request: Request) -> Response:
            if request.method == "OPTIONS":
                return Response(status_code=204, headers={"allow": allow})
            return await handler(request)

        super().__init__(path, endpoint, methods=[method, "OPTIONS"], name=handler.__name__)


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
    """Answer 500; the traceback goes to the log."""
    return HttpError(
        status=500, what="The request failed.", why="That is an error in twinlog.", next_step="See the log."
    ).response()
