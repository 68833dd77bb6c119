"""Requests about roles, between members and from whoever runs them: 1007, and twinlog's own 20004 to 20006. All bodies are JSON.

1007 tells everybody what the log's epochs are, as RocketMQ 5 does. The others change what this member may do: they are taken from
members of the group's record, from this machine and from haAllowedSlaves only.
"""

from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any, TypeVar

import orjson

from twinlog.cluster.broker.peers.role_messages import STRANGER, Op, RoleRefusedError, encode, history_body
from twinlog.cluster.broker.roles.durable_state import RoleFileError
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.members import ChangeRole, GetBrokerEpoch, RenewLease, RequestVote
from twinlog.cluster.remoting.names import ip_of
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.ha.election.voter import LeaseRequest, VoteRequest
from twinlog.ha.errors import HAError
from twinlog.store.errors import StoreError
from twinlog.store.role_file import GroupMember
from twinlog.store.util.plain import from_plain

T = TypeVar("T")
A = TypeVar("A")


async def get_broker_epoch(broker: BrokerParts, header: GetBrokerEpoch, request: Request) -> Reply:
    """What this log's history is; a member that says who it is belongs to the group soon."""
    roles = _roles(broker)
    asker = None
    if header.member and header.ha_address:
        name = header.name or header.member
        told = GroupMember(
            address=header.member, ha_address=header.ha_address, broker_id=header.broker_id or 0, name=name
        )
        if _may_join(broker, request, told):
            asker = told
            if header.ha_end:
                ip = ip_of(request.connection.remote_address)
                is_own = ip_of(header.ha_end) in (ip, ip_of(told.ha_address))  # Of two networks, it may be.
                broker.slave_peers.told(header.member, header.ha_end if is_own else "", ip)
        elif _names_itself(request, told):
            roles.joining.ask_unregistered(told)
        else:
            roles.joining.ask_from_other_ip(told, ip_of(request.connection.remote_address))
    body = history_body(
        roles.history(asker),
        cluster=broker.config.broker_cluster_name,
        name=broker.config.broker_name,
        broker_id=broker.config.broker_id,
        more={"paused": roles.member.paused()},
    )
    return Reply(body=body)


async def ask_lease(broker: BrokerParts, header: RenewLease, request: Request) -> Reply:
    """20004."""
    _require_allowed(broker, request)
    return await _answered(_roles(broker).voter.renew_lease, _read(LeaseRequest, request))


async def ask_promise(broker: BrokerParts, header: RequestVote, request: Request) -> Reply:
    """20005. A refusal is an answer, too."""
    _require_allowed(broker, request)
    return await _answered(_roles(broker).voter.vote, _read(VoteRequest, request))


async def ask_role_change(broker: BrokerParts, header: ChangeRole, request: Request) -> Reply:
    """20006; `op` says what."""
    _require_allowed(broker, request)
    roles, body = _roles(broker), _object(request)
    op: Op = body.pop("op", None)
    return await _answered(lambda asked: roles.role_change(op, asked), body)


def _roles(broker: BrokerParts) -> RoleService:
    if broker.roles is None:
        raise RequestError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "this member's role never changes")
    return broker.roles


def _may_join(broker: BrokerParts, request: Request, asker: GroupMember) -> bool:
    """Who follows may, under its own IP only: what it says is where the record sends all others. Two sorts may name another IP:
    this machine, and whom haAllowedSlaves names, as it has several.
    """
    ip = ip_of(request.connection.remote_address)
    admission = broker.ha.connection_admission.rules
    if _is_here(broker, ip) or admission.is_allowed(ip):
        return True
    return (admission.admits(ip) or ip in _member_ips(broker)) and _names_itself(request, asker)


def _names_itself(request: Request, asker: GroupMember) -> bool:
    return {ip_of(asker.address), ip_of(asker.ha_address)} == {ip_of(request.connection.remote_address)}


def _is_allowed(broker: BrokerParts, request: Request) -> bool:
    ip = ip_of(request.connection.remote_address)
    master = broker.master.address  # It may ask before it has told us the record.
    return (
        _is_here(broker, ip)
        or ip in _member_ips(broker)
        or broker.ha.connection_admission.rules.trusts(ip)
        or (broker.is_slave and master is not None and ip == ip_of(master))
    )


def _is_here(broker: BrokerParts, ip: str) -> bool:
    return ip == broker.config.broker_ip1 or ip_address(ip.partition("%")[0]).is_loopback


def _member_ips(broker: BrokerParts) -> set[str]:
    group = _roles(broker).member.group
    return {ip_of(each.address) for each in (group.members if group is not None else ())}


def _require_allowed(broker: BrokerParts, request: Request) -> None:
    if not _is_allowed(broker, request):
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"{request.connection.remote_address} {STRANGER}",
        )


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
    return RequestError(ResponseCode.INVALID_PARAMETER, f"the body is not what it should be: {error}")


async def _answered(ask: Callable[[A], Awaitable[object]], asked: A) -> Reply:
    """A refusal is code 16, with a line for each rule; what went wrong here is code 1."""
    try:
        return Reply(body=encode(await ask(asked)))
    except RoleRefusedError as error:
        raise RequestError(ResponseCode.NO_PERMISSION, "\n".join(error.lines)) from error
    except (ValueError, KeyError) as error:
        raise _unusable(error) from error
    except (RoleFileError, StoreError, HAError, OSError) as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error


HANDLERS = (get_broker_epoch, ask_lease, ask_promise, ask_role_change)
