"""A slave that receives much at once: the same log, queues and verdicts as one that receives little, and honest acks."""

import importlib
import random
import shutil
import threading

import pytest
import trio
from trio.testing import memory_stream_pair

from tests.ha.slave_connection import FILE_SIZE, SlaveConnection, long_log
from tests.helpers import log_bytes, open_store
from tests.store.golden import queue_files
from tests.store.records import put_message
from tests.support.stream_transport import StreamTransport
from twinlog.ha.errors import HABadRecordError, HAConnectionLostError, HALogError
from twinlog.ha.slave import deferred_verification
from twinlog.ha.slave import replica as replica_module
from twinlog.store.log.commit_log import CommitLog


@pytest.fixture(autouse=True)
def small_is_much(monkeypatch):
    monkeypatch.setattr(replica_module, "BULK_SIZE", 8_000)


@pytest.fixture
def master(tmp_path):
    return long_log(tmp_path / "master")


@pytest.fixture
async def connection(tmp_path, nursery):
    ours, theirs = memory_stream_pair()
    found = SlaveConnection(tmp_path / "slave", (StreamTransport(ours), theirs), receive_buffer_size=64 * 1024)
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
    monkeypatch.setattr(deferred_verification, "columns_loaded", False)
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


@pytest.mark.parametrize("shapes", [1, 40])
@pytest.mark.parametrize("size", [3_000, 200_000])
async def test_queues_of_multi_dispatch_are_filled_whatever_the_number(connection, tmp_path, size, shapes):
    """As RocketMQ's master with enableMultiDispatch has dispatched them; `shapes`: how many kinds of properties there are."""
    master = open_store(tmp_path / "master", file_size=FILE_SIZE)
    for number in range(600):
        light = b"\x02INNER_MULTI_DISPATCH\x01%%LMQ%%a\x02INNER_MULTI_QUEUE_OFFSET\x01%d" % (number // 3)
        properties = b"A\x01" + b"b" * (1 + number % shapes) + light * (number % 3 == 2 and number > 300)
        master.put([put_message(topic=f"T{number % 7}", body=bytes(500), properties=properties)])
    data = log_bytes(master)
    await connection.send(data, iter(lambda: size, None))
    await connection.until_level(len(data))
    connection.store.dispatch_pending()
    shutil.copytree(master.config.root / "commitlog", tmp_path / "anew" / "commitlog")
    anew = open_store(tmp_path / "anew", file_size=FILE_SIZE)
    assert anew.queue("%LMQ%a", 0).max_offset == 200
    assert queue_files(connection.store.config.root) == queue_files(anew.config.root)
