"""What the dialog for role changes asks for: a plan, and how far a change is. The change itself is asked of /v1, with a token."""

from collections.abc import Sequence

import orjson
import trio
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from twinlog.cluster.admin.roles import RoleOrder
from twinlog.cluster.dashboard.view.role_plan import operation_section, plan_section, refusal_section
from twinlog.cluster.dashboard.watcher import Watcher
from twinlog.cluster.http.asking import asking
from twinlog.cluster.http.kept_admin import OpenAdmin
from twinlog.cluster.http.operations import Operations
from twinlog.cluster.http.server.errors import HttpError, json_response
from twinlog.cluster.http.server.routes import Endpoint

PLAN_SECONDS_MAX = 60.0
PLANS_MAX = 4  # At a time: members are asked more than once for each.
TEXT_LENGTH_MAX = 255


def role_routes(watcher: Watcher, open_it: OpenAdmin, operations: Operations) -> Sequence[Endpoint]:
    """POST /plan and GET /changes/ID."""
    plans = trio.CapacityLimiter(PLANS_MAX)

    async def plan(request: Request) -> Response:
        """What a role change would do, as `--dry-run` shows it; it changes nothing, so it needs no token."""
        order = await _order(request)
        try:
            async with plans, asking(open_it, PLAN_SECONDS_MAX) as admin:
                prepared = await admin.prepare_role_change(order)
        except HttpError as error:
            return HTMLResponse(refusal_section(error), status_code=409)
        return HTMLResponse(plan_section(prepared))

    async def change(request: Request) -> Response:
        """How far a change is that was begun here: its state, and that as HTML."""
        found = operations.find(request.path_params["id"])
        if found is None:
            raise HttpError(status=404, what="There is no such change.", why="It was begun elsewhere, or long ago.")
        names = {each.member.address: each.member.name for each in watcher.state.look.members}
        return json_response({"state": found.state, "html": operation_section(found, names)})

    return [Endpoint("/plan", plan, method="POST"), Endpoint("/changes/{id}", change)]


async def _order(request: Request) -> RoleOrder:
    """Raises HttpError. JSON only: a form of a stranger's page cannot send that."""
    bad = HttpError(
        status=400, what="That is no question for a plan.", why="It is JSON: verb, group, candidate, reason."
    )
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise bad
    try:
        told = orjson.loads(await request.body())
        texts = {name: told.get(name) or "" for name in ("verb", "group", "candidate", "reason")}
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
