"""/livez, /readyz and the role checks of load balancers: 200 or 503, with the reason in the body."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, cast

import trio
from attrs import define, evolve, field, frozen
from starlette.requests import Request
from starlette.responses import Response

from twinlog.cluster.admin.documents import document
from twinlog.cluster.http.admin import OpenAdmin
from twinlog.cluster.http.query import Query
from twinlog.cluster.http.server.app import Endpoint, Parameter
from twinlog.cluster.http.server.responses import HttpError, json_response
from twinlog.cluster.http.source import NamesrvStatus, Source
from twinlog.cluster.observe.members import Member, is_master, member_of_status, slave_connection
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.member_status import MemberStatus

Mode = Literal["written", "flushed"]
STREAMING = ("streaming", "catching up")


@frozen(kw_only=True)
class Node:
    """One process as a probe sees it. `ok`: the check passed; else `why` has the reason.

    `lag_bytes`: bytes of its master's log that it lacks; null if not asked, or not known.
    """

    kind: Literal["broker", "namesrv"]
    ok: bool
    why: str | None
    name: str
    role: str
    state: str
    cluster: str | None = None
    group: str | None = None
    broker_id: int | None = None
    address: str | None = None
    epoch: int | None = None
    written_offset: int | None = None
    flushed_offset: int | None = None
    confirmed_offset: int | None = None
    lag_bytes: int | None = None


def node_of(status: MemberStatus | NamesrvStatus) -> Node:
    """The process by its own status, in the terms of `twinlog list`."""
    if isinstance(status, NamesrvStatus):
        return Node(kind="namesrv", ok=True, why=None, name=status.name, role=status.role, state=status.state)
    member = member_of(status)
    return Node(
        kind="broker",
        ok=True,
        why=None,
        name=member.name,
        role=member.role,
        state=member.state,
        cluster=member.cluster,
        group=member.group,
        broker_id=member.broker_id,
        address=member.address,
        epoch=member.epoch,
        written_offset=member.written_offset,
        flushed_offset=member.flushed_offset,
        confirmed_offset=member.confirmed_offset,
    )


def member_of(status: MemberStatus) -> Member:
    """A broker by its own status."""
    plain = Member(
        name=f"{status.group}-{status.broker_id}",
        cluster=status.cluster or "",
        group=status.group or "",
        broker_id=status.broker_id or 0,
        address=status.address or "",
        role="",
        state="",
    )
    return member_of_status(plain, status)


def not_serving(node: Node, status: MemberStatus | NamesrvStatus) -> str | None:
    """The reason why it is no serving master (or name server); None: it is one."""
    if isinstance(status, NamesrvStatus):
        return None
    member = member_of(status)
    if not is_master(member):
        return f"its role is {node.role}, and it is {node.state}"
    return None if member.state in ("serving", "holding") else f"it is {member.state}{_because(member)}"


def not_following(node: Node, status: MemberStatus) -> str | None:
    """The reason why it is no slave that follows its master; None: it is one."""
    if node.role != "slave":
        return f"its role is {node.role}"
    member = member_of(status)
    return None if node.state in STREAMING else f"it is {node.state}{_because(member)}"


def lag_of(status: MemberStatus, master_end: int, mode: Mode) -> int:
    """Bytes of its master's log that its own log lacks, or has not on disk."""
    own = status.flushed_offset if mode == "flushed" else status.max_offset
    return max(0, master_end - (own or 0))


def is_counted(status: MemberStatus, master: MemberStatus) -> bool:
    """True if its acknowledgements count for producers, according to its master."""
    found = slave_connection(member_of(status), status, master)
    return bool(found and found.counted and found.in_sync)


def refused(node: Node, why: str | None) -> Node:
    """The node with the result of the check."""
    return evolve(node, ok=why is None, why=why)


def _because(member: Member) -> str:
    return f" ({member.reason})" if member.reason else ""


READY_LAG_BYTES = 16_000_000
MASTER_SECONDS_MAX, MASTER_SECONDS_KEPT = 2.0, 0.5

LAG = Parameter(name="lag", doc="allowed lag of a slave, such as 16MB or 1GiB")
MODE = Parameter(name="mode", doc="written or flushed: the end of its log that counts; written unless given")


@frozen(kw_only=True)
class Live:
    """State of the process's event loop."""

    live: bool
    kind: str
    seconds_since_tick: float


