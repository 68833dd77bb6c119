"""A name server in a few lines: who is registered, and what it forgets."""

from typing import TYPE_CHECKING

import trio
from attrs import define, field

if TYPE_CHECKING:
    from tests.simulation.member import Member
    from tests.simulation.world import World

IP = "10.0.0.100"
SILENT_SECONDS = 120.0  # RouteInfoManager.BROKER_CHANNEL_EXPIRED_TIME: after a power cut nobody closes a connection.


@define(eq=False)
class NameServer:
    """Knows a broker as long as its connection lives."""

    world: "World"
    up: bool = True
    known: dict[str, tuple[str, str, float]] = field(factory=dict)  # Member: IP, HA address, when it registered.
    began_at: float = 0.0

    def forget(self) -> None:
        """It restarts: whoever is to be known has to register again."""
        self.known.clear()
        self.began_at = trio.current_time()

    def lost(self, member: "Member") -> None:
        """The connection of a member ended, unless its machine lost power: then it is only silent."""
        if not member.power_is_cut:
            self.known.pop(member.name, None)

    async def _reach(self, member: "Member") -> None:
        await self.world.network.round_trip(member.ip, IP)
        if not self.up:
            await trio.sleep_forever()

    async def register(self, member: "Member") -> str | None:
        """Take a registration; the master's HA address, if it is known. Waits for ever while it cannot be reached."""
        await self._reach(member)
        self.known[member.name] = (member.ip, member.address, trio.current_time())
        return next((entry[1] for name, entry in self._alive().items() if name == "m"), None)

    async def slaves(self, member: "Member") -> set[tuple[int, str]]:
        """Number and IP of each registered slave."""
        await self._reach(member)
        return {(int(name[1:]), entry[0]) for name, entry in self._alive().items() if name != "m"}

    def _alive(self) -> dict[str, tuple[str, str, float]]:
        now = trio.current_time()
        return {name: entry for name, entry in self.known.items() if now - entry[2] < SILENT_SECONDS}
