"""The slave's side of one connection, over memory and in virtual time: the test plays the master."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.ha.replicas import FILE_SIZE, Slave
from tests.helpers import log_bytes, open_store, put
from tests.support.stream_transport import StreamTransport
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HAConnectionLostError, HALogError, HAProtocolError
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER
from twinlog.store.config import BrokerRole


@pytest.fixture
def log(tmp_path: Path) -> bytes:
    """What a master has: forty messages in three files, with blanks between."""
    store = open_store(tmp_path / "master", file_size=FILE_SIZE)
    put(store, *[b"%d" % number * 500 for number in range(40)])
    assert store.max_offset > 2 * FILE_SIZE
    return log_bytes(store)


@pytest.fixture
async def slave(tmp_path: Path, nursery: trio.Nursery) -> Slave:
    return await start(nursery, tmp_path)


async def start(nursery: trio.Nursery, tmp_path: Path, **config: int) -> Slave:
    store = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    slave = Slave(store, HAConfig(**config))
    nursery.start_soon(slave.run)
    await wait_all_tasks_blocked()
    return slave


def files_of(log: bytes) -> list[bytes]:
    return [log[at : at + FILE_SIZE] for at in range(0, len(log), FILE_SIZE)]


async def test_it_asks_at_once(autojump_clock, slave):
    assert await slave.next_report() == 0
    assert trio.current_time() == 0


async def test_many_frames_in_one_read_are_one_append_and_one_ack(autojump_clock, slave, log):
    assert await slave.next_report() == 0
    await slave.send(0, *files_of(log))
    assert await slave.next_report() == len(log)
    assert log_bytes(slave.store) == log
    assert slave.store.queue("TopicTest", 0) is not None
    slave.store.dispatch_pending()
    assert slave.store.queue("TopicTest", 0).max_offset == 40


@pytest.mark.parametrize("size", [1, 7, 1000, 4096, FILE_SIZE])
async def test_frames_of_any_size_give_the_same_log(autojump_clock, nursery, tmp_path, log, size):
    """The log ends at the end of a record at each moment, and so do the acks."""
    slave = await start(nursery, tmp_path, receive_buffer_size=4096)
    ends = {0}
    at = 0
    for file in files_of(log):
        await slave.send(at, *[file[cut : cut + size] for cut in range(0, len(file), size)])
        at += len(file)
        ends.add(slave.store.max_offset)
    assert slave.error is None
    assert log_bytes(slave.store) == log


async def test_an_unfinished_record_is_neither_written_nor_acknowledged(autojump_clock, slave, log):
    assert await slave.next_report() == 0
    first = int.from_bytes(log[:4])
    await slave.send(0, log[: first + 100])
    assert await slave.next_report() == first == slave.store.max_offset
    await slave.send(first + 100, log[first + 100 : FILE_SIZE])
    assert await slave.next_report() == FILE_SIZE


async def test_a_record_larger_than_the_buffer(autojump_clock, nursery, tmp_path):
    master = open_store(tmp_path / "master", file_size=FILE_SIZE)
    end = put(master, b"x" * 12_000)
    slave = await start(nursery, tmp_path, receive_buffer_size=4096)
    await slave.send(0, log_bytes(master))
    assert slave.store.max_offset == end


@pytest.mark.parametrize("start_offset", [0, FILE_SIZE, 5 * FILE_SIZE])
async def test_an_empty_slave_begins_with_any_file(autojump_clock, slave, tmp_path, start_offset):
    master = open_store(tmp_path / "other", file_size=FILE_SIZE)
    master.start_at(start_offset)
    end = put(master, b"x", b"y")
    await slave.send(start_offset, log_bytes(master))
    assert (slave.store.min_offset, slave.store.max_offset) == (start_offset, end)


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda log: log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (flip(3), "at offset 0"),  # Size.
        (flip(5), "at offset 0: magic"),
        (flip(35), "at offset 0: a record that says it lies at 1"),  # Physical offset.
        (flip(100), "at offset 0: its body does not match its CRC"),
        (lambda log: bytes(1000), "at offset 0: magic 0x00000000"),
        (lambda log: log[600:1200], "at offset 0"),
    ],
)
async def test_a_bad_record_is_never_written(autojump_clock, slave, log, spoil, complaint):
    assert await slave.next_report() == 0
    await slave.send(0, spoil(log[:FILE_SIZE]))
    await slave.ended.wait()
    assert isinstance(slave.error, HAProtocolError)
    assert complaint in str(slave.error)
    assert slave.store.max_offset == 0
    assert await slave.master.receive_some() == b""


async def test_what_came_before_a_bad_record_is_kept(autojump_clock, slave, log):
    first = int.from_bytes(log[:4])
    await slave.send(0, flip(first + 100)(log[:FILE_SIZE]))
    await slave.ended.wait()
    assert f"offset {first}" in str(slave.error)
    assert log_bytes(slave.store) == log[:first]


async def test_what_came_before_a_bad_frame_is_kept(autojump_clock, slave, log):
    first = int.from_bytes(log[:4])
    await slave.master.send_all(BATCH_HEADER.pack(0, first) + log[:first] + BATCH_HEADER.pack(first + 1, 0))
    await slave.ended.wait()
    assert isinstance(slave.error, HAProtocolError)
    assert slave.store.max_offset == first


async def test_a_master_with_other_files_is_refused(autojump_clock, slave, tmp_path):
    """Its frames cross our file's end, or its blanks are elsewhere."""
    master = open_store(tmp_path / "other", file_size=2 * FILE_SIZE)
    put(master, *[b"x" * 500] * 40)
    await slave.send(0, log_bytes(master)[: FILE_SIZE + 1])
    await slave.ended.wait()
    assert "mappedFileSizeCommitLog is 16384 here" in str(slave.error)


