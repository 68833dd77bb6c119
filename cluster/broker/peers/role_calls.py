"""Questions about roles to other members, over remoting: Calls, of role_messages.py."""

from collections.abc import Callable
from typing import TypeVar

import orjson
from attrs import define

from twinlog.cluster.broker.peers.ha_peer import RemotingPeer
from twinlog.cluster.broker.peers.role_json import encode, from_plain
from twinlog.cluster.broker.peers.role_messages import Op, Plain, RoleRefusedError
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingError
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
        """20005."""
        body = await self._ask(address, RequestCode.TWINLOG_PROMISE, encode(ask), PROMISE_MS)
        return self._read(address, lambda: from_plain(PromiseAnswer, orjson.loads(body)))

    async def lease(self, address: str, ask: LeaseAsk, *, timeout_ms: float) -> LeaseAnswer:
        """20004."""
        body = await self._ask(address, RequestCode.TWINLOG_LEASE, encode(ask), timeout_ms)
        return self._read(address, lambda: from_plain(LeaseAnswer, orjson.loads(body)))

    async def role_change(self, address: str, op: Op, body: Plain, *, timeout_ms: float = 3_000) -> Plain:
        """20006. Raises RoleRefusedError, too."""
        sent = orjson.dumps({"op": op, **body})
        answer = await self._ask(address, RequestCode.TWINLOG_ROLE_CHANGE, sent, timeout_ms)
        return self._read(address, lambda: dict(orjson.loads(answer)))

    async def history(self, address: str, me: GroupMember | None = None) -> PeerHistory | None:
        """1007."""
        return await RemotingPeer(address, self.client).history(me)

    async def _ask(self, address: str, code: RequestCode, body: bytes, timeout_ms: float) -> bytes | memoryview:
        try:
            answer = await self.client.request(address, RemotingCommand(code, body=body), timeout_ms=timeout_ms)
        except RemotingError as error:
            raise HAPeerError(f"asking {address} failed: {error}") from error
        if answer.code == ResponseCode.NO_PERMISSION and code is RequestCode.TWINLOG_ROLE_CHANGE:
            raise RoleRefusedError(tuple((answer.remark or "it refuses").splitlines()))
        if answer.code != ResponseCode.SUCCESS:
            raise HAPeerError(f"{address} answers {answer.code}: {answer.remark}")
        return answer.body

    @staticmethod
    def _read(address: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except (ValueError, TypeError) as error:
            raise HAPeerError(f"{address} gave no usable answer: {error}") from error
