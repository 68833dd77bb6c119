"""The summary of a store that twinlog wrote."""

import pytest

from tests.helpers import open_store, put
from tests.store.records import HOST_V6, put_message
from twinlog.store.config import StoreConfig
from twinlog.store.message_store import MessageStore
from twinlog.store.offline.directory import StoreDirectory, Writer
from twinlog.store.offline.info import inspect

FILE_SIZE = 16_384


def looked(root):
    with StoreDirectory.open(root) as directory:
        return inspect(directory)


async def test_a_store_of_ours_after_a_clean_stop(tmp_path, nursery):
    store = MessageStore(StoreConfig(root=tmp_path, mapped_file_size_commit_log=FILE_SIZE))
    store.load()
    await nursery.start(store.run)
    put(store, *(b"x" * 500 for _ in range(200)))
    await store.close()
    nursery.cancel_scope.cancel()
    info = looked(tmp_path)
    assert (info.writer, info.state, info.process_id) == (Writer.TWINLOG, "stopped", None)
    assert info.log.end_offset == 200 * (91 + 500 + len("TopicTest") + len("KEYS\x01k")) + sum(
        FILE_SIZE - each for each in used_of_files(info)
    )
    assert info.messages == 200
    assert info.digest is not None
    assert (info.digest.start_offset, info.digest.end_offset, info.digest.error) == (0, info.log.end_offset, None)
    assert info.recovery_point is not None
    assert (info.recovery_point.offset, info.recovery_point.error) == (info.log.end_offset, None)
    assert info.problems == ()


def used_of_files(info):
    """Bytes of records in each file that is followed by another one."""
    size = 91 + 500 + len("TopicTest") + len("KEYS\x01k")
    return [(FILE_SIZE - 8) // size * size for _ in info.log.files[:-1]]


def test_side_files_that_make_no_sense_are_told(tmp_path):
    put(open_store(tmp_path), b"x")
    (tmp_path / "twinlog").mkdir(exist_ok=True)
    for name in ("digest", "recovery-point"):
        (tmp_path / "twinlog" / name).write_bytes(b"nonsense")
    info = looked(tmp_path)
    assert info.digest is not None
    assert info.digest.error == "its header is damaged"
    assert info.recovery_point is not None
    assert info.recovery_point.offset is None
    assert info.recovery_point.error is not None


def test_times_of_records_with_ipv6_hosts(tmp_path):
    store = open_store(tmp_path)
    store.put([put_message(born_host=HOST_V6)])
    info = looked(tmp_path)
    assert info.first_stored_ms == info.last_stored_ms == info.log.files[0].first_stored_ms
    assert info.first_stored_ms is not None
    assert abs(info.first_stored_ms - store.flusher.last_store_timestamp) < 1000


@pytest.mark.parametrize("queues_are_there", [True, False])
def test_the_end_of_the_log_is_found_with_and_without_queues(queues_are_there, tmp_path):
    store = open_store(tmp_path, file_size=FILE_SIZE)
    end = put(store, *(b"x" * 500 for _ in range(100)))
    if queues_are_there:
        store.dispatch_pending()
    info = looked(tmp_path)
    assert (info.log.end_offset, info.log.is_clear_behind_end) == (end, True)
    assert info.messages == (100 if queues_are_there else 0)


def test_a_queue_that_leads_behind_the_end_is_noticed(tmp_path):
    store = open_store(tmp_path, file_size=FILE_SIZE)
    put(store, *(b"x" * 500 for _ in range(100)))
    store.dispatch_pending()
    last = store.commit_log.files.files[-1]
    last.write_at(0, bytes(FILE_SIZE))
    info = looked(tmp_path)
    assert info.log.end_offset == last.start
    assert [problem.kind for problem in info.problems] == ["unit-dangling"]