async def test_the_report_is_repeated_in_silence_and_a_silent_master_is_left(autojump_clock, slave):
    times = []
    while (data := await slave.master.receive_some()) != b"":
        assert data == ACK.pack(0)
        times.append(trio.current_time())
    assert times == pytest.approx([0, 5, 10, 15])
    assert trio.current_time() == pytest.approx(20)
    await slave.ended.wait()
    assert isinstance(slave.error, HAConnectionLostError)


async def test_a_master_that_sends_heartbeats_is_kept(autojump_clock, slave):
    for _ in range(20):
        await trio.sleep(15)
        await slave.send(0, b"")
    assert not slave.ended.is_set()


async def test_the_end_of_the_stream_in_a_frame_loses_only_what_was_unfinished(autojump_clock, slave, log):
    await slave.master.send_all((BATCH_HEADER.pack(0, FILE_SIZE) + log)[:5000])
    await slave.master.aclose()
    await slave.ended.wait()
    assert isinstance(slave.error, HAConnectionLostError)
    assert 0 < slave.store.max_offset < 5000
    assert log_bytes(slave.store) == log[: slave.store.max_offset]


async def test_a_disk_that_refuses_is_no_fault_of_the_master(autojump_clock, slave, log):
    assert await slave.next_report() == 0
    slave.store.fail("no space left")
    await slave.send(0, log[:FILE_SIZE])
    await slave.ended.wait()
    assert isinstance(slave.error, HALogError)
    assert "no space left" in str(slave.error)
    assert await slave.master.receive_some() == b""


async def test_a_master_that_reads_no_reports_stops_nobody_else(tmp_path, nursery, autojump_clock):
    """The socket is full: the report that is stuck in it is not repeated without a pause."""
    store = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    slave = Slave(store)

    class Full(StreamTransport):
        async def send(self, _data: bytes) -> None:
            await trio.sleep_forever()

    slave.replica.transport = Full(slave.replica.transport.stream)
    with trio.fail_after(slave.config.housekeeping_interval_ms / 1000 + 1):
        await slave.run()
    assert "was silent for 20 s" in str(slave.error)
