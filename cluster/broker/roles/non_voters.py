"""Brings RocketMQ slaves into the group's record. They ask nobody who they are; the name server tells.

A slave of ours says by itself that it wants to belong. One that does not know our requests acknowledges as well as any, and
cannot promise: it counts among the members, and not among the voters.
"""

from collections.abc import Mapping

from attrs import define, field

from twinlog.cluster.broker.group.registration import MASTER_ID
from twinlog.cluster.broker.peers.ha_peer import HA_PORT_DISTANCE
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.cluster.remoting.names import split_address
from twinlog.ha.errors import HAPeerError
from twinlog.store.role_file import GroupMember
from twinlog.store.util.wakeup import Wakeup


@define(eq=False)
class NonVoters:
    """`registered` is told who is, each time that name servers have answered."""

    roles: RoleService
    _registered: Mapping[int, str] = field(factory=dict, init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)

    def registered(self, addresses: Mapping[int, str]) -> None:
        """Remoting addresses by id."""
        self.roles.registered(addresses)
        self._registered = addresses
        if self._unknown:
            self._wakeup.set()

    @property
    def _unknown(self) -> dict[str, int]:
        group = self.roles.group
        if group is None or not self.roles.is_serving:
            return {}
        known = {member.address for member in group.members} | {self.roles.address}
        return {
            address: number
            for number, address in self._registered.items()
            if number != MASTER_ID and address not in known
        }

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wakeup.wait()
            for address, broker_id in self._unknown.items():
                await self._look_at(address, broker_id)

    async def _look_at(self, address: str, broker_id: int) -> None:
        try:
            _, port = split_address(address)
            if await self.roles.calls.history(address) is not None:
                return
        except (HAPeerError, ValueError):
            return  # The name server names it again.
        ha_address = f"{address.rpartition(':')[0]}:{port + HA_PORT_DISTANCE}"
        member = GroupMember(address=address, ha_address=ha_address, broker_id=broker_id, name=address, votes=False)
        self.roles.leases.joining[address] = member
        self.roles.leases.ask_soon()
