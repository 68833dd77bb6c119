"""An answer that goes on until its reader leaves, such as server-sent events.

No async generator: one that is cancelled between two pieces is closed when the garbage collector finds it, with what it holds.
"""

from collections.abc import Awaitable, Callable

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Write = Callable[[bytes], Awaitable[None]]


class EventStream(Response):
    """text/event-stream. `work` writes it, and is cancelled when the reader leaves."""

    media_type = "text/event-stream"

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

            async def until_it_leaves() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_it_leaves)
            await self._work(write)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b""})
