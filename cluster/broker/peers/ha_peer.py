"""Other members, asked over their remoting ports: about their logs (Peer of ha/peer.py), and about roles.

A twinlog member answers 20001 (status), 20002 (digests) and 33 (records). RocketMQ answers private codes with 3, so there the
log's ends come from 28 and its file size from 26, and there are no digests.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

import orjson
import trio
from attrs import define, evolve, field, frozen

from twinlog.cluster.broker.group.registration import Master
from twinlog.cluster.broker.peers.role_messages import Op, Plain, RoleRefusedError, encode, read_history
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.config.properties_file import parse_properties
from twinlog.cluster.remoting.calls import SUCCESS, Response, call, response
from twinlog.cluster.remoting.client import RemotingClient, is_refused
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.header_fields import RequestHeader
from twinlog.cluster.remoting.headers.members import ChangeRole, GetBrokerEpoch, RenewLease, RequestVote
from twinlog.cluster.remoting.member_auth import Signed
from twinlog.cluster.remoting.member_status import MemberStatus
from twinlog.cluster.remoting.names import HA_PORT_DISTANCE, shifted
from twinlog.cluster.remoting.streams import close_now
from twinlog.ha.election.voter import LeaseReply, LeaseRequest, VoteReply, VoteRequest
from twinlog.ha.errors import HAIdentityError, HAPeerError
from twinlog.ha.peer import PeerHistory, PeerLog
from twinlog.store.integrity.digest import RangeDigests
from twinlog.store.role_file import GroupMember
from twinlog.store.util.plain import from_plain

T = TypeVar("T")
TIMEOUT_MS = VOTE_MS = 3_000
REFUSED_SECONDS = 0.3  # A machine that is there refuses at once.
DIGESTS_TIMEOUT_MS = 20_000  # It may have to read 16 MiB for an answer, and others may come first.
_OFFSET_MAX = (1 << 63) - 1


@frozen
class _RocketMQ:
    """Facts about a RocketMQ broker, valid for one connection: with another one it may be another program."""

    connection: object
    file_size: int | None
    is_master: bool | None


@define(eq=False)
class RemotingPeer:
    """The member at `address`, HOST:PORT of its remoting port."""

    address: str
    client: RemotingClient
    heard: Callable[[PeerHistory], None] = lambda _reported: None  # Each history that it tells.
    ha_end: Callable[[], str | None] = lambda: None  # Ours of a HA connection to it that is to be used.
    timeout_ms: int = TIMEOUT_MS
    _api: ClientApi = field(init=False)
    _rocketmq: _RocketMQ | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._api = ClientApi(self.client, (), self.timeout_ms)

    async def log(self) -> PeerLog:
        """See twinlog.ha.peer.Peer."""
        if self._known_rocketmq is None:
            status = await self._ask(self._api.member_status(self.address))
            if status is not None:
                return self._read(lambda: log_of_status(status))
        table = await self._ask(self._api.runtime_info(self.address))
        known = self._known_rocketmq or await self._inspect_rocketmq()
        found = self._read(lambda: log_of_runtime_info(table))
        return evolve(found, file_size=known.file_size, is_master=known.is_master)

    async def digests(self, start: int, end: int, *, blocks_per_digest: int = 1) -> RangeDigests | None:
        """See twinlog.ha.peer.Peer."""
        if self._known_rocketmq is not None:
            return None
        api = evolve(self._api, timeout_ms=DIGESTS_TIMEOUT_MS)
        return await self._ask(api.block_digests(self.address, start, end, blocks_per_digest=blocks_per_digest))

    async def record(self, phy_offset: int) -> bytes | None:
        """See twinlog.ha.peer.Peer."""
        return await self._ask(self._api.view_message(self.address, phy_offset))

    async def history(self, me: GroupMember | None) -> PeerHistory | None:
        """See twinlog.ha.peer.Peer. RocketMQ 5 answers without what is ours, 4.9 not at all."""
        if self._known_rocketmq is not None:
            return None
        header = GetBrokerEpoch()
        if me is not None:
            codes = ",".join(me.codes)
            told = me.member_address or None
            header = GetBrokerEpoch(me.address, me.ha_address, me.broker_id, me.name, self.ha_end(), me.id, codes, told)
        expected = SUCCESS | {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR}
        answer, signed = await self._ask(self._ask_history(header, expected))
        if not answer.is_success:  # 1: RocketMQ 5 without a controller.
            return None
        reported = self._read(lambda: read_history(answer.body))
        if reported is None:
            return None
        self.heard(reported)
        if signed is not None and reported.ticket is not None:
            return evolve(reported, ticket=signed.ticket(reported.ticket))
        return reported

    async def _ask_history(self, header: GetBrokerEpoch, expected: Collection[int]) -> tuple[Response, Signed | None]:
        if header.member is None:
            return await self._api.call(self.address, header, expected=expected), None
        answer, signed = await self.client.request_signed(self.address, header.command(), timeout_ms=self.timeout_ms)
        return response(answer, expected), signed

    @property
    def _known_rocketmq(self) -> _RocketMQ | None:
        if self._rocketmq is not None and self._rocketmq.connection is not self.client.connection_of(self.address):
            self._rocketmq = None
        return self._rocketmq

    async def _inspect_rocketmq(self) -> _RocketMQ:
        try:
            text = await self._api.broker_config(self.address)
        except RequestError:
            text = ""  # It does not report it.
        except RemotingError as error:
            raise self._failure(error) from error
        options = {entry.key: entry.value for entry in parse_properties(text)}
        size, role = options.get("mappedFileSizeCommitLog", ""), options.get("brokerRole")
        self._rocketmq = _RocketMQ(
            self.client.connection_of(self.address),
            int(size) if size.isdecimal() else None,
            role != "SLAVE" if role else None,
        )
        return self._rocketmq

    async def _ask(self, pending: Awaitable[T]) -> T:
        try:
            return await pending
        except RequestError as error:
            if error.code == ResponseCode.NO_PERMISSION:
                raise HAIdentityError(error.remark) from error
            raise self._failure(error) from error
        except RemotingError as error:
            raise self._failure(error) from error

    def _failure(self, error: RemotingError) -> HAPeerError:
        return HAPeerError(f"asking the member at {self.address} failed: {error}")

    def _read(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (KeyError, TypeError, ValueError) as error:
            raise HAPeerError(f"the member at {self.address} gave no usable answer: {error!r}") from error


def log_of_status(status: MemberStatus) -> PeerLog:
    """Out of the answer to 20001. Raises ValueError."""
    if status.min_offset is None or status.max_offset is None or status.role is None:
        raise ValueError("its status has no offsets or no role")
    return PeerLog(
        is_twinlog=True,
        min_offset=_offset(status.min_offset),
        max_offset=_offset(status.max_offset),
        boot_ms=status.boot_ms or 0,
        file_size=status.file_size,
        is_master=status.role != "SLAVE",
    )


def log_of_runtime_info(table: Mapping[str, str]) -> PeerLog:
    """Parse RocketMQ's answer to 28, in which an empty log begins at -1. Raises KeyError, ValueError."""
    max_offset = _offset(table["commitLogMaxOffset"])
    min_offset = _offset(table["commitLogMinOffset"])
    return PeerLog(
        is_twinlog=False,
        min_offset=min_offset if min_offset >= 0 else max_offset,
        max_offset=max_offset,
        boot_ms=int(table.get("bootTimestamp") or 0),
    )


