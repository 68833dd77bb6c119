"""A slave far behind, which receives first and verifies later: the same log and verdicts, and no word of what is not verified."""

import random
import socket

import pytest
import trio
from trio.testing import memory_stream_pair

from tests.ha.slave_connection import FILE_SIZE, SECONDS_MAX, SlaveConnection, long_log
from tests.helpers import log_bytes, open_store, put
from tests.store.golden import queue_files
from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import AckMode
from twinlog.ha.errors import HABadRecordError, HAConnectionLostError, HALogError, HAProtocolError
from twinlog.ha.policy import deferred_plan as deferred_plan
from twinlog.ha.wire.protocol import BATCH_HEADER
from twinlog.ha.wire.transport import SocketTransport
from twinlog.store.config import BrokerRole
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.unverified_tail import LogTail
from twinlog.store.record.scan import scan_records


@pytest.fixture(autouse=True)
def small_is_much(monkeypatch):
    for name, value in (("FULL_BYTES", 1000), ("FULL_TIMES", 2), ("STRETCH_BYTES", 20_000)):
        monkeypatch.setattr(deferred_plan, name, value)


@pytest.fixture
def master(tmp_path):
    return long_log(tmp_path / "master")


def sockets():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    theirs.setblocking(False)
    return SocketTransport(ours), trio.SocketStream(trio.socket.from_stdlib_socket(theirs))


def streams():
    ours, theirs = memory_stream_pair()
    return StreamTransport(ours), theirs


class Connection(SlaveConnection):
    """Of which one can see what it does not say."""

    def __init__(self, root, make, **config):
        super().__init__(root, make(), receive_buffer_size=16_384, **config)
        self.unverified = []  # As it was seen now and then.
        self.store.appended.append(lambda: self.unverified.append(self.store.unverified_bytes))

    def leaves_nothing_behind(self):
        last = self.store.commit_log.files.files[-1]
        ahead = self.store.config.root / "twinlog" / "ahead"
        return last.is_clear_from(last.wrote) and not (ahead.is_dir() and list(ahead.iterdir()))


@pytest.fixture(params=[streams, sockets])
async def connect(request, tmp_path, nursery):
    """Makes a connection whose slave runs."""
    made = []

    def connect(**config):
        made.append(Connection(tmp_path / "slave", request.param, **config))
        nursery.start_soon(made[-1].run)
        nursery.start_soon(made[-1].read_acks)
        return made[-1]

    yield connect
    for each in made:
        await each.stream.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("verify_trail_max", [1 << 30, 100_000, 3_000, 1])
@pytest.mark.parametrize("sizes", [(200_000,), (30_000,), (100, 70_000, 3_000, 12_000)])
async def test_all_of_it_arrives(connect, master, sizes, verify_trail_max):
    connection = connect(verify_trail_max=verify_trail_max)
    data, rnd = log_bytes(master), random.Random(2)
    await connection.send(data, iter(lambda: rnd.choice(sizes), None))
    await connection.until_level(len(data))
    assert log_bytes(connection.store) == data
    assert connection.acks == sorted(connection.acks)
    assert connection.replica.received_bytes == len(data)
    assert max(connection.unverified) <= verify_trail_max
    if verify_trail_max >= 100_000:
        assert max(connection.unverified) > 20_000
    connection.store.dispatch_pending()
    assert queue_files(connection.store.config.root) == queue_files(master.config.root)
    with trio.fail_after(SECONDS_MAX):
        while connection.store.commit_log.tail is not None:
            await trio.sleep(0.001)
    assert connection.leaves_nothing_behind()


async def test_a_log_without_a_record_has_nothing_to_trail_behind(connect, tmp_path):
    """The first record of an empty log may be so large that it takes a while to arrive."""
    master = open_store(tmp_path / "other", file_size=FILE_SIZE)
    end = put(master, bytes(100_000))
    connection = connect()
    data = log_bytes(master)
    for at in range(0, end, 5000):
        await connection.stream.send_all(BATCH_HEADER.pack(at, len(data[at : at + 5000])) + data[at : at + 5000])
        await trio.sleep(0.005)
    await connection.until_level(end)
    assert log_bytes(connection.store) == data


async def test_0_turns_it_off(connect, master, monkeypatch):
    monkeypatch.setattr(LogTail, "__attrs_post_init__", lambda self: pytest.fail("it trails"))
    connection = connect(verify_trail_max=0)
    await connection.send(log_bytes(master), iter(lambda: 60_000, None))
    await connection.until_level(master.max_offset)


async def test_a_slave_that_is_level_again_takes_what_comes_record_by_record(connect, master):
    connection, data = connect(), log_bytes(master)
    await connection.send(data, iter(lambda: 60_000, None))
    await connection.until_level(len(data))
    with trio.fail_after(SECONDS_MAX):
        while connection.store.commit_log.tail is not None:
            await trio.sleep(0.001)
    end = put(master, b"one more")
    more = log_bytes(master)[len(data) :]
    await connection.stream.send_all(BATCH_HEADER.pack(len(data), len(more)) + more)
    await connection.until_level(end)
    assert connection.unverified[-1] == 0


