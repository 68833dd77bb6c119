"""Gathers the state of name servers and members, all at once and with short time limits; finds the targets of changes."""

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial

import anyio
from attrs import evolve, frozen

from twinlog.cluster.client.api import ClientApi, addresses_of
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.config.properties_file import parse_properties
from twinlog.cluster.observe.members import (
    ClusterFacts,
    Member,
    MemberFacts,
    NoMemberError,
    Probe,
    member_of_runtime_info,
    member_of_status,
    with_lag,
)
from twinlog.cluster.observe.role_views import newest_record
from twinlog.cluster.remoting.errors import (
    RemotingConnectError,
    RemotingError,
    RemotingProtocolError,
    RequestError,
    access_refusal,
)
from twinlog.cluster.remoting.member_status import NO_STATUS, MemberStatus
from twinlog.cluster.remoting.names import split_address
from twinlog.cluster.remoting.route import BrokerAddresses
from twinlog.cluster.remoting.streams import close_now, open_tcp
from twinlog.cluster.user_errors import UserError

PROBE_SECONDS = 3.0
OTHERS_SECONDS = 1.0  # What the others get once the member has answered that a command is about.


def _unasked(group: str, cluster: str, broker_id: int, address: str, *, is_registered: bool = True) -> Member:
    return Member(
        name=f"{group}-{broker_id}" if group else address,
        cluster=cluster,
        group=group,
        broker_id=broker_id,
        address=address,
        role="slave" if broker_id else "master",
        state="unreachable",
        is_registered=is_registered,
    )


async def gather(api: ClientApi, *, thorough: bool, others: tuple[str, ...] = ()) -> ClusterFacts:
    """Ask all members. `thorough`: also for configuration, each name server on its own, and whether HA ports accept connections.

    `others`: addresses of brokers to ask that may not be registered. Raises RemotingError when no name server answers.
    """
    views = dict(zip(api.namesrv, await in_parallel(partial(_view, api, each) for each in api.namesrv), strict=True))
    groups = next((view for view in views.values() if not isinstance(view, str)), None)
    if groups is None:
        address, why = next(iter(views.items()), ("", "no name server is configured"))
        raise RemotingConnectError(address, str(why))
    return ClusterFacts(
        groups=groups, members=await ask_members(api, groups, thorough=thorough, others=others), name_servers=views
    )


async def ask_members(
    api: ClientApi,
    groups: tuple[BrokerAddresses, ...],
    *,
    thorough: bool = False,
    others: tuple[str, ...] = (),
    wanted: str | None = None,
) -> tuple[MemberFacts, ...]:
    """Ask the members of these groups for their status; slaves get their lag. See gather(). `wanted`: the name or address of the
    one that matters; the others are not waited for much longer.
    """
    found = [_unasked(each.broker_name, each.cluster, number, at) for each, number, at in addresses_of(groups)]
    known = {each.address for each in found}
    found += [_unasked("", "", 0, each, is_registered=False) for each in others if each not in known]
    asked = await _ask(api, found, thorough, wanted)
    kept = _kept_in_mind(asked, {each.address for each in found})
    is_found = any(wanted in (each.member.name, each.member.address) for each in asked if each.is_twinlog)
    asked += await _ask(api, kept, thorough, wanted, OTHERS_SECONDS if is_found else math.inf)
    asked = [_named(asked, each) for each in asked]
    members = with_lag([(each.member, each.status) for each in asked])
    return tuple(evolve(each, member=member) for each, member in zip(asked, members, strict=True))


async def _ask(
    api: ClientApi, members: Sequence[Member], thorough: bool, wanted: str | None, seconds: float = math.inf
) -> list[MemberFacts]:
    """All at once, each for so long, and OTHERS_SECONDS more once the one that is wanted has answered."""
    found = dict[str, MemberFacts]()

    async def ask(member: Member) -> None:
        found[member.address] = facts = await _member(api, member, thorough=thorough)
        if facts.is_twinlog and wanted in (facts.member.name, facts.member.address):
            scope.deadline = min(scope.deadline, anyio.current_time() + OTHERS_SECONDS)

    with anyio.move_on_after(seconds) as scope:
        await in_parallel(partial(ask, each) for each in members)
    why = f"no answer within {OTHERS_SECONDS:g} s"
    return [found.get(each.address) or MemberFacts(member=evolve(each, reason=why)) for each in members]


def _kept_in_mind(asked: Sequence[MemberFacts], known: set[str]) -> list[Member]:
    """Members of a group's record that no name server knows: fenced or stopped ones."""
    found: list[Member] = []
    ids = {each.status.member_id for each in asked}  # One that has moved is where it answers.
    for each in {each.member.group: each.member for each in asked}.values():
        record = newest_record(other for other in asked if other.member.group == each.group)
        for kept in record.members if record is not None else ():
            if kept.address not in known and kept.id not in ids:
                unasked = _unasked(each.group, each.cluster, kept.broker_id, kept.address, is_registered=False)
                found.append(evolve(unasked, member_id=kept.id if kept.id != kept.address else None))
    return found


def _named(asked: Sequence[MemberFacts], each: MemberFacts) -> MemberFacts:
    """A silent member keeps its last known name: its brokerId may belong to another member by now."""
    record = newest_record(other for other in asked if other.member.group == each.member.group)
    kept = record.find(each.member.address) if record is not None and not each.is_twinlog else None
    if kept is None or not kept.name.startswith(f"{each.member.group}-"):
        return each
    return evolve(each, member=evolve(each.member, name=kept.name))


