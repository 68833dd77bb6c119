"""Slaves each at their own pace, in virtual time: one that is well beside several that are stuck, each in another way."""

import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import define, field
from trio.testing import lockstep_stream_pair

from tests.helpers import RecordingSink, log_bytes, open_store, put
from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.service import HAService
from twinlog.ha.wire.protocol import ACK, BatchReader
from twinlog.store.config import BrokerRole
from twinlog.store.message_store import MessageStore

FILE_SIZE = 16_384
Slave = Callable[[trio.abc.Stream], Awaitable[None]]


async def follow(stream: trio.abc.Stream, received: bytearray) -> None:
    """Read and acknowledge, as a slave does, at a pace of some MB/s."""
    reader = BatchReader(next_offset=None, file_size=FILE_SIZE)
    await stream.send_all(ACK.pack(0))
    while data := await stream.receive_some(8192):
        await trio.sleep(0.001)
        reader.free_space()[: len(data)] = data
        reader.received(len(data))
        received += reader.staged
        reader.consume(reader.staged_size)
        await stream.send_all(ACK.pack(len(received)))


async def never_read(stream: trio.abc.Stream) -> None:
    """It reports all the time, so it is not silent."""
    while True:
        await stream.send_all(ACK.pack(0))
        await trio.sleep(5)


async def read_a_byte_per_second(stream: trio.abc.Stream) -> None:
    await stream.send_all(ACK.pack(0))
    while await stream.receive_some(1):
        await trio.sleep(1)


async def never_acknowledge(stream: trio.abc.Stream) -> None:
    await stream.send_all(ACK.pack(0))
    while await stream.receive_some(8192):
        pass


STUCK = (never_read, never_read, read_a_byte_per_second, never_acknowledge)


@define(eq=False)
class Run:
    """What producers and the healthy slave saw."""

    received: bytearray = field(factory=bytearray)
    waits: list[float] = field(factory=list)
    stalled: set[str] = field(factory=set)
    peak: int = 0


async def connect(ha: HAService, slave: Slave, number: int) -> None:
    """Until the master ends it. A stuck slave comes back at once, as stuck as before."""
    while True:
        ours, theirs = lockstep_stream_pair()
        async with trio.open_nursery() as nursery:

            async def serve(ours: trio.abc.Stream = ours, scope: trio.CancelScope = nursery.cancel_scope) -> None:
                await ha.serve(StreamTransport(ours), f"10.0.0.{number}:1", f"10.0.0.{number}")
                scope.cancel()

            nursery.start_soon(serve)
            with suppress(trio.BrokenResourceError):
                await slave(theirs)
        await trio.sleep(0.1)


@define(eq=False)
class WaitingSink(RecordingSink):
    """Can be waited for."""

    told: trio.Event = field(factory=trio.Event)

    def answer(self, frames: list[bytes]) -> None:
        super().answer(frames)
        self.told.set()


async def produce(store: MessageStore, ha: HAService, run: Run) -> None:
    """One message after the other, each once the one before is answered."""
    for number in range(600):
        sink, began = WaitingSink(), trio.current_time()
        ha.group_transfer.wait(put(store, bytes([number % 251]) * 300), sink, b"frame")
        with trio.fail_after(3):
            await sink.told.wait()
        run.waits.append(trio.current_time() - began)
        await trio.sleep(0.05)
        if number % 50 == 0:
            run.stalled |= {each.address for each in ha.statistics().connections if each.stalled}


async def replicate(root: Path, *others: Slave) -> Run:
    store, run = open_store(root, file_size=FILE_SIZE, role=BrokerRole.SYNC_MASTER), Run()
    put(store, *[b"x" * 1000] * 200)  # What was there before.
    members = [f"10.0.0.{number}" for number in range(1, 2 + len(others))]
    config = HAConfig(listen_host="127.0.0.1", slave_timeout_ms=3_000)
    ha = HAService(store, config, lambda: members, lambda: None)
    async with trio.open_nursery() as nursery:
        await nursery.start(ha.run)
        for number, slave in enumerate((partial(follow, received=run.received), *others), 1):
            nursery.start_soon(connect, ha, slave, number)
        while len(run.received) < store.max_offset:
            await trio.sleep(0.01)
        tracemalloc.start()
        await produce(store, ha, run)
        run.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        nursery.cancel_scope.cancel()
    assert bytes(run.received) == log_bytes(store)[: len(run.received)]
    return run


@pytest.mark.slow
async def test_stuck_slaves_slow_neither_the_others_nor_producers(autojump_clock, tmp_path):
    alone = await replicate(tmp_path / "alone")
    beside = await replicate(tmp_path / "beside", *STUCK)
    assert sum(beside.waits) <= sum(alone.waits) * 1.05
    assert max(beside.waits) <= max(alone.waits) * 1.05
    assert len(beside.received) == len(alone.received)
    assert beside.peak < alone.peak + len(STUCK) * 16 * FILE_SIZE, (
        "what stuck slaves lack lies in the log, not in memory"
    )
    assert beside.stalled == {f"10.0.0.{number}:1" for number in (2, 3, 4, 5)}
    assert alone.stalled == set()
