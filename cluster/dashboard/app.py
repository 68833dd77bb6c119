"""The dashboard's process: pages and their stream, and the same /v1 and /events as on every member."""

import socket
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import trio
from attrs import evolve, frozen
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from twinlog.cluster.admin.admin import Admin, open_admin
from twinlog.cluster.admin.messages import NoMessageError
from twinlog.cluster.admin.roles import RoleOrder
from twinlog.cluster.admin.topics import NoTopicError
from twinlog.cluster.config.contexts import Context
from twinlog.cluster.config.credentials import has_credentials
from twinlog.cluster.dashboard.messages import MessageQuery, QuestionError, found_messages, peek_form, problem
from twinlog.cluster.dashboard.model.memory import sample_of
from twinlog.cluster.dashboard.model.series import SECONDS_KEPT, columns
from twinlog.cluster.dashboard.model.verdict import verdict_of
from twinlog.cluster.dashboard.view.html import Markup
from twinlog.cluster.dashboard.view.page import PageState, document, sections
from twinlog.cluster.dashboard.view.roles import operation_section, plan_section, refusal_section
from twinlog.cluster.dashboard.watcher import Watcher
from twinlog.cluster.http.admin import OpenAdmin, asking
from twinlog.cluster.http.config import HttpConfig
from twinlog.cluster.http.events import Feed, events_route
from twinlog.cluster.http.operations import Operations
from twinlog.cluster.http.server.app import Endpoint, guarded_app
from twinlog.cluster.http.server.guard import HEADERS
from twinlog.cluster.http.server.responses import EventStream, HttpError, Write, json_response
from twinlog.cluster.http.server.serve import ServerLimits, serve
from twinlog.cluster.http.server.tokens import Tokens
from twinlog.cluster.http.v1 import v1_routes
from twinlog.cluster.remoting.server import open_listener

LOOK_TIMEOUT_MS = 2000  # A member that does not answer delays every refresh by this time.
PEEK_SECONDS_MAX = 5.0
PEEKS_MAX = 4  # At a time: each may hold many large messages.
# Nothing from elsewhere, no inline script and no inline style: what a hostile name brings along does nothing.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = (
    *HEADERS,
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


@frozen(kw_only=True)
class DashboardConfig:
    """Options of `twinlog dashboard`. `context`: its credentials sign requests."""

    namesrv: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 9877
    token_file: Path | None = None
    audit_directory: Path | None = None
    allow_hosts: tuple[str, ...] = ()
    context: Context | None = None
    secret_file: Path | None = None
    listen_fd: int | None = None  # A socket that listens already, in place of host and port.


