"""The master's side of one connection, with the stream's other end in the test's hands."""

import trio
from attrs import define, field
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HAError
from twinlog.ha.master.connection import HAConnection
from twinlog.ha.master.group_transfer import GroupTransferService
from twinlog.ha.wire.protocol import ACK, BatchReader
from twinlog.store.message_store import MessageStore

FILE_SIZE = 16_384


@define(eq=False)
class Master:
    """A store, one connection to it, and the stream's other end, which the test holds."""

    store: MessageStore
    transfer: GroupTransferService = field(factory=GroupTransferService)
    config: HAConfig = field(factory=HAConfig)
    error: HAError | None = None
    ended: trio.Event = field(factory=trio.Event)
    requests: list[HAConnection] = field(factory=list)
    slave: trio.StapledStream = field(init=False)
    connection: HAConnection = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.transfer.members_changed(["10.0.0.1"])
        ours, self.slave = memory_stream_pair()
        self.connection = HAConnection(
            StreamTransport(ours),
            "10.0.0.1:5000",
            "10.0.0.1",
            self.store,
            self.transfer,
            self.config,
            on_request=self.requests.append,
        )

    async def run(self) -> None:
        try:
            await self.connection.run()
        except HAError as error:
            self.error = error
        self.ended.set()

    async def report(self, *offsets: int) -> None:
        await self.slave.send_all(b"".join(ACK.pack(offset) for offset in offsets))
        await wait_all_tasks_blocked()

    async def receive(self, size: int) -> bytes:
        """Exactly so many bytes."""
        data = b""
        while len(data) < size:
            data += await self.slave.receive_some(size - len(data))
        return data

    async def receive_log(self, start: int, end: int) -> bytes:
        """The log's bytes from `start` to `end`, frames taken apart."""
        batches = BatchReader(next_offset=start, file_size=FILE_SIZE)
        while batches.next_offset != end:
            data = await self.slave.receive_some(4096)
            batches.free_space()[: len(data)] = data
            batches.received(len(data))
        return bytes(batches.staged)


async def start(nursery: trio.Nursery, store: MessageStore, **config: int) -> Master:
    master = Master(store, config=HAConfig(**config))
    nursery.start_soon(master.run)
    await wait_all_tasks_blocked()
    return master
