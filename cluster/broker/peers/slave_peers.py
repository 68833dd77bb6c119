"""Finds the registered slave at the other end of an HA connection, and whether slaves verify and flush.

A twinlog slave compares its log by itself. It reports its end of the connection when it asks for the master's history, once the
connection stands, and in its member status. Where a proxy or an address translation is between, that end is none of ours, and
the next connection from the IP that reported it is the slave's. A RocketMQ slave reports
nothing: it is one with the same IP, and its log ends at the requested offset, or behind it.
"""

from collections.abc import Callable, Collection, Mapping

import trio
from attrs import define, field, frozen

from twinlog.cluster.broker.peers.ha_peer import RemotingPeer
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.member_status import MemberStatus
from twinlog.cluster.remoting.names import ip_of
from twinlog.ha.errors import HAPeerError
from twinlog.ha.peer import Peer

TIMEOUT_MS = 1_000
REPORTS_MAX = 100  # Members.
REPORT_SECONDS = 10.0  # A slave reports its connection right before its request there.


@frozen
class _EndReport:
    """A member's end of its last connection, and the IP that reported it; seconds, monotonic."""

    end: str
    ip: str
    at: float


@define(eq=False)
class SlavePeers:
    """`addresses` gives the remoting ports of the registered slaves. `ask_members` is called where none of them answers:
    the one that is looked for may have only just registered.
    """

    client: RemotingClient
    addresses: Callable[[], Collection[str]]
    ask_members: Callable[[], None]
    behind: Callable[[str], Collection[str]] = lambda _ip: ()  # Remoting ports of members whose HA address has this IP.
    ips_of: Callable[[str], Collection[str]] = lambda address: (ip_of(address),)  # Of HOST:PORT.
    is_open: Callable[[str], bool] = lambda _end: True  # Whether we have an HA connection with this end.
    _reports: dict[str, _EndReport] = field(factory=dict, init=False)  # By member.

    def report(self, address: str, ha_end: str, ip: str) -> None:
        """A twinlog member at `ip` says that this is its end of an HA connection."""
        if len(self._reports) >= REPORTS_MAX:
            self._reports.clear()
        self._reports[address] = _EndReport(ha_end, ip, trio.current_time())

    def _is_reported(self, ha_end: str, ip: str) -> bool:
        """Once: another program may be at this end later."""
        since = trio.current_time() - REPORT_SECONDS
        for address, reported in self._reports.items():
            if reported.end == ha_end or (reported.ip == ip and reported.at > since and not self.is_open(reported.end)):
                del self._reports[address]
                return True
        return False

    async def find(self, ha_end: str, requested: int) -> Collection[Peer] | None:
        """See twinlog.ha.master.slave_check.FindSlave."""
        ip = ip_of(ha_end)
        if self._is_reported(ha_end, ip):
            return None
        found: list[Peer] = []
        compares = False

        async def look_at(address: str) -> None:
            nonlocal compares
            try:
                status = await ClientApi(self.client, (), TIMEOUT_MS).member_status(address)
                if status is not None:
                    compares |= status.master is not None and status.master.local_address == ha_end
                    return
                peer = RemotingPeer(address, self.client)
                if (await peer.log()).max_offset >= requested:
                    found.append(peer)
            except (RemotingError, HAPeerError):
                pass  # Its log is unknown.

        async with trio.open_nursery() as nursery:
            there = {address for address in self.addresses() if ip in self.ips_of(address)}
            for address in there | set(self.behind(ip)):
                nursery.start_soon(look_at, address)
        if compares:
            return None
        if not found:
            self.ask_members()
        return found


ASK_SECONDS = 5.0


@frozen
class SlaveKind:
    """A twinlog slave. `flushes`: before it acknowledges; `directory` and `broker_id`: its name."""

    flushes: bool = False
    directory: str = ""
    broker_id: int = 0


@define(eq=False)
class SlaveKinds:
    """Asks the registered slaves; `addresses` gives those of their remoting ports. `kinds` holds the twinlog slaves by
    their end of the HA connection; who is missing is a RocketMQ slave, or did not answer.
    """

    client: RemotingClient
    addresses: Callable[[], Collection[str]]
    kinds: Mapping[str, SlaveKind] = field(factory=dict, init=False)

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self.ask()
            await trio.sleep(ASK_SECONDS)

    async def ask(self) -> None:
        """Ask all slaves at once."""
        kinds: dict[str, SlaveKind] = {}

        async def ask(address: str) -> None:
            try:
                status = await ClientApi(self.client, (), TIMEOUT_MS).member_status(address)
            except RemotingError:
                return  # It is shown as unknown.
            if status is not None:
                kinds.update(kind_of(status))

        async with trio.open_nursery() as nursery:
            for address in self.addresses():
                nursery.start_soon(ask, address)
        self.kinds = kinds


def kind_of(status: MemberStatus) -> dict[str, SlaveKind]:
    """The kind by the slave's end of the HA connection; empty when it has none."""
    if status.master is None or status.master.local_address is None:
        return {}
    flushes = status.ack_mode == "flushed"
    return {status.master.local_address: SlaveKind(flushes, status.name or "", status.broker_id or 0)}
