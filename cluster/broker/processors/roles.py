"""Requests about roles, from members and administrators: 1007, and twinlog's own 20004 to 20006. All bodies are JSON.

1007 returns the log's epochs to anybody, as in RocketMQ 5. The others change what this member may do: they are accepted only from
members of the group's record, from this machine and from haAllowedSlaves, by their IP; or signed, from anywhere. What a group
with a secret requires was checked before, see member_check.py.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import ip_address
from typing import Any, TypeVar

import orjson
from attrs import define

from twinlog.cluster.broker.group.group_view import GroupView
from twinlog.cluster.broker.peers.role_messages import NOT_ALLOWED, Op, RoleRefusedError, encode, history_body
from twinlog.cluster.broker.peers.slave_peers import SlavePeers
from twinlog.cluster.broker.roles.durable_state import RoleFileError
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.members import ChangeRole, GetBrokerEpoch, RenewLease, RequestVote
from twinlog.cluster.remoting.member_auth import Signed
from twinlog.cluster.remoting.names import ip_of
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.ha.election.voter import LeaseRequest, VoteRequest
from twinlog.ha.errors import HAError
from twinlog.ha.master.tickets import Holder
from twinlog.ha.service import HAService
from twinlog.store.errors import StoreError
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import GroupMember
from twinlog.store.util.plain import from_plain

T = TypeVar("T")
A = TypeVar("A")


@define(eq=False)
class RoleProcessor:
    """Requests about roles."""

    settings: Settings
    store: MessageStore
    roles: RoleService
    ha: HAService
    group: GroupView
    slave_peers: SlavePeers

    async def get_broker_epoch(self, header: GetBrokerEpoch, request: Request) -> Reply:
        """Return the epochs of this log; a member that identifies itself will join the group."""
        roles = self.roles
        asker = ticket = None
        if header.member and header.ha_address:
            name = header.name or header.member
            sender = GroupMember(
                address=header.member,
                ha_address=header.ha_address,
                broker_id=header.broker_id or 0,
                name=name,
                id=header.member_id or header.member,
                codes=tuple(filter(None, (header.codes or "").split(","))),
                member_address=header.member_address or "",
            )
            _require_sender(request, sender.id)
            await self.settings.hosts.renew(*_addresses(sender))
            if why := await roles.joining.why_not(sender):
                raise RequestError(ResponseCode.NO_PERMISSION, why)
            if self._may_join(request, sender):
                asker = sender
                ticket = self._ticket_for(sender, request.signed)
                if header.ha_end:
                    ip = ip_of(request.connection.remote_address)
                    # The HA address may be in another network.
                    is_own = ip_of(header.ha_end) in (ip, *self.settings.hosts.ips_of(sender.ha_address))
                    self.slave_peers.report(header.member, header.ha_end if is_own else "", ip)
            elif self._names_itself(ip_of(request.connection.remote_address), sender):
                roles.joining.ask_unregistered(sender)
            else:
                roles.joining.ask_from_other_ip(sender, ip_of(request.connection.remote_address))
        history = roles.history(asker)
        if asker is not None and request.signed is not None:
            self.group.members_changed()  # Its HA connection, from whatever IP, comes next.
        body = history_body(
            history,
            cluster=self.settings.config.broker_cluster_name,
            name=self.settings.config.broker_name,
            broker_id=self.settings.config.broker_id,
            more={"paused": roles.member.paused(), "ticket": ticket},
        )
        return Reply(body=body)

    async def renew_lease(self, header: RenewLease, request: Request) -> Reply:
        """Answer 20004: renew the lease of a master."""
        await self._require_allowed(request)
        ask = _read(LeaseRequest, request)
        _require_sender(request, ask.member)

        async def may_join(member: GroupMember) -> bool:
            await self.settings.hosts.renew(*_addresses(member))
            return self._may_join(request, member)

        return await _answered(lambda ask: self.roles.renew_lease(ask, may_join), ask)

    async def request_vote(self, header: RequestVote, request: Request) -> Reply:
        """Answer 20005: vote in an election; a refusal is a success with its reason."""
        await self._require_allowed(request)
        ask = _read(VoteRequest, request)
        _require_sender(request, ask.candidate)
        return await _answered(self.roles.voter.vote, ask)

    async def change_role(self, header: ChangeRole, request: Request) -> Reply:
        """Answer 20006: carry out the operation that `op` names."""
        await self._require_allowed(request)
        body = _object(request)
        op: Op = body.pop("op", None)
        if op in ("hold", "release"):
            _require_sender(request, str(body.get("candidate")))
        return await _answered(partial(self.roles.role_change, op), body)

    def _ticket_for(self, sender: GroupMember, signed: Signed | None) -> int | None:
        if not sender.codes:
            return None
        if signed is None:
            return self.ha.ticket_for(Holder(sender.id))
        return self.ha.ticket_for(Holder(sender.id, signed.session.secret_id), signed.ticket)

    def _may_join(self, request: Request, asker: GroupMember) -> bool:
        """True when the sender may join the group: a follower may, but only under its own IP, since the record sends all other
        members to the address that it names. This machine and haAllowedSlaves may name another IP, as they have several, and
        so may a member that proves who it is.
        """
        ip = ip_of(request.connection.remote_address)
        admission = self.ha.connection_admission.rules
        if request.signed is not None or self._is_here(ip) or admission.is_allowed(ip):
            return True
        return (admission.admits(ip) or ip in self._member_ips()) and self._names_itself(ip, asker)

    async def _require_allowed(self, request: Request) -> None:
        if request.signed is not None:
            return
        ip = ip_of(request.connection.remote_address)
        if self._is_allowed(ip):
            return
        await self.settings.hosts.renew(*self._member_addresses(), max_age=0.2)  # Its name may mean this IP by now.
        if not self._is_allowed(ip):
            raise RequestError(ResponseCode.NO_PERMISSION, f"{request.connection.remote_address} {NOT_ALLOWED}")

    def _is_allowed(self, ip: str) -> bool:
        return self._is_here(ip) or ip in self._member_ips() or self.ha.connection_admission.rules.trusts(ip)

    def _is_here(self, ip: str) -> bool:
        return ip in self.settings.hosts.ips_of(self.settings.address) or ip_address(ip.partition("%")[0]).is_loopback

    def _member_addresses(self) -> set[str]:
        group, master = self.roles.member.group, self.group.master.address
        members = group.members if group is not None else ()
        known = {address for each in members for address in (each.address, each.member_address or each.address)}
        # A master may send a request before it has sent the record.
        return known | ({master} if self.store.config.is_slave and master is not None else set())

    def _member_ips(self) -> set[str]:
        return {ip for address in self._member_addresses() for ip in self.settings.hosts.ips_of(address)}

    def _names_itself(self, ip: str, asker: GroupMember) -> bool:
        return all(ip in self.settings.hosts.ips_of(address) for address in _addresses(asker))


def _require_sender(request: Request, id: str) -> None:
    """A member speaks for itself only, whatever else it can prove."""
    if request.signed is not None and request.signed.sender != id:
        why = f"the request is signed by {request.signed.sender:.64}, and speaks for {id:.64}"
        raise RequestError(ResponseCode.NO_PERMISSION, why)


def _addresses(member: GroupMember) -> tuple[str, ...]:
    return tuple(filter(None, (member.address, member.ha_address, member.member_address)))


def _object(request: Request) -> dict[str, Any]:
    try:
        return dict(orjson.loads(request.body))
    except (ValueError, TypeError) as error:
        raise _unusable(error) from error


def _read(kind: type[T], request: Request) -> T:
    try:
        return from_plain(kind, _object(request))
    except ValueError as error:
        raise _unusable(error) from error


def _unusable(error: Exception) -> RequestError:
    return RequestError(ResponseCode.INVALID_PARAMETER, f"the body is invalid: {error}")


async def _answered(ask: Callable[[A], Awaitable[object]], asked: A) -> Reply:
    """Answer a request: a refusal is code 16 with a line for each rule, an error of this member is code 1."""
    try:
        return Reply(body=encode(await ask(asked)))
    except RoleRefusedError as error:
        raise RequestError(ResponseCode.NO_PERMISSION, "\n".join(error.lines)) from error
    except (ValueError, KeyError) as error:
        raise _unusable(error) from error
    except (RoleFileError, StoreError, HAError, OSError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
