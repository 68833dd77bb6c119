"""A member's remoting port, over the simulated network: what twinlog.ha.peer.Peer asks of another member."""

from typing import TYPE_CHECKING

import trio
from attrs import define

from tests.simulation.determinism import machine_of_task
from twinlog.ha.errors import HAPeerError
from twinlog.ha.peer import PeerHistory, PeerLog
from twinlog.store.errors import StoreError
from twinlog.store.integrity.digest import RangeDigests
from twinlog.store.integrity.range_digests import RangeDigester
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import GroupMember

if TYPE_CHECKING:
    from tests.simulation.world import World

TIMEOUT = 3.0
DIGESTS_MAX = 64


@define(eq=False)
class SimPeer:
    """Whoever has his HA port at an address, asked from an IP."""

    world: "World"
    ip: str
    address: str

    async def _ask(self) -> MessageStore:
        with trio.move_on_after(TIMEOUT):
            await self.world.network.round_trip(self.ip, self.address.rpartition(":")[0])
            for member in self.world.members.values():
                if member.address == self.address and member.up and member.store is not None:
                    if member.held is not None:
                        await member.goes_on.wait()
                    return member.store
            raise HAPeerError(f"{self.address}: connection refused")
        raise HAPeerError(f"{self.address}: no answer within {TIMEOUT:g} s")

    async def log(self) -> PeerLog:
        store = await self._ask()
        is_master = store.config.broker_role.value != "SLAVE"
        boot_ms = self.world.boot_ms(self.address)
        return PeerLog(
            is_twinlog=True,
            min_offset=store.min_offset,
            max_offset=store.max_offset,
            boot_ms=boot_ms,
            file_size=store.config.mapped_file_size_commit_log,
            is_master=is_master,
        )

    async def digests(self, start: int, end: int, *, blocks_per_digest: int = 1) -> RangeDigests | None:
        store = await self._ask()
        token = machine_of_task.set(None)  # What is read for the answer is read on the other machine.
        try:
            digester = RangeDigester(store.commit_log, store.digest)
            found = await digester.answer(start, end, blocks_per_digest=blocks_per_digest, digests_max=DIGESTS_MAX)
        except (StoreError, OSError) as error:
            raise HAPeerError(str(error)) from error
        finally:
            machine_of_task.reset(token)
        if await self._ask() is not store:
            raise HAPeerError(f"{self.address}: the connection was lost")
        return RangeDigests(found.start, found.end, found.blocks_per_digest, found.digests)

    async def history(self, me: GroupMember | None) -> PeerHistory | None:
        """None where roles do not change: nobody has a history then."""
        return None

    async def record(self, phy_offset: int) -> bytes | None:
        store = await self._ask()
        view = store.message_at(phy_offset)
        return bytes(view) if view is not None else None
