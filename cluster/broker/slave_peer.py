"""Which of the registered slaves is at the other end of an HA connection, and whom to ask about its log.

A twinlog slave compares its log by itself. It tells its end of the connection when it asks for the master's history, once the
connection stands, and in its member status. A RocketMQ slave tells
nothing of the kind: it is one with the same IP, and its log ends at what it asked for, or behind.
"""

from collections.abc import Callable, Collection

import trio
from attrs import define, field

from cluster.broker.ha_peer import RemotingPeer
from cluster.client.api import ClientApi
from cluster.remoting.client import RemotingClient
from cluster.remoting.errors import RemotingError
from ha.errors import HAPeerError
from ha.peer import Peer

TIMEOUT_MS = 1_000
TOLD_MAX = 100  # Members.


@define(eq=False)
class SlavePeers:
    """`addresses` gives the remoting ports of the registered slaves, IP:PORT. `ask_members` is called where none of them answers:
    the one that is looked for may have only just registered.
    """

    client: RemotingClient
    addresses: Callable[[], Collection[str]]
    ask_members: Callable[[], None]
    behind: Callable[[str], Collection[str]] = lambda _ip: ()  # Remoting ports of members whose HA address has this IP.
    _told: dict[str, str] = field(factory=dict, init=False)  # By member: its end of the last connection.

    def told(self, address: str, ha_end: str) -> None:
        """A twinlog member says that this is its end of an HA connection."""
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        self._told[address] = ha_end

    def _is_told(self, ha_end: str) -> bool:
        """Once: another program may be at this end later."""
        address = next((address for address, told in self._told.items() if told == ha_end), None)
        return address is not None and self._told.pop(address) == ha_end

    async def find(self, ha_end: str, requested: int) -> Collection[Peer] | None:
        """See ha.slave_check.FindSlave."""
        if self._is_told(ha_end):
            return None
        ip = ha_end.rpartition(":")[0]
        found: list[Peer] = []
        compares = False

        async def look_at(address: str) -> None:
            nonlocal compares
            try:
                status = await ClientApi(self.client, (), TIMEOUT_MS).member_status(address)
                if status is not None:
                    master = status.get("master")
                    compares |= isinstance(master, dict) and master.get("localAddress") == ha_end
                    return
                peer = RemotingPeer(address, self.client)
                if (await peer.log()).max_offset >= requested:
                    found.append(peer)
            except (RemotingError, HAPeerError):
                pass  # It cannot be told what it holds.

        async with trio.open_nursery() as nursery:
            there = {address for address in self.addresses() if address.rpartition(":")[0] == ip}
            for address in there | set(self.behind(ip)):
                nursery.start_soon(look_at, address)
        if compares:
            return None
        if not found:
            self.ask_members()
        return found
