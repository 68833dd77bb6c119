"""Questions about roles to other members, over remoting: Calls, of role_messages.py."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import orjson
from attrs import define

from twinlog.cluster.broker.peers.ha_peer import RemotingPeer
from twinlog.cluster.broker.peers.role_json import encode, from_plain
from twinlog.cluster.broker.peers.role_messages import Op, Plain, RoleRefusedError
from twinlog.cluster.remoting.calls import call
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.header_fields import RequestHeader
from twinlog.cluster.remoting.headers.members import AskLease, AskPromise, AskRoleChange
from twinlog.ha.election.voter import LeaseAnswer, LeaseAsk, PromiseAnswer, PromiseAsk
from twinlog.ha.errors import HAPeerError
from twinlog.ha.peer import PeerHistory
from twinlog.store.role_file import GroupMember

T = TypeVar("T")
PROMISE_MS = 3_000


@define(eq=False)
class RemotingCalls:
    """Over the connections that `client` has, or makes."""

    client: RemotingClient

    async def promise(self, address: str, ask: PromiseAsk) -> PromiseAnswer:
        """Ask for a vote (20005)."""
        return await self._ask(address, AskPromise(), encode(ask), PROMISE_MS, partial(from_plain, PromiseAnswer))

    async def lease(self, address: str, ask: LeaseAsk, *, timeout_ms: float) -> LeaseAnswer:
        """Renew the lease (20004)."""
        return await self._ask(address, AskLease(), encode(ask), timeout_ms, partial(from_plain, LeaseAnswer))

    async def role_change(self, address: str, op: Op, body: Plain, *, timeout_ms: float = 3_000) -> Plain:
        """Ask for a step of a role change (20006). Raises RoleRefusedError, too."""
        return await self._ask(address, AskRoleChange(), orjson.dumps({"op": op, **body}), timeout_ms, dict)

    async def history(self, address: str, me: GroupMember | None = None) -> PeerHistory | None:
        """The epochs of a member's log (1007)."""
        return await RemotingPeer(address, self.client).history(me)

    async def _ask(
        self, address: str, header: RequestHeader, body: bytes, timeout_ms: float, parse: Callable[[Any], T]
    ) -> T:
        try:
            return (await call(self.client, address, header, body, timeout_ms=timeout_ms)).json(parse)
        except RequestError as error:
            if error.code == ResponseCode.NO_PERMISSION and isinstance(header, AskRoleChange):
                raise RoleRefusedError(tuple(error.remark.splitlines())) from error
            raise HAPeerError(f"{address} answers {error.code}: {error.remark}") from error
        except RemotingError as error:
            raise HAPeerError(f"asking {address} failed: {error}") from error
