"""Which brokers an operation is for, from the names that a person gives."""

from attrs import frozen

from twinlog.cluster.client.api.api import ClientApi, addresses_of
from twinlog.cluster.client.route import BrokerAddresses
from twinlog.cluster.observe.members import NoMemberError
from twinlog.cluster.remoting.errors import RemotingError


class NoMasterError(RemotingError):
    """A group that has to be written to has no master now."""


@frozen
class Target:
    """The master of one broker group."""

    broker: str
    address: str


async def masters(api: ClientApi, *, brokers: tuple[str, ...] = (), cluster: str | None = None) -> tuple[Target, ...]:
    """The masters of these groups (none named: of all), for changes.

    Raises NoMemberError for a name that nobody has, and NoMasterError for a group without a master: half a change is none.
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
    """Whom to ask about each group: its master or, without one, a slave."""
    found = ((each.broker_name, each.find(0)) for each in groups)
    return tuple(Target(name, address) for name, address in found if address is not None)


async def member_address(api: ClientApi, member: str) -> tuple[str, str]:
    """(name, address) of a member by its name (GROUP-NUMBER, or GROUP for its master) or HOST:PORT. Raises NoMemberError."""
    if ":" in member:
        return member, member
    for group, broker_id, address in addresses_of(await api.cluster()):
        if member == f"{group.broker_name}-{broker_id}" or (member == group.broker_name and broker_id == 0):
            return f"{group.broker_name}-{broker_id}", address
    from twinlog.cluster.observe.gather import (
        gather,  # Members keep their names when roles change; only they know them.
    )

    for each in (await gather(api, thorough=False)).members:
        if each.member.name == member:
            return member, each.member.address
    raise NoMemberError(member)
