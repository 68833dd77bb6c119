"""A route that knows its methods and what it is for: OPTIONS and 405 answer by it, and the reference page lists it."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

Handler = Callable[[Request], Awaitable[Response]]


@frozen(kw_only=True)
class Parameter:
    """Something in the query that a route understands."""

    name: str
    doc: str


class Named(Protocol):
    """A parameter, or a field of the body."""

    @property
    def name(self) -> str: ...
    @property
    def doc(self) -> str: ...


class Endpoint(Route):
    """One path, with its handler for GET (and HEAD) or POST; OPTIONS tells which. The handler's docstring says what for.

    `parameters`: of the query, for POST of the body. `document`: the attrs class of what it answers with 200.
    """

    def __init__(
        self,
        path: str,
        handler: Handler,
        *,
        method: str = "GET",
        parameters: Sequence[Named] = (),
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


def endpoints(routes: Sequence[BaseRoute]) -> list[Endpoint]:
    """Those that are ours, in their order."""
    return [each for each in routes if isinstance(each, Endpoint)]