@define(eq=False)
class Probes:
    """The checks of one process."""

    source: Source
    open_admin: OpenAdmin
    _master: tuple[str, float, MemberStatus | None] = field(default=("", 0.0, None), init=False)
    _turn: trio.Lock = field(factory=trio.Lock, init=False)

    def routes(self) -> Sequence[Endpoint]:
        """Their endpoints."""
        return [
            Endpoint("/livez", self.livez, document=Live),
            self._route("readyz", self.why_not_ready, (LAG, MODE)),
            self._route("master", self.why_no_master, ()),
            self._route("slave", self.why_no_slave, (LAG, MODE)),
            self._route("sync", self.why_not_sync, ()),
            self._route("async", self.why_not_async, (LAG, MODE)),
        ]

    async def livez(self, _request: Request) -> Response:
        """200 while the process's event loop runs: it ran within the last 5 s. Neither the disk nor other processes are asked."""
        alive = self.source.is_alive
        body = Live(live=alive, kind=self.source.kind, seconds_since_tick=round(self.source.seconds_since_tick, 3))
        return json_response(document(body), 200 if alive else 503)

    def _route(
        self,
        name: str,
        check: Callable[[Node, Any, Query], Awaitable[Node]],
        parameters: tuple[Parameter, ...],
    ) -> Endpoint:
        async def handler(request: Request) -> Response:
            query = Query.of(request, parameters)
            answer = await self.source.node()
            if answer.value is None:
                raise HttpError(
                    status=503,
                    what="This process has not reported its state yet.",
                    why="Its event loop is stalled." if not self.source.is_alive else "It is starting.",
                    next_step="Ask again; /livez shows if its event loop runs.",
                )
            node = node_of(answer.value)
            if (why := self._why_nothing_holds()) is not None:
                node = refused(node, why)
            else:
                node = await check(node, answer.value, query)
            return json_response(document(node), 200 if node.ok else 503)

        handler.__name__, handler.__doc__ = name, check.__doc__
        return Endpoint(f"/{name}", handler, parameters=parameters, document=Node)

    def _why_nothing_holds(self) -> str | None:
        source = self.source
        if source.is_stopping:
            return "it is stopping"
        if not source.ready.is_set():
            return "it is starting"
        return f"its event loop has been stalled for {source.stalled_seconds:.1f} s" if source.stalled_seconds else None

    async def why_not_ready(self, node: Node, status: MemberStatus, query: Query) -> Node:
        """200 for a master or name server that serves, and a slave that follows and is at most 16MB behind."""
        limit, mode = query.size("lag"), _mode(query)
        if node.role != "slave":
            return refused(node, not_serving(node, status))
        if limit is not None:
            return await self._following(node, status, limit, mode)
        # A master that cannot be asked is no reason against it.
        found = await self._following(node, status, None, mode)
        too_far = found.lag_bytes is not None and found.lag_bytes > READY_LAG_BYTES
        return refused(found, _too_far(found.lag_bytes, READY_LAG_BYTES)) if too_far else found

    async def why_no_master(self, node: Node, status: MemberStatus, _query: Query) -> Node:
        """200 for a master that serves."""
        why = not_serving(node, status) if node.kind == "broker" else "its role is namesrv"
        return refused(node, why)

    async def why_no_slave(self, node: Node, status: MemberStatus, query: Query) -> Node:
        """200 for a slave that follows its master, no further behind than `lag`."""
        return await self._following(node, status, query.size("lag"), _mode(query))

    async def why_not_sync(self, node: Node, status: MemberStatus, _query: Query) -> Node:
        """200 for a slave whose acknowledgements count for producers: it follows, and is in sync according to its master."""
        return await self._synchronous(node, status, wanted=True)

    async def why_not_async(self, node: Node, status: MemberStatus, query: Query) -> Node:
        """200 for a slave that follows, and whose acknowledgements do not count for producers."""
        found = await self._synchronous(node, status, wanted=False)
        limit, mode = query.size("lag"), _mode(query)
        return found if not found.ok or limit is None else await self._following(found, status, limit, mode)

    async def _synchronous(self, node: Node, status: MemberStatus, *, wanted: bool) -> Node:
        if (why := not_following(node, status)) is not None:
            return refused(node, why)
        master = await self._ask_master(status)
        if master is None:
            return refused(node, "its master does not report whose acknowledgements count")
        if is_counted(status, master) is wanted:
            return refused(node, None)
        return refused(node, f"its acknowledgements {'do not count' if wanted else 'count'} for producers")

    async def _following(self, node: Node, status: MemberStatus, limit: int | None, mode: Mode) -> Node:
        if (why := not_following(node, status)) is not None:
            return refused(node, why)
        master = await self._ask_master(status)
        if master is None:
            return refused(node, None if limit is None else "its master does not report the end of its log")
        lag = lag_of(status, master.max_offset or 0, mode)
        node = evolve(node, lag_bytes=lag)
        too_far = limit is not None and lag > limit
        return refused(node, _too_far(lag, limit) if too_far else None)

    async def _ask_master(self, own: MemberStatus) -> MemberStatus | None:
        """The master's status, at most half a second old; None: no answer. A RocketMQ master reports the end of its log only."""
        address = own.master.address if own.master is not None else None
        if not address:
            return None
        async with self._turn:
            known, at, status = self._master
            if known == address and trio.current_time() - at < MASTER_SECONDS_KEPT:
                return status
            status = None
            with trio.move_on_after(MASTER_SECONDS_MAX):
                status = await self._asked(address)
            self._master = (address, trio.current_time(), status)
            return status

    async def _asked(self, address: str) -> MemberStatus | None:
        try:
            async with self.open_admin() as admin:
                status = await admin.api.member_status(address)
                if status is None:
                    info = await admin.api.runtime_info(address)
                    end = info.get("commitLogMaxOffset", "")
                    status = MemberStatus(max_offset=int(end)) if end.isdigit() else None
                return status
        except (RemotingError, HttpError):
            return None


def _too_far(lag: int | None, limit: int | None) -> str:
    return f"it is {lag} bytes behind, more than {limit}"


def _mode(query: Query) -> Mode:
    return cast(Mode, query.choice("mode", ("written", "flushed")) or "written")
