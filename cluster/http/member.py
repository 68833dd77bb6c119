"""HTTP of one member, a broker or a name server: its routes, and what runs behind them."""

import socket
from collections.abc import Sequence

import structlog
import trio
from attrs import evolve, frozen
from starlette.requests import Request
from starlette.responses import Response

from twinlog.cluster.admin.documents import document
from twinlog.cluster.http.admin import KeptAdmin, OpenAdmin
from twinlog.cluster.http.config import HttpConfig
from twinlog.cluster.http.events import Feed, events_route
from twinlog.cluster.http.operations import Operations
from twinlog.cluster.http.probes import Probes
from twinlog.cluster.http.server.app import Endpoint, guarded_app
from twinlog.cluster.http.server.responses import HttpError, json_response
from twinlog.cluster.http.server.serve import ServerLimits, serve
from twinlog.cluster.http.server.tokens import TokenFileError, Tokens
from twinlog.cluster.http.source import Source
from twinlog.cluster.http.v1 import v1_routes
from twinlog.cluster.metrics import expose

log = structlog.get_logger(__name__)


@frozen(kw_only=True)
class EndpointLine:
    """One endpoint. `document`: the name of its answer in /v1/schema; null: it has none."""

    method: str
    path: str
    parameters: tuple[str, ...]
    document: str | None
    meaning: str


@frozen
class EndpointList:
    """The endpoints of this port."""

    endpoints: tuple[EndpointLine, ...]


async def run_member(
    source: Source,
    config: HttpConfig,
    listener: socket.socket,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; started() gives the port."""
    tokens = Tokens(config.token_file, guards_bodies=not config.is_loopback or source.guards_bodies)
    _check_token_file(tokens)
    admin, operations = KeptAdmin(source.namesrv, source.secret_file), Operations()
    feed = Feed(admin.open, operations.running, config.listeners_max)
    operations.publish = feed.publish
    app = guarded_app(member_routes(source, admin.open, tokens, operations, feed), allow_hosts=config.allow_hosts)
    async with trio.open_nursery() as nursery:
        await nursery.start(admin.run)
        nursery.start_soon(feed.run)
        limits = ServerLimits(connections_max=config.connections_max)
        task_status.started(await nursery.start(serve, app, listener, limits))


def member_routes(
    source: Source, open_admin: OpenAdmin, tokens: Tokens, operations: Operations, feed: Feed
) -> Sequence[Endpoint]:
    """All endpoints of a member."""
    found = [
        *Probes(source, open_admin).routes(),
        _metrics_route(source),
        *v1_routes(open_admin, tokens, operations),
        events_route(feed),
    ]
    return [*found, _index_route(found)]


def _check_token_file(tokens: Tokens) -> None:
    if tokens.path is None:
        return
    try:
        tokens.read()
    except TokenFileError as error:
        log.warning("changes over HTTP are refused until the token file is corrected", why=str(error))


def _metrics_route(source: Source) -> Endpoint:
    async def metrics(request: Request) -> Response:
        """Metrics for Prometheus, as OpenMetrics when the Accept header asks for that. While the loop stalls, the last ones."""
        answer = await source.snapshot()
        if answer.value is None:
            raise HttpError(
                status=503,
                what="There are no metrics yet.",
                why="The service has not answered since its start.",
                next_step="See /livez.",
            )
        stalled, age = round(source.stalled_seconds, 3), round(answer.age_seconds, 3)
        snapshot = evolve(answer.value, stalled_seconds=stalled, age_seconds=age)
        body, content_type = expose(snapshot, request.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    return Endpoint("/metrics", metrics)


def _index_route(others: Sequence[Endpoint]) -> Endpoint:
    async def index(_request: Request) -> Response:
        """The endpoints of this port."""
        return json_response(document(EndpointList(tuple(line_of(each) for each in (route, *others)))))

    route = Endpoint("/", index, document=EndpointList)
    return route


def line_of(endpoint: Endpoint) -> EndpointLine:
    """The line for an endpoint."""
    return EndpointLine(
        method=endpoint.method,
        path=endpoint.path,
        parameters=tuple(parameter.name for parameter in endpoint.parameters),
        document=endpoint.name if endpoint.document is not None else None,
        meaning=endpoint.doc,
    )