async def _view(api: ClientApi, address: str) -> tuple[BrokerAddresses, ...] | str:
    try:
        return await evolve(api, namesrv=(address,)).cluster()
    except RemotingError as error:
        return str(error)


async def _member(api: ClientApi, member: Member, *, thorough: bool) -> MemberFacts:
    facts = MemberFacts(member=member)
    try:
        began = time.time()
        status = await api.member_status(member.address, reach=thorough) or NO_STATUS
        facts = evolve(facts, status=status, clock_ahead_seconds=_clock_ahead(status, began, time.time()))
        if thorough or not facts.is_twinlog:
            facts = evolve(facts, runtime=await api.runtime_info(member.address))
        if thorough:
            options = parse_properties(await api.broker_config(member.address))
            facts = evolve(facts, config={entry.key: entry.value for entry in options})
        facts = evolve(facts, member=_understood(member, facts))
    except RequestError as error:
        refusal = access_refusal(error)
        state, reason = ("failing", str(error)) if refusal is None else ("refusing", refusal)
        return evolve(facts, member=evolve(member, state=state, reason=reason))
    except RemotingProtocolError as error:
        return evolve(facts, member=evolve(member, state="failing", reason=str(error)))
    except RemotingError as error:
        return evolve(facts, member=evolve(member, reason=str(error)))
    ha_address = facts.member.ha_address or _ha_address(facts.config)
    return evolve(facts, ha_port=await _probe(ha_address) if thorough and ha_address else None)


def _understood(member: Member, facts: MemberFacts) -> Member:
    if not member.group:  # Nobody told its name; it does itself.
        group = str(facts.status.group or facts.config.get("brokerName") or "?")
        number = int(facts.status.broker_id or facts.config.get("brokerId") or 0)
        cluster = str(facts.status.cluster or facts.config.get("brokerClusterName") or "")
        member = _unasked(group, cluster, number, member.address, is_registered=member.is_registered)
    if facts.is_twinlog:
        return member_of_status(member, facts.status)
    return member_of_runtime_info(member, facts.runtime)


def _clock_ahead(status: MemberStatus, began: float, ended: float) -> float | None:
    """Difference of the clocks, without the time between request and response."""
    if status.now_ms is None:
        return None
    now = status.now_ms / 1000
    return min(now - began, 0.0) + max(now - ended, 0.0)


def _ha_address(config: Mapping[str, str]) -> str | None:
    """HA address that a RocketMQ broker announces to slaves; 4.9 takes listenPort + 1, whatever haListenPort is."""
    host, port = config.get("brokerIP2"), config.get("haListenPort") or ""
    return f"{host}:{port}" if host and port.isdigit() and port != "0" else None


async def _probe(address: str) -> Probe:
    """Connect and close without sending: neither RocketMQ nor twinlog takes that for a slave."""
    error = f"no answer within {PROBE_SECONDS:g} s"
    with anyio.move_on_after(PROBE_SECONDS):
        try:
            await close_now(await open_tcp(*split_address(address)))
            return Probe(address, None)
        except (OSError, ValueError) as refusal:
            error = str(refusal)
    return Probe(address, error)


def error_text(error: BaseException) -> str:
    """The error as one line."""
    refusal = access_refusal(error)
    return str(error) if refusal is None else f"access control refuses it: {refusal}"


class NoMasterError(RemotingError, UserError):
    """No master is registered for a group that has to be written to."""

    next_step = "See who is there with: twinlog list"


@frozen
class Target:
    """The master of one broker group."""

    broker: str
    address: str


async def masters(api: ClientApi, *, brokers: tuple[str, ...] = (), cluster: str | None = None) -> tuple[Target, ...]:
    """The masters of these groups (none named: of all), for changes.

    Raises NoMemberError for an unknown name, and NoMasterError for a group without a master, so that no change is done in half.
    """
    groups = await api.cluster()
    found = [
        each for each in groups if (not brokers or each.broker_name in brokers) and cluster in (None, each.cluster)
    ]
    for name in brokers:
        if name not in {each.broker_name for each in groups}:
            raise NoMemberError(name)
    if cluster is not None and not found:
        raise NoMemberError(cluster)
    if not found:
        raise NoMasterError("no broker is registered at the name server")
    return tuple(_target(each) for each in found)


def _target(group: BrokerAddresses) -> Target:
    if group.master is None:
        raise NoMasterError(f"{group.broker_name} has no master: nothing of it can be changed now")
    return Target(group.broker_name, group.master)


def readers(groups: tuple[BrokerAddresses, ...]) -> tuple[Target, ...]:
    """The member to ask about each group: its master or, without one, a slave."""
    found = ((each.broker_name, each.find(0)) for each in groups)
    return tuple(Target(name, address) for name, address in found if address is not None)


async def member_address(api: ClientApi, member: str) -> tuple[str, str]:
    """(name, address) of a member by its name (GROUP-NUMBER, or GROUP for its master) or HOST:PORT. Raises NoMemberError."""
    if ":" in member:
        return member, member
    for group, broker_id, address in addresses_of(await api.cluster()):
        if member == f"{group.broker_name}-{broker_id}" or (member == group.broker_name and broker_id == 0):
            return f"{group.broker_name}-{broker_id}", address
    # Members keep their names when roles change; only they know them.
    for each in (await gather(api, thorough=False)).members:
        if each.member.name == member:
            return member, each.member.address
    raise NoMemberError(member)
