"""Unverified bytes behind the log's end: their place, and that none of them is left afterwards."""

import errno
import itertools
import os

import pytest
import trio

from tests.helpers import log_bytes, open_store, put, replicate
from twinlog.store.config import BrokerRole
from twinlog.store.errors import StoreError, StoreNotWritableError
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.record.resync import UNFINISHED
from twinlog.store.record.scan import scan_records

FILE_SIZE = 16_384


@pytest.fixture
def data(tmp_path):
    """A master's log in three files."""
    store = open_store(tmp_path / "master", file_size=FILE_SIZE)
    while store.max_offset < 2 * FILE_SIZE + 5000:
        put(store, os.urandom(300))
    return log_bytes(store)


@pytest.fixture
def slave(tmp_path):
    return open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)


def entries_of(data, at, end=None):
    end = min(len(data) if end is None else end, at - at % FILE_SIZE + FILE_SIZE)
    return scan_records(data[at:end], at, FILE_SIZE, check_crc=True)


def begin(slave, data):
    """The first record is in the log, all others are behind its end."""
    scan = entries_of(data, 0)
    first = scan.entries[0].size
    replicate(slave, data[:first])
    tail = slave.begin_tail()
    for start in (first, FILE_SIZE, 2 * FILE_SIZE):
        tail.write(memoryview(data)[start : start - start % FILE_SIZE + FILE_SIZE])
    return tail, first


def take(slave, data):
    scan = entries_of(data, slave.max_offset)
    slave.take_of_tail(scan.consumed, scan.entries)


def files(slave):
    return sorted(path.name for path in slave.commit_log.files.directory.iterdir())


async def test_what_is_verified_becomes_part_of_the_log(slave, data):
    tail, first = begin(slave, data)
    assert slave.max_offset == first
    assert log_bytes(slave) == data[:first]
    assert slave.commit_log.read(first, 10) is None
    assert slave.unverified_bytes == len(data) - first
    assert files(slave) == [f"{0:020}"]
    while slave.max_offset < len(data):
        take(slave, data)
        slave.dispatch_pending()
    assert log_bytes(slave) == data
    assert slave.dispatched_offset == len(data)
    assert files(slave) == [f"{start:020}" for start in (0, FILE_SIZE, 2 * FILE_SIZE)]
    await slave.close_tail(tail, durably=False)
    assert slave.unverified_bytes == 0
    await slave.close()


@pytest.mark.parametrize("durably", [False, True])
@pytest.mark.parametrize("files_taken", [0, 1, 2])
async def test_what_is_not_verified_leaves_nothing_behind(slave, data, files_taken, durably):
    tail, _ = begin(slave, data)
    for _ in range(files_taken):
        take(slave, data)
    end = slave.max_offset
    await slave.close_tail(tail, durably=durably)
    assert log_bytes(slave) == data[:end]
    last = slave.commit_log.files.files[-1]
    assert last.is_clear_from(last.wrote)
    assert not list((slave.config.root / "twinlog" / "ahead").iterdir())
    await slave.close()


def test_a_crash_keeps_what_is_sound_in_the_last_file_and_nothing_else(tmp_path, slave, data):
    begin(slave, data)
    size = entries_of(data, 0).entries[0].size
    at = 22 * size + 100  # In a body.
    os.pwrite(slave.commit_log.files.files[0].fd, bytes([data[at] ^ 1]), at)
    slave._release()
    again = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    assert again.max_offset == 22 * size
    assert log_bytes(again) == data[: again.max_offset]
    assert again.commit_log.files.files[-1].is_clear_from(again.max_offset)
    assert not list((tmp_path / "slave" / "twinlog" / "ahead").iterdir())


PROPERTIES = b"KEYS\x01the key of a message, and nothing else"


def records(tmp_path, count):
    """A log of records with these properties, and where each ends."""
    store, host = open_store(tmp_path / "other", file_size=FILE_SIZE), bytes(8)
    message = PutMessage("TopicTest", 0, b"body", PROPERTIES, 0, 0, 1_700_000_000_000, host, host, 0, 0, 0)
    store.put([message] * count)
    data = log_bytes(store)
    return data, [entry.phy_offset + entry.size for entry in entries_of(data, 0).entries]


