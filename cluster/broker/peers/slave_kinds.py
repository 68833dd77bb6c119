"""What a master knows of its slaves beyond the acknowledgements: whether they verify them, and flush before them.

The stream tells neither: RocketMQ's slave sends the same 8 bytes and has looked at nothing. A twinlog slave says so in its
member status, and also which end of which HA connection is its own.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import trio
from attrs import define, field, frozen

from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.errors import RemotingError

ASK_SECONDS = 5.0
TIMEOUT_MS = 1_000


@frozen
class SlaveKind:
    """A twinlog slave; `flushes` what it acknowledges. `directory` and `broker_id` make its name."""

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
        """Ask all of them at once."""
        kinds: dict[str, SlaveKind] = {}

        async def ask(address: str) -> None:
            try:
                status = await ClientApi(self.client, (), TIMEOUT_MS).member_status(address)
            except RemotingError:
                return  # Nothing is known of it then, and that is what is shown.
            if status is not None:
                kinds.update(kind_of(status))

        async with trio.open_nursery() as nursery:
            for address in self.addresses():
                nursery.start_soon(ask, address)
        self.kinds = kinds


def kind_of(status: Mapping[str, Any]) -> dict[str, SlaveKind]:
    """By its end of the HA connection; nothing when it has none."""
    master = status.get("master")
    local_address = master.get("localAddress") if isinstance(master, dict) else None
    if not isinstance(local_address, str):
        return {}
    directory, broker_id = status.get("name"), status.get("brokerId")
    flushes = status.get("ackMode") == "flushed"
    return {local_address: SlaveKind(flushes, str(directory or ""), broker_id if isinstance(broker_id, int) else 0)}