def _offset(value: Any) -> int:
    offset = int(value)
    if not -1 <= offset <= _OFFSET_MAX:  # Or it could not be asked for.
        raise ValueError(f"{offset} is no offset")
    return offset


@define(eq=False)
class Peers:
    """The members behind HA addresses. `master` is the one that is registered for our group."""

    client: RemotingClient
    master: Callable[[], Master]
    heard: Callable[[PeerHistory], None] = lambda _reported: None
    ha_end: Callable[[], str | None] = lambda: None  # Ours of a new HA connection to the master.
    _last: RemotingPeer | None = field(default=None, init=False)  # Kept for what it knows of a RocketMQ broker.

    def peer_of(self, ha_address: str) -> RemotingPeer | None:
        """The member whose HA port is at HOST:PORT; None when that is no such address."""
        address = self._remoting_address(ha_address)
        if address is None:
            return None
        if self._last is None or self._last.address != address:
            self._last = RemotingPeer(address, self.client, self.heard, self.ha_end)
        return self._last

    def _remoting_address(self, ha_address: str) -> str | None:
        master = self.master()
        if master.address and master.ha_address == ha_address:
            return master.address
        return shifted(ha_address, -HA_PORT_DISTANCE) or None


@define(eq=False)
class RemotingCalls:
    """Questions about roles, over the connections that `client` has, or makes. HAPeerError: no usable answer."""

    client: RemotingClient

    async def promise(self, address: str, ask: VoteRequest) -> VoteReply:
        """Ask for a vote (20005)."""
        return await self._ask(address, RequestVote(), encode(ask), VOTE_MS, partial(from_plain, VoteReply))

    async def lease(self, address: str, ask: LeaseRequest, *, timeout_ms: float) -> LeaseReply:
        """Renew the lease (20004)."""
        return await self._ask(address, RenewLease(), encode(ask), timeout_ms, partial(from_plain, LeaseReply))

    async def is_refused(self, address: str) -> bool:
        """True if a connection is refused: no process of the member is there. False, too, if nothing is known after a moment."""
        with trio.move_on_after(REFUSED_SECONDS):
            try:
                await close_now(await self.client.connect(address))
            except OSError as error:
                return is_refused(error)
        return False

    async def role_change(self, address: str, op: Op, body: Plain, *, timeout_ms: float = 3_000) -> Plain:
        """Ask for a step of a role change (20006). Raises RoleRefusedError, too."""
        return await self._ask(address, ChangeRole(), orjson.dumps({"op": op, **body}), timeout_ms, dict)

    async def history(self, address: str, me: GroupMember | None = None) -> PeerHistory | None:
        """The epochs of a member's log (1007)."""
        return await RemotingPeer(address, self.client).history(me)

    async def who_is_at(self, address: str, timeout_ms: int) -> PeerHistory | None:
        """The same, within so long."""
        return await RemotingPeer(address, self.client, timeout_ms=timeout_ms).history(None)

    async def _ask(
        self, address: str, header: RequestHeader, body: bytes, timeout_ms: float, parse: Callable[[Any], T]
    ) -> T:
        try:
            return (await call(self.client, address, header, body, timeout_ms=timeout_ms)).json(parse)
        except RequestError as error:
            if error.code == ResponseCode.NO_PERMISSION and isinstance(header, ChangeRole):
                raise RoleRefusedError(*error.remark.splitlines()) from error
            raise HAPeerError(f"{address} answers {error.code}: {error.remark}") from error
        except RemotingError as error:
            raise HAPeerError(f"asking {address} failed: {error}") from error
