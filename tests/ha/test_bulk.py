"""A slave that receives much at once: the same log, queues and verdicts as one that receives little, and honest acks."""

import os
import random
import threading
from contextlib import suppress

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from ha import replica as replica_module
from ha.config import HAConfig
from ha.errors import HABadRecordError, HAConnectionLostError, HALogError
from ha.protocol import ACK, BATCH_HEADER, BatchReader
from ha.replica import Replica
from ha.transport import StreamTransport
from store.commit_log import CommitLog
from store.config import BrokerRole
from tests.helpers import log_bytes, open_store, put
from tests.store.golden import queue_files

FILE_SIZE = 256 * 1024


@pytest.fixture(autouse=True)
def small_is_much(monkeypatch):
    monkeypatch.setattr(replica_module, "BULK_SIZE", 8_000)
    monkeypatch.setattr(replica_module, "IN_THREAD_SIZE", 20_000)


@pytest.fixture
def master(tmp_path):
    """A thousand messages of many sizes in some files."""
    store = open_store(tmp_path / "master", file_size=FILE_SIZE)
    rnd = random.Random(1)
    for number in range(100):
        put(store, *[rnd.randbytes(rnd.choice((1000, 1000, 10, 3000))) for _ in range(10)], topic=f"T{number % 7}")
    assert store.max_offset > 4 * FILE_SIZE
    store.dispatch_pending()
    return store


class Connection:
    """A slave on one end of a stream; the test is the master on the other."""

    def __init__(self, root, **config):
        self.store = open_store(root, file_size=FILE_SIZE, role=BrokerRole.SLAVE)
        ours, self.stream = memory_stream_pair()
        self.replica = Replica(StreamTransport(ours), self.store, HAConfig(**config))
        self.acks, self.error, self.ended = [], None, trio.Event()

    async def run(self):
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
                await self.stream.send_all(BATCH_HEADER.pack(at, size) + data[at : at + size])
                at += size

    async def until_level(self, end):
        with trio.fail_after(10):
            while not self.acks or self.acks[-1] < end:
                await trio.sleep(0.001)


@pytest.fixture
async def connection(tmp_path, nursery):
    found = Connection(tmp_path / "slave", receive_buffer_size=64 * 1024)
    nursery.start_soon(found.run)
    nursery.start_soon(found.read_acks)
    yield found
    await found.stream.aclose()


@pytest.mark.parametrize("sizes", [(200_000,), (30_000,), (5_000,), (100, 70_000, 3_000, 12_000)])
async def test_all_of_it_arrives(connection, master, sizes):
    data, rnd = log_bytes(master), random.Random(2)
    await connection.send(data, iter(lambda: rnd.choice(sizes), None))
    await connection.until_level(len(data))
    assert log_bytes(connection.store) == data
    assert connection.acks == sorted(connection.acks)
    connection.store.dispatch_pending()
    assert queue_files(connection.store.config.root) == queue_files(master.config.root)
    assert connection.replica.received_bytes == len(data)


@pytest.mark.parametrize("place", [0.02, 0.5, 0.97])
async def test_nothing_is_taken_from_a_bad_record_on(connection, master, place):
    data = bytearray(log_bytes(master))
    at = int(len(data) * place)
    starts = [
        entry.phy_offset
        for file in master.commit_log.files.files
        for entry in replica_module.scan_records(
            bytes(data[file.start : file.end]), file.start, FILE_SIZE, check_crc=True
        ).entries
    ]
    bad = max(start for start in starts if start <= at)
    data[bad + 89] ^= 1
    await connection.send(data, iter(lambda: 60_000, None))
    await connection.ended.wait()
    assert isinstance(connection.error, HABadRecordError)
    assert log_bytes(connection.store) == data[:bad]


async def test_what_the_disk_refuses_is_not_acknowledged(connection, master, monkeypatch):
    data, real = log_bytes(master), CommitLog.append_raw_in_thread

    async def refuse(log, some):
        if log.max_offset > FILE_SIZE:
            raise OSError(28, "No space left on device")
        await real(log, some)

    monkeypatch.setattr(CommitLog, "append_raw_in_thread", refuse)
    await connection.send(data, iter(lambda: 60_000, None))
    await connection.ended.wait()
    assert isinstance(connection.error, HALogError)
    assert "No space" in str(connection.error)
    assert connection.acks[-1] <= connection.store.max_offset < len(data)
    assert connection.store.flags.why_not_appendable


async def test_the_next_stretch_is_received_while_one_is_written(connection, master, monkeypatch):
    """A disk that hangs holds back acks and log, not the socket; and a connection that ends waits for the write."""
    data, real, go = log_bytes(master), os.pwrite, threading.Event()

    def hang(fd, some, position):
        if len(some) >= 20_000:
            assert go.wait(10)
        return real(fd, some, position)

    monkeypatch.setattr(os, "pwrite", hang)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.send, data[:150_000], iter(lambda: 50_000, None))
        await wait_all_tasks_blocked(0.01)
        held = connection.store.max_offset
        assert held < 50_000
        assert connection.replica.position >= 100_000
        go.set()
    await connection.stream.send_eof()
    await connection.ended.wait()
    assert isinstance(connection.error, HAConnectionLostError)
    assert data.startswith(log_bytes(connection.store))
    assert connection.store.max_offset > held


def test_a_buffer_is_handed_over_with_what_it_begins_with():
    reader = BatchReader(next_offset=0, file_size=1000, buffer_size=64)
    reader.free_space()[:40] = BATCH_HEADER.pack(0, 24) + bytes(range(24)) + BATCH_HEADER.pack(24, 9)[:4]
    reader.received(40)
    first = reader.hand_over(20, None)
    assert bytes(first[:20]) == bytes(range(20))
    assert (bytes(reader.staged), reader.staged_offset) == (bytes(range(20, 24)), 20)
    reader.free_space()[:10] = BATCH_HEADER.pack(24, 9)[4:] + b"ab"
    reader.received(10)
    second = reader.hand_over(5, first)
    assert bytes(second[:5]) == bytes(range(20, 24)) + b"a"
    assert bytes(reader.staged) == b"b"
    reader.free_space()[:7] = b"cdefghi"
    reader.received(7)
    assert bytes(reader.staged) == b"bcdefghi"
    assert reader.next_offset == 33
