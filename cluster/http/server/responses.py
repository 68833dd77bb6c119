"""Responses: errors as JSON with what, why and next step, like the command line's; and server-sent events."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio
from attrs import field, frozen
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from twinlog.cluster.admin.documents import dumps

JSON = "application/json"


@frozen(kw_only=True)
class HttpError(Exception):
    """Ends a request with this response."""

    status: int
    what: str
    why: str = ""
    next_step: str = ""
    headers: Mapping[str, str] = field(factory=dict)

    def response(self) -> Response:
        """The response, as JSON."""
        body = {"error": self.what, "why": self.why, "next": self.next_step}
        return json_response(body, self.status, self.headers)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value that may hold attrs objects."""
    return Response(dumps(value) + b"\n", status, headers, media_type=JSON)


async def until_disconnected(receive: Receive) -> None:
    """Wait until the peer of an ASGI request leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


Write = Callable[[bytes], Awaitable[None]]


class EventStream(Response):
    """text/event-stream. `work` writes it, and is cancelled when the reader leaves."""

    media_type = "text/event-stream"
    HEARTBEAT_SECONDS = 10.0
    HEARTBEAT = b": still here\n\n"
    RETRY = b"retry: 2000\n\n"  # ms.

    def __init__(self, work: Callable[[Write], Awaitable[None]]) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return

        async def write(text: bytes) -> None:
            await send({"type": "http.response.body", "body": text, "more_body": True})

        async with trio.open_nursery() as nursery:

            async def cancel_once_disconnected() -> None:
                await until_disconnected(receive)
                nursery.cancel_scope.cancel()

            nursery.start_soon(cancel_once_disconnected)
            await self._work(write)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b""})
