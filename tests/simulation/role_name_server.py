"""A name server that knows who says that he is the master: id 0, whoever said so last."""

from typing import TYPE_CHECKING

import trio
from attrs import define, field

from tests.simulation.name_server import IP, NameServer
from twinlog.ha.election.witness import MasterAnswer, WitnessReport

if TYPE_CHECKING:
    from tests.simulation.member import Member

MASTER_ID = 0
ASK_SECONDS = 0.7


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

    async def report(self, ip: str) -> WitnessReport:
        """Whether it hears the master: it asks the process that registered, as ours do."""
        await self.world.network.round_trip(ip, IP)
        if not self.up:
            await trio.sleep_forever()
        alive = self._alive()
        name = next((name for name in alive if self.ids[name] == MASTER_ID), None)
        answer = None
        if name is not None:
            with trio.move_on_after(ASK_SECONDS):
                answer = await self._answer(name)
        await self.world.network.round_trip(IP, ip)
        return WitnessReport(
            up_ms=round((trio.current_time() - self.began_at) * 1000),
            members=len(alive),
            master=alive[name][1] if name is not None else None,
            answer=answer,
        )

    async def _answer(self, name: str) -> MasterAnswer:
        member = next(each for each in self.world.processes if each.name == name)  # type: ignore[attr-defined]
        await self.world.network.round_trip(IP, member.ip)
        if member.held is not None:
            await member.goes_on.wait()
        if member.roles is None:  # Its connection is gone, or says nothing.
            await trio.sleep_forever()
        await self.world.network.round_trip(member.ip, IP)
        return MasterAnswer(serves=member.service.member.is_serving, epoch=member.service.member.id.epoch)

    def _alive(self) -> dict[str, tuple[str, str, float]]:
        return {name: entry for name, entry in super()._alive().items() if name in self.ids}
