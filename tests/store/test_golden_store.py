"""The real RocketMQ's store directories, as they lie on disk."""

from struct import Struct

import pytest

from tests.store import golden
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import decode_message, encode_message
from twinlog.store.record.scan import scan_records

DELAYS_MS = (1000, 5000, 10_000, 30_000, 60_000)  # The levels that were used.
UNIT = Struct(">qiq")


@pytest.fixture(params=golden.ALL, ids="-".join)
def captured(request, tmp_path):
    """Each captured directory."""
    return golden.unpack(*request.param, tmp_path)


@pytest.fixture(params=[c for c in golden.ALL if c[1] != golden.RUNNING], ids="-".join)
def clean(request, tmp_path):
    """The directories that brokers left at a clean stop."""
    return golden.unpack(*request.param, tmp_path)


@pytest.fixture(params=golden.VERSIONS)
def running(request, tmp_path):
    """A master's directory, copied while it was running."""
    return golden.unpack(request.param, golden.RUNNING, tmp_path)


def units(content):
    """The units of a queue file up to the first that is none."""
    found = []
    for unit in UNIT.iter_unpack(content):
        if unit[1] <= 0:
            break
        found.append(unit)
    return found


def offsets(store):
    return {
        f"{topic}/{number}": (queue.min_offset, queue.max_offset)
        for topic, number, queue in store.queues()
        if queue.max_offset
    }


def captured_offsets(root):
    """Queue offsets by what the files hold: no queue of the captures goes beyond one file."""
    return {path.rpartition("/")[0]: (0, len(units(content))) for path, content in golden.queue_files(root).items()}


def log_end(root):
    """The end of the last record of the captured log, read without the code under test."""
    end = 0
    for start, content in golden.log_files(root / "commitlog").items():
        at = 0
        while at + 8 <= len(content):
            size, magic = int.from_bytes(content[at : at + 4]), int.from_bytes(content[at + 4 : at + 8])
            if magic not in (0xDAA320A7, 0xDAA320AB, 0xCBD43194):
                break
            at += size
        end = start + at if at else end
    return end


def test_every_record_decodes_and_encodes_to_the_same_bytes(captured):
    records = 0
    for start, content in golden.log_files(captured / "commitlog").items():
        scan = scan_records(content, start, golden.FILE_SIZE, check_crc=True)
        for entry in scan.entries:
            raw = content[entry.phy_offset - start :][: entry.size]
            message = decode_message(raw)
            assert encode_message(message) == raw
            assert (message.topic, message.queue_id) == (entry.topic, entry.queue_id)
            assert (message.queue_offset, message.phy_offset) == (entry.queue_offset, entry.phy_offset)
            assert (message.store_timestamp, message.sys_flag) == (entry.store_timestamp, entry.sys_flag)
            records += 1
    assert records > 300


def test_scan_walks_the_whole_log(captured):
    """Each file is walked to its last byte, the last one to the zeros behind its last record."""
    files = golden.log_files(captured / "commitlog")
    for start, content in files.items():
        scan = scan_records(content, start, golden.FILE_SIZE, check_crc=True)
        rest = content[scan.consumed :]
        if start + golden.FILE_SIZE <= log_end(captured):
            assert (len(rest), scan.error) == (0, None)
        else:
            assert rest.count(0) == len(rest)


def test_opens_as_it_lies(clean):
    """After RocketMQ's clean stop nothing is cut and nothing rebuilt, and every queue is as long as its file says."""
    before = golden.log_files(clean / "commitlog"), golden.queue_files(clean)
    expected = captured_offsets(clean)
    store = MessageStore(golden.config(clean))
    store.load()
    assert (store.min_offset, store.max_offset) == (0, log_end(clean))
    assert store.flushed_offset == store.dispatched_offset == store.max_offset
    assert offsets(store) == expected
    assert (golden.log_files(clean / "commitlog"), golden.queue_files(clean)) == before


async def test_stays_rocketmqs_own_when_opened_and_closed(clean, autojump_clock):
    before = golden.log_files(clean / "commitlog"), golden.queue_files(clean)
    entries = golden.tree(clean)
    store = MessageStore(golden.config(clean))
    store.load()
    await store.close()
    assert (golden.log_files(clean / "commitlog"), golden.queue_files(clean)) == before
    assert {name.partition("/")[0] for name in golden.tree(clean) - entries} <= {"twinlog"}
    assert entries <= golden.tree(clean)


def test_opens_a_copy_of_a_running_store(running):
    """With the abort file there, everything is walked; the preallocated file is no part of the log."""
    end = log_end(running)
    expected = captured_offsets(running)
    queue_files = golden.queue_files(running)
    store = MessageStore(golden.config(running))
    store.load()
    assert (store.min_offset, store.max_offset) == (0, end)
    assert offsets(store) == expected
    assert golden.queue_files(running) == queue_files
    assert store.flushed_offset == 0


def test_every_queue_leads_to_its_messages(clean):
    """What a consumer reads from the first offset to the last is each queue's messages, in order."""
    store = MessageStore(golden.config(clean))
    store.load()
    for topic, number, queue in store.queues():
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.get_message(topic, number, offset, 32, None)
            assert result.message_count == result.next_offset - offset > 0
            data = b"".join(result.buffers)
            for expected_offset in range(offset, result.next_offset):
                message = decode_message(data)
                assert (message.topic, message.queue_id, message.queue_offset) == (topic, number, expected_offset)
                data = data[message.size :]
            assert data == b""
            offset = result.next_offset