@pytest.mark.parametrize("missing", [*range(1, len(PROPERTIES) + 1), len(PROPERTIES) + 20])
@pytest.mark.parametrize("is_behind_a_write", [False, True])
def test_a_crash_keeps_no_record_whose_last_bytes_had_not_arrived(tmp_path, slave, missing, is_behind_a_write):
    """Its properties have no check. The write before may have ended anywhere."""
    data, ends = records(tmp_path, 4)
    replicate(slave, data[: ends[0]])
    tail, cut = slave.begin_tail(), ends[2] - missing
    if is_behind_a_write:
        tail.write(memoryview(data)[ends[0] : ends[2] - missing - 60])
    tail.write(memoryview(data)[tail.end : cut])
    slave._release()
    again = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    assert log_bytes(again) == data[: ends[1]]
    assert again.commit_log.files.files[-1].is_clear_from(again.max_offset)


@pytest.mark.parametrize("call", range(2))
def test_a_process_that_dies_between_two_writes_has_marked_where_the_first_one_ended(
    tmp_path, slave, monkeypatch, call
):
    data, ends = records(tmp_path, 4)
    replicate(slave, data[: ends[0]])
    tail, calls, real = slave.begin_tail(), itertools.count(), os.pwrite
    tail.write(memoryview(data)[ends[0] : ends[1] - 3])

    def dying(*args):
        if next(calls) == call:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", dying)
        with pytest.raises(KeyboardInterrupt):
            tail.write(memoryview(data)[ends[1] - 3 : ends[3] - 3])
    slave._release()
    again = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    assert log_bytes(again) == data[: ends[0]]


@pytest.mark.parametrize("role", [BrokerRole.SLAVE, BrokerRole.ASYNC_MASTER])
def test_an_older_sector_within_a_record_ends_the_log_where_others_have_the_rest(tmp_path, slave, role):
    """A power cut kept a mark, and what was written over it is lost. What a lone master has behind it nobody else may have."""
    data, ends = records(tmp_path, 4)
    replicate(slave, data)
    os.pwrite(slave.commit_log.files.files[0].fd, UNFINISHED, ends[1] - 10)
    slave._release()
    again = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=role)
    assert again.max_offset == (ends[0] if role is BrokerRole.SLAVE else ends[3])


def test_an_older_sector_in_the_rest_of_a_file_ends_the_log_there(tmp_path, slave, data):
    replicate(slave, data[:FILE_SIZE])
    replicate(slave, data[FILE_SIZE : 2 * FILE_SIZE])
    last = entries_of(data, 0).entries[-1]
    end = last.phy_offset + last.size
    assert 8 < FILE_SIZE - end < FILE_SIZE
    os.pwrite(slave.commit_log.files.files[0].fd, UNFINISHED, end + 8)
    slave._release()
    again = open_store(tmp_path / "slave", file_size=FILE_SIZE, role=BrokerRole.SLAVE)
    assert log_bytes(again) == data[:end]


def test_a_disk_that_is_full_takes_no_further_file(slave, data, monkeypatch):
    def refuse(*_args, **_options):
        raise OSError(errno.ENOSPC, "no space")

    replicate(slave, data[: entries_of(data, 0).entries[0].size])
    tail = slave.begin_tail()
    tail.write(memoryview(data)[slave.max_offset : FILE_SIZE])
    monkeypatch.setattr(MappedFile, "create", refuse)
    with pytest.raises(OSError, match="no space"):
        tail.write(memoryview(data)[FILE_SIZE : FILE_SIZE + 10])
    assert tail.end == FILE_SIZE


def test_where_files_cannot_be_moved_in_it_ends_with_the_file(slave, data):
    slave.commit_log.takes_spares = False
    replicate(slave, data[: entries_of(data, 0).entries[0].size])
    tail = slave.begin_tail()
    assert tail.room(1 << 30) == FILE_SIZE - slave.max_offset
    assert tail.room(100) == 100


def test_a_write_that_asks_the_disk_again_spares_the_tail(slave, data):
    tail, first = begin(slave, data)
    slave.commit_log.clear_torn_end()
    buffer = bytearray(FILE_SIZE - first)
    tail.read_into(memoryview(buffer))
    assert buffer == data[first:FILE_SIZE]


async def test_nobody_cuts_the_log_before_the_tail_has_ended(slave, data, autojump_clock):
    tail, first = begin(slave, data)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slave.truncate, 0, "a test")
        await trio.sleep(1)
        assert tail.is_unwanted
        assert slave.max_offset == first
        await slave.close_tail(tail, durably=True)
    assert slave.max_offset == 0
    await slave.close()


def test_a_master_and_a_store_that_takes_nothing_have_none(tmp_path, slave):
    with pytest.raises(StoreNotWritableError):
        open_store(tmp_path / "other").begin_tail()
    slave.fail("a test")
    with pytest.raises(StoreError):
        slave.begin_tail()
