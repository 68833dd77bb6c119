"""A name server that knows who says that he is the master: id 0, whoever said so last."""

from typing import TYPE_CHECKING

import trio
from attrs import define, field

from tests.simulation.name_server import NameServer

if TYPE_CHECKING:
    from tests.simulation.member import Member

MASTER_ID = 0


@define(eq=False)
class RoleNameServer(NameServer):
    """Entries follow a member's address; two with one id replace each other."""

    ids: dict[str, int] = field(factory=dict)  # By member.

    async def register_as(self, member: "Member", broker_id: int) -> str | None:
        """Take a registration; the master's HA address, if it is known. Waits for ever while it cannot be reached."""
        await self._reach(member)
        for name in [name for name, other in self.ids.items() if other == broker_id and name != member.name]:
            self.known.pop(name, None)
            del self.ids[name]
        self.ids[member.name] = broker_id
        self.known[member.name] = (member.ip, member.address, trio.current_time())
        return next((entry[1] for name, entry in self._alive().items() if self.ids[name] == MASTER_ID), None)

    async def addresses(self, member: "Member") -> dict[int, str]:
        """The remoting address of each registered member, by id."""
        await self._reach(member)
        processes = {each.name: each for each in self.world.processes}  # type: ignore[attr-defined]
        return {self.ids[name]: processes[name].broker_address for name in self._alive()}

    async def slaves(self, member: "Member") -> set[tuple[int, str]]:
        await self._reach(member)
        return {(self.ids[name], entry[0]) for name, entry in self._alive().items() if self.ids[name] != MASTER_ID}

    def _alive(self) -> dict[str, tuple[str, str, float]]:
        return {name: entry for name, entry in super()._alive().items() if name in self.ids}