@pytest.mark.parametrize("place", [0.2, 0.5, 0.97])
async def test_nothing_is_taken_from_a_bad_record_on(connect, master, place):
    connection, data = connect(), bytearray(log_bytes(master))
    bad = max(start for start in _starts(master) if start <= len(data) * place)
    data[bad + 89] ^= 1
    await connection.send(data, iter(lambda: 60_000, None))
    await connection.until_ended()
    assert isinstance(connection.error, HABadRecordError)
    assert connection.error.phy_offset == bad
    assert log_bytes(connection.store) == data[:bad]
    assert max(connection.acks) <= bad
    assert connection.leaves_nothing_behind()
    again = open_again(connection.store)
    assert again.max_offset == bad


async def test_what_came_before_a_connection_ends_is_verified(connect, master):
    connection, data = connect(), log_bytes(master)[:-500]
    await connection.send(data, iter(lambda: 60_000, None))
    await connection.stream.send_eof()
    await connection.until_ended()
    assert isinstance(connection.error, HAConnectionLostError)
    assert len(data) > connection.store.max_offset > len(data) - 4000
    assert data.startswith(log_bytes(connection.store))
    assert connection.leaves_nothing_behind()


async def test_what_came_before_a_frame_that_is_out_of_place_is_verified(connect, master):
    connection, data = connect(), log_bytes(master)
    await connection.send(data[:300_000], iter(lambda: 60_000, None))
    await connection.stream.send_all(BATCH_HEADER.pack(7, 3) + b"???")
    await connection.until_ended()
    assert isinstance(connection.error, HAProtocolError)
    assert 300_000 >= connection.store.max_offset > 290_000
    assert data.startswith(log_bytes(connection.store))


async def test_a_full_disk_ends_it_and_what_came_before_is_verified(connect, master, monkeypatch):
    real = LogTail.write

    def refuse(tail, data):
        if tail.end > 2 * FILE_SIZE:
            raise OSError(28, "No space left on device")
        real(tail, data)

    monkeypatch.setattr(LogTail, "write", refuse)
    connection, data = connect(), log_bytes(master)
    await connection.send(data, iter(lambda: 60_000, None))
    await connection.until_ended()
    assert isinstance(connection.error, HALogError)
    assert "No space" in str(connection.error)
    assert 2 * FILE_SIZE - 4000 < connection.store.max_offset < 3 * FILE_SIZE
    assert data.startswith(log_bytes(connection.store))
    assert connection.leaves_nothing_behind()


async def test_who_wants_to_change_the_log_waits_for_the_end_of_it(connect, master, monkeypatch):
    cut, real = trio.Event(), CommitLog.take_of_tail

    def take(log, size):
        real(log, size)
        cut.set()

    monkeypatch.setattr(CommitLog, "take_of_tail", take)
    connection, data = connect(), log_bytes(master)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.send, data, iter(lambda: 60_000, None))
        await cut.wait()
        at = _starts(master)[2]
        with trio.fail_after(SECONDS_MAX):
            await connection.store.truncate(at, "a test")
        await connection.until_ended()
    assert isinstance(connection.error, HALogError)
    assert log_bytes(connection.store) == data[:at]
    assert connection.leaves_nothing_behind()


async def test_a_stop_leaves_nothing_behind(connect, master, monkeypatch):
    begun, real = trio.Event(), CommitLog.take_of_tail

    def take(log, size):
        real(log, size)
        begun.set()

    monkeypatch.setattr(CommitLog, "take_of_tail", take)
    connection, data = connect(), log_bytes(master)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.send, data, iter(lambda: 60_000, None))
        await begun.wait()
        connection.scope.cancel()
        await connection.until_ended()
    assert data.startswith(log_bytes(connection.store))
    assert connection.leaves_nothing_behind()


async def test_acks_wait_for_the_disk_where_they_have_to(connect, master):
    connection, data = connect(ack_mode=AckMode.flushed), log_bytes(master)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.store.flusher.run)
        await connection.send(data, iter(lambda: 60_000, None))
        await connection.until_level(len(data))
        assert connection.store.flushed_offset == len(data)
        nursery.cancel_scope.cancel()


def _starts(store):
    data = log_bytes(store)
    return [
        entry.phy_offset
        for file in store.commit_log.files.files
        for entry in scan_records(data[file.start : file.end], file.start, FILE_SIZE, check_crc=True).entries
    ]


def open_again(store):
    """As after kill -9."""
    store._release()
    assert (store.config.root / "abort").exists()
    return open_store(store.config.root, file_size=FILE_SIZE, role=BrokerRole.SLAVE)