async def run_dashboard(
    config: DashboardConfig, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; started() gives the port. Raises OSError for a port that cannot be had."""
    async with (
        open_admin(config.namesrv, context=config.context, secret_file=config.secret_file) as admin,
        open_admin(config.namesrv, timeout_ms=LOOK_TIMEOUT_MS, context=config.context) as looking,
        trio.open_nursery() as nursery,
    ):
        watcher = Watcher(
            opened(looking), config.namesrv, config.audit_directory, can_change=config.token_file is not None
        )
        app, feed = application(watcher, opened(admin), _tokens(config), config.allow_hosts)
        port = await nursery.start(serve, app, _listener(config), ServerLimits())
        nursery.start_soon(watcher.run)
        nursery.start_soon(feed.run)
        task_status.started(port)


def _listener(config: DashboardConfig) -> socket.socket:
    if config.listen_fd is None:
        return open_listener(config.host, config.port)
    listener = socket.socket(fileno=config.listen_fd)
    listener.setblocking(False)
    return listener


def opened(admin: Admin) -> OpenAdmin:
    """An Admin that is there already, in the form that routes open it."""
    return lambda: nullcontext(admin)


def _tokens(config: DashboardConfig) -> Tokens:
    """Tokens, as on every member: other machines see messages with a token only. Where the dashboard signs its requests, so does
    this machine.
    """
    of_context = config.context is not None and config.context.credentials is not None
    asks_as_somebody = of_context or has_credentials()
    is_open = HttpConfig(bind_address=config.host).is_loopback and not asks_as_somebody
    return Tokens(config.token_file, guards_bodies=not is_open)


def application(
    watcher: Watcher, open_it: OpenAdmin, tokens: Tokens, allow_hosts: tuple[str, ...] = ()
) -> tuple[ASGIApp, Feed]:
    """Pages, stream, static files, and the shared routes; the feed's run() has to run beside it."""
    operations = Operations()
    feed = Feed(open_it, operations.running)
    operations.publish = feed.publish
    routes = [
        *page_routes(watcher, open_it, tokens),
        *role_routes(watcher, open_it, operations),
        *v1_routes(open_it, tokens, operations),
        events_route(feed),
    ]
    return evolve(guarded_app(routes, allow_hosts=allow_hosts), headers=PAGE_HEADERS), feed


def page_routes(watcher: Watcher, open_it: OpenAdmin, tokens: Tokens) -> Sequence[BaseRoute]:
    """Routes that only the dashboard has."""
    peeks = trio.CapacityLimiter(PEEKS_MAX)

    async def found(request: Request) -> Markup:
        try:
            question = MessageQuery.of(request.query_params)
            if not question.topic:
                return problem(
                    "Name a topic to see its newest messages. Nothing is consumed, and nobody's place moves."
                )
            if tokens.guards_bodies and tokens.path is None:
                return problem(
                    "Messages are not shown: this address is open to other machines, and there is no --token-file."
                )
            tokens.check_bodies(request.headers.get("authorization"))
            async with peeks:
                return await look_at(open_it, question)
        except HttpError as error:
            return problem(f"{error.what} Only a dashboard that listens at 127.0.0.1 shows messages without a token.")
        except QuestionError as error:
            return problem(str(error))

    async def page(request: Request) -> Response:
        """The dashboard."""
        state = await watcher.refresh()
        try:
            question = MessageQuery.of(request.query_params)
        except QuestionError:
            question = MessageQuery(topic=request.query_params.get("topic", ""))
        return HTMLResponse(
            document(
                state,
                peek_form(question, state.topics, needs_token=tokens.guards_bodies and tokens.path is not None),
                await found(request),
            )
        )

    async def messages(request: Request) -> Response:
        """The messages that the form asks for, without the page round them."""
        return HTMLResponse(await found(request))

    async def livez(_request: Request) -> Response:
        """200 while the dashboard runs, whatever the cluster does."""
        return json_response({"schema": 1, "live": True, "kind": "dashboard"})

    static = Files(directory=str(files("twinlog.cluster.dashboard") / "static"))
    return [
        Endpoint("/", page),
        Endpoint("/messages", messages),
        live_route(watcher),
        Endpoint("/livez", livez),
        Mount("/static", static),
    ]


async def look_at(open_it: OpenAdmin, question: MessageQuery) -> Markup:
    """Messages, or why there are none."""
    try:
        async with asking(open_it, PEEK_SECONDS_MAX) as admin:
            messages = admin.messages
            if question.key:
                found = await messages.by_key(question.topic, question.key, question.count)
            elif question.queue is not None and question.offset is not None:
                found = await messages.at(question.topic, question.queue, question.offset, question.count)
            else:
                found = await messages.newest(question.topic, question.count)
            return found_messages(await messages.with_readers(found))
    except (NoTopicError, NoMessageError) as error:
        return problem(f"{str(error)[0].upper()}{str(error)[1:]}.")
    except HttpError as error:
        return problem(f"{error.what} {error.why}")


class Files(StaticFiles):
    """Static files; browsers revalidate them each time, so that none has an old script after an upgrade."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "no-cache"
        return response


VIEWERS_MAX = 64
MARKS_MAX = 40


def live_route(watcher: Watcher) -> Endpoint:
    """GET /live."""

    async def show(write: Write) -> None:
        with watcher.viewing():
            await write_changes(watcher, write)

    async def live(request: Request) -> Response:
        """The page's parts as they change, as server-sent events."""
        if watcher.viewers >= VIEWERS_MAX:
            raise HttpError(
                status=503,
                what="There are too many viewers.",
                why=f"{VIEWERS_MAX} may.",
                next_step="Close other tabs, or reload now and then.",
                headers={"retry-after": "10"},
            )
        return EventStream(show)

    return Endpoint("/live", live)


async def write_changes(watcher: Watcher, write: Write) -> None:
    """The stream of one viewer, until cancelled."""
    await write(EventStream.RETRY)
    await write(_event("series", watcher.memory.series.columns()))
    sent: dict[str, str] = {}
    while True:
        news, state = watcher.news, watcher.state
        parts = sections(state)
        changed = {name: text for name, text in parts.items() if sent.get(name) != text}
        sent = dict(parts)
        await write(_event("page", _page_event(state, changed)))
        with trio.move_on_after(EventStream.HEARTBEAT_SECONDS):
            await news.wait()
            continue
        await write(EventStream.HEARTBEAT)


def _page_event(state: PageState, changed: Mapping[str, str]) -> dict[str, Any]:
    verdict = verdict_of(state.snapshot)
    recent = [each for each in state.events if state.snapshot.at - each.at < SECONDS_KEPT][:MARKS_MAX]
    return {
        "at": state.snapshot.at,
        "title": verdict.headline,
        "mark": verdict.mark,
        "sections": changed,
        "sample": columns([sample_of(state.snapshot)]) if state.snapshot.problem is None else None,
        "marks": [[each.at, each.mark, f"{each.subject} {each.text}"] for each in recent],
        "candidates": {
            group.name: [[each.member.name, each.member.role, each.member.state] for each in group.members]
            for group in state.snapshot.groups
        },
    }


def _event(name: str, value: Any) -> bytes:
    """One event; JSON has no line breaks of its own."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(value))


PLAN_SECONDS_MAX = 60.0
PLANS_MAX = 4  # At a time: members are asked more than once for each.
TEXT_LENGTH_MAX = 255


def role_routes(watcher: Watcher, open_it: OpenAdmin, operations: Operations) -> Sequence[Endpoint]:
    """POST /plan and GET /changes/ID."""
    plans = trio.CapacityLimiter(PLANS_MAX)

    async def plan(request: Request) -> Response:
        """Plan of a role change, as `--dry-run` shows it; it changes nothing, so it needs no token."""
        order = await _order(request)
        try:
            async with plans, asking(open_it, PLAN_SECONDS_MAX) as admin:
                prepared = await admin.roles.prepare(order)
        except HttpError as error:
            return HTMLResponse(refusal_section(error), status_code=409)
        return HTMLResponse(plan_section(prepared))

    async def change(request: Request) -> Response:
        """Progress of a change that was started here: its state, and the same as HTML."""
        found = operations.find(request.path_params["id"])
        if found is None:
            raise HttpError(status=404, what="There is no such change.", why="It was begun elsewhere, or long ago.")
        html = operation_section(found, watcher.state.snapshot.names)
        return json_response({"state": found.state, "html": html})

    return [Endpoint("/plan", plan, method="POST"), Endpoint("/changes/{id}", change)]


async def _order(request: Request) -> RoleOrder:
    """Raises HttpError. JSON only: a form of a stranger's page cannot send that."""
    bad = HttpError(
        status=400, what="That is no question for a plan.", why="It is JSON: verb, group, candidate, reason."
    )
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise bad
    try:
        body = orjson.loads(await request.body())
        texts = {name: body.get(name) or "" for name in ("verb", "group", "candidate", "reason")}
    except (ValueError, AttributeError):
        raise bad from None
    if not all(isinstance(each, str) and len(each) <= TEXT_LENGTH_MAX for each in texts.values()):
        raise bad
    verb = texts["verb"]
    if verb not in ("switchover", "failover"):
        raise bad
    return RoleOrder(
        verb="switchover" if verb == "switchover" else "failover",
        group=texts["group"] or None,
        member=texts["candidate"] or None,
        reason=texts["reason"],
    )
