"""A slave that receives much at once: the same log, queues and verdicts as one that receives little, and honest acks."""

import importlib
import random
import sys
import threading
from contextlib import suppress

import pytest
import trio
from trio.testing import memory_stream_pair

from ha import replica as replica_module
from ha.config import HAConfig
from ha.errors import HABadRecordError, HAConnectionLostError, HALogError
from ha.protocol import ACK, BATCH_HEADER
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
                await self.send_frame(at, data[at : at + size])
                at += size

    async def send_frame(self, at, body):
        if body:
            await self.stream.send_all(BATCH_HEADER.pack(at, len(body)) + body)

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
    data, real = log_bytes(master), CommitLog.append_raw

    def refuse(log, some):
        if log.max_offset > FILE_SIZE:
            raise OSError(28, "No space left on device")
        real(log, some)

    monkeypatch.setattr(CommitLog, "append_raw", refuse)
    await connection.send(data, iter(lambda: 60_000, None))
    await connection.ended.wait()
    assert isinstance(connection.error, HALogError)
    assert "No space" in str(connection.error)
    assert connection.acks[-1] <= connection.store.max_offset < len(data)
    assert connection.store.flags.why_not_appendable


async def test_where_much_arrives_more_of_it_is_waited_for_but_not_for_long(
    autojump_clock, connection, master, monkeypatch
):
    """Each stretch has its price: forty frames one after the other are a few stretches; and a lone one is taken soon."""
    data, real, stretches = log_bytes(master), CommitLog.append_raw, []
    monkeypatch.setattr(CommitLog, "append_raw", lambda log, some: (stretches.append(len(some)), real(log, some)))
    sent = data[: 40 * 10_000]
    for at in range(0, len(sent), 10_000):
        size = min(10_000, FILE_SIZE - at % FILE_SIZE)
        await connection.send_frame(at, sent[at : at + size])
        await connection.send_frame(at + size, sent[at + size : at + 10_000])
        await trio.sleep(0.0001)
    begun = trio.current_time()
    while len(sent) - connection.store.max_offset > 4_000:  # The last record is cut.
        await trio.sleep(0.0001)
    assert trio.current_time() - begun < 0.01
    assert len(stretches) < 15


async def test_what_takes_long_to_import_is_imported_in_a_thread(connection, master, monkeypatch):
    """Numpy, at the first stretch of a process: meanwhile the loop has other things to do."""
    threads, real = [], importlib.import_module
    monkeypatch.delitem(sys.modules, replica_module.COLUMNS)
    monkeypatch.setattr(
        importlib, "import_module", lambda name: (threads.append(threading.current_thread()), real(name))
    )
    data = log_bytes(master)
    await connection.send(data, iter(lambda: 60_000, None))
    await connection.until_level(len(data))
    assert threads
    assert threads[0] is not threading.main_thread()


async def test_what_was_gathered_before_the_connection_ends_is_taken(connection, master):
    data = log_bytes(master)
    await connection.send_frame(0, data[:20_000])
    await connection.stream.send_eof()
    await connection.ended.wait()
    assert isinstance(connection.error, HAConnectionLostError)
    assert len(data) > connection.store.max_offset > 15_000
    assert data.startswith(log_bytes(connection.store))
