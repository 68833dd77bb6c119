"""The slave's side of one connection, with the stream's other end in the test's hands."""

import trio
from attrs import define, field
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HAError
from twinlog.ha.slave.replica import Replica
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER
from twinlog.store.message_store import MessageStore

FILE_SIZE = 16_384


@define(eq=False)
class Slave:
    """A slave's store, one connection of it, and the stream's other end, which the test holds."""

    store: MessageStore
    config: HAConfig = field(factory=HAConfig)
    error: HAError | None = None
    ended: trio.Event = field(factory=trio.Event)
    master: trio.StapledStream = field(init=False)
    replica: Replica = field(init=False)

    def __attrs_post_init__(self) -> None:
        ours, self.master = memory_stream_pair()
        self.replica = Replica(StreamTransport(ours), self.store, self.config)

    async def run(self) -> None:
        try:
            await self.replica.run()
        except HAError as error:
            self.error = error
        self.ended.set()

    async def send(self, phy_offset: int, *bodies: bytes) -> None:
        """Send frames, one for each body, in one piece."""
        stream = b""
        for body in bodies:
            stream += BATCH_HEADER.pack(phy_offset, len(body)) + body
            phy_offset += len(body)
        await self.master.send_all(stream)
        await wait_all_tasks_blocked()

    async def next_report(self) -> int:
        data = b""
        while len(data) < ACK.size:
            data += await self.master.receive_some(ACK.size - len(data))
        (offset,) = ACK.unpack(data)
        return offset
