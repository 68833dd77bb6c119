"""/v1: what the command line prints with -o json, by the same functions; and role changes (changes.py)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio
from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response

from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.admin.documents import document, schema_of
from twinlog.cluster.admin.groups import GroupDetail, GroupList
from twinlog.cluster.admin.message_view import PeekedMessage
from twinlog.cluster.admin.roles import History
from twinlog.cluster.admin.topics import TopicDetail, TopicList
from twinlog.cluster.http.admin import OpenAdmin, asking
from twinlog.cluster.http.changes import change_routes
from twinlog.cluster.http.operations import Operations
from twinlog.cluster.http.query import Query
from twinlog.cluster.http.server.app import Endpoint, Parameter
from twinlog.cluster.http.server.responses import HttpError, json_response
from twinlog.cluster.http.server.tokens import Tokens
from twinlog.cluster.observe.consumption import LagReport
from twinlog.cluster.observe.explain import Explanation
from twinlog.cluster.observe.findings import CheckResult
from twinlog.cluster.observe.members import MemberList, NoMemberError
from twinlog.cluster.observe.rules import LagLimits

MESSAGES_MAX = 32
PEEKS_MAX = 4  # At a time: each may hold that many large messages.
READS_MAX = 16

Ask = Callable[[Admin, Request, Query], Awaitable[Any]]


@frozen
class PeekedMessages:
    """Messages that were looked at; `twinlog peek -o json` prints each on a line of its own."""

    messages: tuple[PeekedMessage, ...]


def v1_routes(open_admin: OpenAdmin, tokens: Tokens, operations: Operations) -> Sequence[Endpoint]:
    """All of /v1. `open_admin` gives an Admin for the time of a request; `operations` are those that /events reports."""
    reads = trio.CapacityLimiter(READS_MAX)
    peeks = trio.CapacityLimiter(PEEKS_MAX)

    def read(path: str, answer: type, ask: Ask, *parameters: tuple[str, str]) -> Endpoint:
        known = tuple(Parameter(name=name, doc=doc) for name, doc in parameters)

        async def handler(request: Request) -> Response:
            query = Query.of(request, known)
            async with reads, asking(open_admin) as admin:
                return json_response(document(await ask(admin, request, query)))

        handler.__doc__, handler.__name__ = ask.__doc__, ask.__name__
        return Endpoint(path, handler, parameters=known, document=answer)

    async def messages(admin: Admin, request: Request, query: Query) -> PeekedMessages:
        """Messages of a topic and who has consumed them, the newest or those at a place or with a key. As `twinlog peek`."""
        tokens.check_bodies(request.headers.get("authorization"))
        async with peeks:
            return PeekedMessages(await _peek(admin, request.path_params["topic"], query))

    routes = [
        read("/v1/cluster", MemberList, cluster),
        read("/v1/check", CheckResult, check, *_LIMITS),
        read("/v1/history", History, history, ("group", "the broker group, where there are several")),
        read("/v1/explain/{member}", Explanation, explain),
        read("/v1/topics", TopicList, topics, _ALL),
        read("/v1/topics/{topic}", TopicDetail, topic),
        read("/v1/groups", GroupList, groups, _ALL),
        read("/v1/groups/{group}", GroupDetail, group),
        read("/v1/lag", LagReport, lag, ("group", "one consumer group, with its queues")),
        read("/v1/topics/{topic}/messages", PeekedMessages, messages, *_PLACE),
        *change_routes(open_admin, tokens, operations),
    ]
    return [*routes, _schema_route(routes)]


# Each answers one path.


async def cluster(admin: Admin, _request: Request, _query: Query) -> Any:
    """Every member: its role, what it does, how far it is behind. As `twinlog list`."""
    return await admin.list_members()


async def check(admin: Admin, _request: Request, query: Query) -> Any:
    """Findings for a monitoring system, by these limits. As `twinlog check`."""
    return await admin.check(
        LagLimits(
            warning_bytes=query.size("warn_lag"),
            critical_bytes=query.size("crit_lag"),
            warning_seconds=query.seconds("warn_behind"),
            critical_seconds=query.seconds("crit_behind"),
        )
    )


_LIMITS = (
    ("warn_lag", "a slave so far behind is a warning, such as 16MB"),
    ("crit_lag", "the same, critical"),
    ("warn_behind", "the same in seconds"),
    ("crit_behind", "the same in seconds, critical"),
)


async def history(admin: Admin, _request: Request, query: Query) -> Any:
    """Masters of a group, since when, and why. As `twinlog history`."""
    return await admin.roles.history(query.text("group"))


async def explain(admin: Admin, request: Request, _query: Query) -> Any:
    """Explanation of a member in sentences. As `twinlog explain`."""
    name = request.path_params["member"]
    found = await admin.explain(name)
    if found is None:
        raise NoMemberError(name)
    return found


_ALL = ("all", "true: also those that brokers make for themselves")


async def topics(admin: Admin, _request: Request, query: Query) -> Any:
    """Each topic: queues and messages. As `twinlog topic list`."""
    return TopicList(await admin.topics.summaries(all_topics=query.flag("all")))


async def topic(admin: Admin, request: Request, _query: Query) -> Any:
    """One topic: each queue with its offsets, and the readers. As `twinlog topic show`."""
    return await admin.topics.show(request.path_params["topic"])


async def groups(admin: Admin, _request: Request, query: Query) -> Any:
    """Each consumer group: clients and lag. As `twinlog group list`."""
    return await admin.groups.summaries(all_groups=query.flag("all"))


async def group(admin: Admin, request: Request, _query: Query) -> Any:
    """One consumer group: clients, settings, lag. As `twinlog group show`."""
    return await admin.groups.show(request.path_params["group"])


async def lag(admin: Admin, _request: Request, query: Query) -> Any:
    """Lag of consumer groups by topic. As `twinlog lag`."""
    return await admin.groups.lag(query.text("group"))


_PLACE = (
    ("queue", "with offset: of this queue"),
    ("offset", "from this one on"),
    ("broker", "with offset: of this broker group"),
    ("key", "messages with this among their keys"),
    ("count", f"so many, 1 to {MESSAGES_MAX}"),
)


async def _peek(admin: Admin, name: str, query: Query) -> tuple[PeekedMessage, ...]:
    queue, offset = query.number("queue", 0, 1 << 31), query.number("offset", 0, (1 << 63) - 1)
    count, key = query.number("count", 1, MESSAGES_MAX) or 1, query.text("key")
    if (queue is None) != (offset is None) or (key is not None and queue is not None):
        raise HttpError(
            status=400,
            what="That is no place of messages.",
            why="queue and offset belong together, and key stands alone.",
            next_step="Give queue and offset, or key, or neither for the newest.",
        )
    if key is not None:
        found = await admin.messages.by_key(name, key, count)
    elif queue is not None and offset is not None:
        found = await admin.messages.at(name, queue, offset, count, broker=query.text("broker"))
    else:
        found = await admin.messages.newest(name, count)
    return await admin.messages.with_readers(found)


def _schema_route(routes: Sequence[Endpoint]) -> Endpoint:
    documents = {each.name: each.document for each in routes if each.document is not None}

    async def schema(request: Request) -> Response:
        """The JSON Schema of an answer, by the name that the list of endpoints gives it."""
        found = documents.get(request.path_params["document"])
        if found is None:
            raise HttpError(
                status=404,
                what=f"There is no answer {request.path_params['document'][:80]!r}.",
                why=f"There are: {', '.join(sorted(documents))}.",
                next_step="Ask for one of these.",
            )
        return json_response(schema_of(found))

    return Endpoint("/v1/schema/{document}", schema)
