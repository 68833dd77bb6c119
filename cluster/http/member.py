"""HTTP of one member, a broker or a name server: its routes, and what runs behind them."""

import socket
from collections.abc import Sequence

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from cluster.http.app import guarded_app
from cluster.http.config import HttpConfig
from cluster.http.errors import HttpError, json_response
from cluster.http.events import Feed, events_route
from cluster.http.kept_admin import KeptAdmin
from cluster.http.routes import Endpoint
from cluster.http.serve import Limits, serve
from cluster.http.source import Source
from cluster.http.tokens import Tokens
from cluster.http.v1 import v1_routes


async def run_member(
    source: Source,
    config: HttpConfig,
    listener: socket.socket,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; started() gives the port."""
    admin = KeptAdmin(source.namesrv)
    feed = Feed(admin.open, listeners_max=config.listeners_max)
    routes = [
        *own_routes(source),
        *v1_routes(admin.open, Tokens(config.token_file)),
        events_route(feed),
    ]
    async with trio.open_nursery() as nursery:
        await nursery.start(admin.run)
        nursery.start_soon(feed.run)
        limits = Limits(connections_max=config.connections_max)
        app = guarded_app(routes, allow_hosts=config.allow_hosts)
        port = await nursery.start(
            lambda task_status: serve(app, listener=listener, limits=limits, task_status=task_status)
        )
        task_status.started(port)


def own_routes(source: Source) -> Sequence[BaseRoute]:
    """What is of this process alone."""

    async def livez(_request: Request) -> Response:
        """200 while the process's event loop runs: it was seen within 5 s. No disk and no other process is asked."""
        alive = source.is_alive
        body = {
            "schema": 1,
            "live": alive,
            "kind": source.kind,
            "seconds_since_tick": round(source.seconds_since_tick, 3),
        }
        return json_response(body, 200 if alive else 503)

    async def metrics(request: Request) -> Response:
        """Metrics for Prometheus, as OpenMetrics when the Accept header asks for that."""
        try:
            from cluster.metrics import expose
        except ImportError as error:
            raise HttpError(status=503, what="There are no metrics yet.") from error
        answer = await source.snapshot()
        if answer.value is None:
            raise HttpError(
                status=503,
                what="There are no metrics yet.",
                why="The service has not answered since its start.",
                next_step="Look at /livez.",
            )
        body, content_type = expose(answer.value, request.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    return [Endpoint("/livez", livez), Endpoint("/metrics", metrics)]
