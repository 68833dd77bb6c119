"""Role changes over HTTP: a token, then the same preview and the same operation as the command line's."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import orjson
from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response

from twinlog.cluster.admin.admin import Admin
from twinlog.cluster.admin.documents import document
from twinlog.cluster.admin.repair import PreparedRepair, RepairPlan
from twinlog.cluster.admin.roles import ChangeOutcome, Prepared, RoleOrder
from twinlog.cluster.broker.peers.role_messages import ChangeState
from twinlog.cluster.http.admin import OpenAdmin, asking
from twinlog.cluster.http.operations import Key, Operation, OperationList, Operations, Update
from twinlog.cluster.http.query import Field, read_body
from twinlog.cluster.http.server.app import Endpoint
from twinlog.cluster.http.server.responses import HttpError, json_response
from twinlog.cluster.http.server.tokens import Tokens
from twinlog.store.role_file import AutoFailover

SECONDS_MAX = 86_400.0
PREPARE_SECONDS_MAX = 60.0
KEY_LENGTH_MAX = 200

_GROUP = Field(name="group", doc="the broker group, where there are several", kind=str)
_REASON = Field(name="reason", doc="text for the history", kind=str)
_DRY_RUN = Field(name="dry_run", doc="true: answer with the plan, and change nothing", kind=bool)
_MEMBER = Field(name="member", doc="the slave, by name or address", kind=str, needed=True)
_LOSS = Field(name="accept_data_loss", doc='bytes that may be given up, or "unknown"', kind=object)
_BYTES = Field(name="accept_data_loss", doc="bytes that may be cut without proof", kind=float, most=float(1 << 62))


def _timeout(seconds: float) -> Field:
    return Field(
        name="timeout_seconds",
        doc=f"1 to {SECONDS_MAX:g} seconds to watch it, {seconds:g} unless given",
        kind=float,
        least=1,
        most=SECONDS_MAX,
    )


_CANDIDATE = "who becomes the master, by name or address"
FIELDS: dict[str, tuple[Field, ...]] = {
    "switchover": (
        Field(name="candidate", doc=f"{_CANDIDATE}; without it the best", kind=str),
        _GROUP,
        _REASON,
        _timeout(30),
        _DRY_RUN,
    ),
    "failover": (
        Field(name="candidate", doc=_CANDIDATE, kind=str, needed=True),
        _GROUP,
        _REASON,
        _LOSS,
        _timeout(30),
        _DRY_RUN,
    ),
    "pause": (
        _GROUP,
        _REASON,
        Field(name="for_seconds", doc="so long; without it until resume", kind=float, least=1, most=SECONDS_MAX * 365),
    ),
    "resume": (_GROUP,),
    "auto-failover": (
        Field(
            name="mode",
            doc="off: a person begins a failover; members: they elect by themselves; etcd: likewise, and etcd keeps their record",
            kind=str,
            needed=True,
            choices=get_args(AutoFailover),
        ),
        _GROUP,
    ),
    "rewind": (_MEMBER, _BYTES, _timeout(60), _DRY_RUN),
    "reinit": (_MEMBER, _timeout(600), _DRY_RUN),
}
Body = dict[str, Any]
Work = Callable[[Body, Key], Awaitable[Response]]


def change_routes(open_admin: OpenAdmin, tokens: Tokens, operations: Operations) -> Sequence[Endpoint]:
    """POST of each verb, and what became of it."""
    changes = _Changes(open_admin, tokens, operations)

    async def list_operations(_request: Request) -> Response:
        """Operations requested here since this process started, the newest first."""
        return json_response(document(operations.all()))

    async def operation(request: Request) -> Response:
        """One operation: its progress, or its outcome."""
        found = operations.find(request.path_params["id"])
        if found is None:
            raise HttpError(
                status=404,
                what="There is no such operation.",
                why="This process keeps those that were asked for at its own port, the last 256.",
                next_step="See them with: GET /v1/operations",
            )
        return json_response(document(found))

    list_operations.__name__ = "operations"
    return [
        changes.route(changes.switchover, ChangeState),
        changes.route(changes.failover, ChangeState),
        changes.route(changes.pause, ChangeState),
        changes.route(changes.resume, ChangeState),
        changes.route(changes.auto_failover, ChangeState),
        changes.route(changes.rewind, RepairPlan),
        changes.route(changes.reinit, RepairPlan),
        Endpoint("/v1/operations", list_operations, document=OperationList),
        Endpoint("/v1/operations/{id}", operation, document=Operation),
    ]


@frozen
class _Changes:
    open_admin: OpenAdmin
    tokens: Tokens
    operations: Operations

    def route(self, work: Work, document_class: type) -> Endpoint:
        verb = work.__name__.replace("_", "-")

        async def handler(request: Request) -> Response:
            self.tokens.check(request.headers.get("authorization"))
            body = await read_body(request, FIELDS[verb])
            key = _key(request), verb.encode() + orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
            async with self.operations.turn(key[0]):
                if (same := self.operations.same(*key)) is not None:
                    return _accepted(same)
                return await work(body, key)

        handler.__name__, handler.__doc__ = work.__name__, work.__doc__
        return Endpoint(f"/v1/{verb}", handler, method="POST", parameters=FIELDS[verb], document=document_class)

    async def switchover(self, body: Body, key: Key) -> Response:
        """Make a slave the master while both run. As `twinlog switchover`."""
        return await self._change("switchover", body, key)

    async def failover(self, body: Body, key: Key) -> Response:
        """Make a slave the master in place of one that is gone. As `twinlog failover`."""
        return await self._change("failover", body, key)

    async def _change(self, verb: Literal["switchover", "failover"], body: Body, key: Key) -> Response:
        order = RoleOrder(
            verb=verb,
            member=body.get("candidate") or None,
            group=body.get("group") or None,
            reason=body.get("reason", ""),
            accept_data_loss=body.get("accept_data_loss"),
            timeout_seconds=body.get("timeout_seconds", 30.0),
        )
        async with asking(self.open_admin, PREPARE_SECONDS_MAX) as admin:
            prepared = await admin.roles.prepare(order)
        if body.get("dry_run"):
            return json_response(document(prepared.state))
        carry = partial(self._carry_change, prepared)
        begun = self.operations.begin(verb, prepared.group.name, prepared.candidate.name, order.reason, carry, key)
        return _accepted(await self.operations.settled(begun))

    async def _carry_change(self, prepared: Prepared, update: Update) -> ChangeOutcome:
        async with self.open_admin() as admin:
            return await admin.roles.carry_out(prepared, lambda state: update({"steps": state}))

    async def pause(self, body: Body, key: Key) -> Response:
        """Allow no role changes in a group. As `twinlog pause`."""
        reason = body.get("reason", "")
        async with asking(self.open_admin) as admin:
            group = await admin.roles.pause(
                body.get("group") or None, for_seconds=body.get("for_seconds"), reason=reason
            )
        return _accepted(self.operations.finished("pause", group.name, reason, key))

    async def resume(self, body: Body, key: Key) -> Response:
        """Allow them again. As `twinlog resume`."""
        async with asking(self.open_admin) as admin:
            group = await admin.roles.resume(body.get("group") or None)
        return _accepted(self.operations.finished("resume", group.name, "", key))

    async def auto_failover(self, body: Body, key: Key) -> Response:
        """Change who begins a failover in a group. As `twinlog auto-failover off`, `members` or `etcd`."""
        async with asking(self.open_admin) as admin:
            changed = await admin.roles.set_auto_failover(body.get("group") or None, body["mode"])
        return _accepted(self.operations.finished("auto-failover", changed.group, f"autoFailover={changed.mode}", key))

    async def rewind(self, body: Body, key: Key) -> Response:
        """Cut a slave's log to what fits its master's. As `twinlog rewind`."""
        loss = body.get("accept_data_loss")
        accepted = int(loss) if loss is not None else None
        return await self._repair(body, key, lambda admin: admin.repairs.prepare_rewind(body["member"], accepted), 60.0)

    async def reinit(self, body: Body, key: Key) -> Response:
        """Put a slave's log aside and begin anew. As `twinlog reinit`."""
        return await self._repair(body, key, lambda admin: admin.repairs.prepare_reinit(body["member"]), 600.0)

    async def _repair(
        self, body: Body, key: Key, prepare: Callable[[Admin], Awaitable[PreparedRepair]], seconds: float
    ) -> Response:
        async with asking(self.open_admin, PREPARE_SECONDS_MAX) as admin:
            prepared = await prepare(admin)
        if body.get("dry_run"):
            return json_response(document(prepared.plan))
        carry = partial(self._carry_repair, prepared, body.get("timeout_seconds", seconds))
        plan = prepared.plan
        begun = self.operations.begin(plan.verb, prepared.group.name, plan.member, "", carry, key)
        return _accepted(await self.operations.settled(begun))

    async def _carry_repair(self, prepared: PreparedRepair, seconds: float, update: Update) -> Any:
        async with self.open_admin() as admin:
            return await admin.repairs.carry_out(
                prepared,
                timeout_seconds=seconds,
                progress=lambda done, total: update({"done_bytes": done, "total_bytes": total}),
            )


def _key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and (not 0 < len(key) <= KEY_LENGTH_MAX or not key.isprintable()):
        raise HttpError(
            status=400,
            what="That Idempotency-Key cannot be.",
            why=f"Allowed are 1 to {KEY_LENGTH_MAX} printable characters.",
            next_step="Send another one, such as a UUID.",
        )
    return key


def _accepted(operation: Operation) -> Response:
    return json_response(document(operation), 202, {"location": f"/v1/operations/{operation.operation}"})
