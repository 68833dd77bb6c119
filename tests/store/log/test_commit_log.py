"""The commit log against a simple model: records one after the other, a blank where the next one does not fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.records import HOST_V6, put_message, record_size
from twinlog.store.integrity.damage import KnownDamage
from twinlog.store.integrity.read_check import ReadCheck
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.record.message import decode_message
from twinlog.store.record.scan import scan_records

FILE_SIZE = 4096
BLANK = 8  # Bytes that a record must leave behind it.


def open_log(directory):
    return CommitLog(MappedFileQueue(directory, FILE_SIZE, "mappedFileSizeCommitLog"), delays_ms=(1000, 5000))


def read_all(log):
    """Every record, after a check that nothing but records and blanks is there."""
    entries, found = [], []
    for file in log.files.files:
        scan = scan_records(file.read(0, file.wrote), file.start, FILE_SIZE, check_crc=True)
        assert (scan.consumed, scan.error) == (file.wrote, None)
        entries += scan.entries
        found += [decode_message(log.read(e.phy_offset, e.size)) for e in scan.entries]
    return entries, found


class Model:
    """Where records go, in a few lines."""

    def __init__(self):
        self.end, self.queues, self.places = 0, {}, []

    def put(self, messages, together):
        total = sum(map(record_size, messages))
        if together and total + BLANK <= FILE_SIZE:
            self._make_room(total)
        for message in messages:
            self._make_room(record_size(message))
            key, has_queue = (message.topic, message.queue_id), message.sys_flag & 0xC not in (4, 0xC)
            self.places.append((self.end, self.queues.get(key, 0) if has_queue else 0))
            self.queues[key] = self.queues.get(key, 0) + has_queue
            self.end += record_size(message)

    def _make_room(self, size):
        if self.end % FILE_SIZE + size + BLANK > FILE_SIZE:
            self.end += FILE_SIZE - self.end % FILE_SIZE


any_message = st.builds(
    put_message,
    topic=st.sampled_from(["T1", "T2", "ein-langes-Topic"]),
    body=st.one_of(st.binary(max_size=50), st.integers(0, 3900).map(bytes)),
    queue_id=st.integers(0, 2),
    sys_flag=st.sampled_from([0, 0, 0, 1, 4, 8, 0xC, 0x30]),
    born_host=st.sampled_from([b"\x01\x02\x03\x04\0\0\0\5", HOST_V6]),
    store_host=st.sampled_from([b"\x01\x02\x03\x04\0\0\0\5", HOST_V6]),
    flag=st.integers(-5, 5),
    reconsume_times=st.integers(0, 16),
    prepared_transaction_offset=st.integers(0, 1 << 40),
)
any_batch = st.tuples(st.lists(any_message, min_size=1, max_size=6), st.booleans())


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(any_batch, max_size=8))
def test_append_does_what_the_model_does(tmp_path_factory, batches):
    log, model = open_log(tmp_path_factory.mktemp("log")), Model()
    appended, results, entries = [], [], []
    for number, (messages, together) in enumerate(batches):
        model.put(messages, together)
        new_results, new_entries = log.append(messages, 1000 + number, together=together)
        appended += [(message, 1000 + number) for message in messages]
        results += new_results
        entries += new_entries
    assert log.max_offset == model.end
    assert [(r.phy_offset, r.queue_offset) for r in results] == model.places
    assert {r.status for r in results} <= {PutStatus.PUT_OK}
    found_entries, found = read_all(log)
    assert found_entries == entries
    check = ReadCheck(log, KnownDamage())
    for (message, store_timestamp), result, stored in zip(appended, results, found, strict=True):
        assert (stored.size, result.end_offset) == (result.size, result.phy_offset + result.size)
        assert (stored.store_timestamp, result.store_timestamp) == (store_timestamp, store_timestamp)
        assert (stored.phy_offset, stored.queue_offset) == (result.phy_offset, result.queue_offset)
        assert (stored.topic, stored.queue_id, stored.body, stored.properties_raw) == message[:4]
        assert (stored.flag, stored.sys_flag & ~0x30) == (message.flag, message.sys_flag & ~0x30)
        assert (stored.born_host, stored.store_host) == (message.born_host, message.store_host)
        assert stored.reconsume_times == message.reconsume_times
        assert stored.prepared_transaction_offset == message.prepared_transaction_offset
        assert check.view(result.phy_offset) == log.read(result.phy_offset, result.size)
    log.close()


def sized(size):
    """A message whose record has `size` bytes."""
    return put_message(body=bytes(size - record_size(put_message(body=b""))))


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("spare", "second_file"), [(0, False), (-1, True), (1, False)])
def test_a_record_may_fill_a_file_to_its_last_eight_bytes(tmp_path, together, spare, second_file):
    log = open_log(tmp_path)
    log.append([sized(1000)], 1)
    (result,), _ = log.append([sized(FILE_SIZE - BLANK - 1000 - spare)], 1, together=together)
    assert result.phy_offset == (FILE_SIZE if second_file else 1000)
    log.append([sized(200)], 1)
    read_all(log)
    assert log.fits(sized(FILE_SIZE - BLANK))
    assert not log.fits(sized(FILE_SIZE - BLANK + 1))


def test_a_batch_larger_than_a_file_is_stored_all_the_same(tmp_path):
    """No file could hold it whole: each record goes where it fits, and no file is left blank."""
    log = open_log(tmp_path)
    results, _ = log.append([sized(3000)] * 3, 1, together=True)
    assert [r.phy_offset for r in results] == [0, FILE_SIZE, 2 * FILE_SIZE]


def test_a_batch_that_fills_a_file_starts_in_an_empty_one(tmp_path):
    log = open_log(tmp_path)
    results, _ = log.append([sized(2044)] * 2, 1, together=True)
    assert [r.phy_offset for r in results] == [0, 2044]


def test_schedule_topic_entries_carry_the_time_of_delivery(tmp_path):
    """It follows from the store time of the record, not from an earlier reading of the clock."""
    log = open_log(tmp_path)
    late = put_message("SCHEDULE_TOPIC_XXXX", queue_id=1, properties=b"DELAY\x012", tags_code=77)
    _, entries = log.append([late], 10_000)
    assert entries == read_all_with_delays(log)
    assert entries[0].tags_code == 15_000


def read_all_with_delays(log):
    file = log.files.files[0]
    return scan_records(file.read(0, file.wrote), 0, FILE_SIZE, check_crc=True, delays_ms=log.delays_ms).entries


def test_a_file_made_ahead_is_used(tmp_path):
    log = open_log(tmp_path / "commitlog")
    log.append([sized(3000)], 1)
    log.spare = MappedFile.create(tmp_path / "spare", 0, FILE_SIZE, preallocate=True)
    log.append([sized(3000)], 1)
    assert log.spare is None
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [f"{0:020}", f"{FILE_SIZE:020}"]
    read_all(log)


def test_a_file_made_ahead_goes_when_the_log_is_closed(tmp_path):
    log = open_log(tmp_path / "commitlog")
    log.spare = MappedFile.create(tmp_path / "spare", 0, FILE_SIZE, preallocate=True)
    log.close()
    assert not (tmp_path / "spare").exists()


def test_replicated_bytes_may_cross_files(tmp_path):
    """Cut anywhere, a slave's log is its master's."""
    master = open_log(tmp_path / "master")
    for _ in range(5):
        master.append([sized(1500)], 1)
    data = b"".join(file.read(0, file.wrote) for file in master.files.files)
    for step in (1, 100, 4095, 4096, 4097, len(data)):
        slave = open_log(tmp_path / f"slave-{step}")
        for at in range(0, len(data), step):
            slave.append_raw(memoryview(data)[at : at + step])
        assert b"".join(file.read(0, file.wrote) for file in slave.files.files) == data
        assert slave.max_offset == master.max_offset


def test_reads_stay_inside_the_log(tmp_path):
    log = open_log(tmp_path)
    log.append([sized(1000), sized(3090)], 1)
    assert (log.min_offset, log.max_offset) == (0, FILE_SIZE + 3090)
    assert log.read(FILE_SIZE, 3090) is not None
    for offset, size in [(-1, 1), (-8, 8), (FILE_SIZE, 3091), (FILE_SIZE - 1, 2), (FILE_SIZE + 3090, 1), (1 << 62, 8)]:
        assert log.read(offset, size) is None
    assert log.chunk(0, 1 << 20)[1:] == (0, FILE_SIZE)
    assert log.chunk(FILE_SIZE + 3000, 1 << 20)[1:] == (3000, 90)
    assert log.chunk(10, 20)[1:] == (10, 20)
    for offset in (-1, FILE_SIZE + 3090, 1 << 62):
        assert log.chunk(offset, 10) is None


@pytest.mark.parametrize("offset", [-100, 1, 999, 1000, 1000 + 91, FILE_SIZE - 4])
def test_only_a_records_start_gives_a_record(tmp_path, offset):
    log = open_log(tmp_path)
    log.append([sized(1000)], 1)
    check = ReadCheck(log, KnownDamage())
    assert check.view(offset) is None
    log.append([sized(3500)], 1)
    assert check.view(offset) is None
    assert not check.known.damaged


def test_a_slaves_log_may_begin_at_a_later_file(tmp_path):
    log = open_log(tmp_path)
    log.start_at(3 * FILE_SIZE)
    assert (log.min_offset, log.max_offset) == (3 * FILE_SIZE, 3 * FILE_SIZE)
    log.append_raw(b"x" * 10)
    assert log.max_offset == 3 * FILE_SIZE + 10


def test_a_view_outlives_the_file(tmp_path):
    """A pull under way may still send what has just been deleted."""
    log = open_log(tmp_path)
    log.append([sized(1000)], 1)
    view = log.read(0, 1000)
    copy = bytes(view)
    log.files.files[0].delete()
    assert bytes(view) == copy
