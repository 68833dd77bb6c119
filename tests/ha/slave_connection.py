"""A slave on one end of a stream whose other end is the test, as its master."""

import random
from contextlib import suppress

import trio

from tests.helpers import open_store, put
from twinlog.ha.config import HAConfig
from twinlog.ha.slave.replica import Replica
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER
from twinlog.store.config import BrokerRole

FILE_SIZE = 256 * 1024
SECONDS_MAX = 30


def long_log(root):
    """A master's store: a thousand messages of many sizes in some files."""
    store = open_store(root, file_size=FILE_SIZE)
    rnd = random.Random(1)
    for number in range(100):
        put(store, *[rnd.randbytes(rnd.choice((1000, 1000, 10, 3000))) for _ in range(10)], topic=f"T{number % 7}")
    assert store.max_offset > 4 * FILE_SIZE
    store.dispatch_pending()
    return store


class SlaveConnection:
    """`ends`: the slave's transport, and the stream at the other end of it."""

    def __init__(self, root, ends, **config):
        self.store = open_store(root, file_size=FILE_SIZE, role=BrokerRole.SLAVE)
        transport, self.stream = ends
        self.replica = Replica(transport, self.store, HAConfig(**config))
        self.acks, self.error, self.ended, self.scope = [], None, trio.Event(), trio.CancelScope()

    async def run(self):
        with self.scope:
            try:
                await self.replica.run()
            except Exception as error:
                self.error = error
        self.ended.set()

    async def read_acks(self):
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            async for data in self.stream:
                for (offset,) in ACK.iter_unpack(data):
                    assert offset <= self.store.max_offset, "an ack of what is not in the log"
                    self.acks.append(offset)

    async def send(self, data, sizes):
        at = 0
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):  # It may have left.
            while at < len(data):
                size = min(next(sizes), len(data) - at, FILE_SIZE - at % FILE_SIZE)
                await self.send_frame(at, data[at : at + size])
                at += size

    async def send_frame(self, at, body):
        if body:
            await self.stream.send_all(BATCH_HEADER.pack(at, len(body)) + body)

    async def until_level(self, end):
        with trio.fail_after(SECONDS_MAX):
            while not self.acks or self.acks[-1] < end:
                await trio.sleep(0.001)

    async def until_ended(self):
        with trio.fail_after(SECONDS_MAX):
            await self.ended.wait()
