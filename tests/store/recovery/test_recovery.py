"""The start of the walk, and the cut, of a recovery. Crashes at random: tests/faults/test_crash_recovery.py."""

import shutil

import pytest
import trio

from tests.store import golden
from tests.store.message_stores import make
from tests.store.records import put_message, record_size
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.message_store import MessageStore
from twinlog.store.recovery.recovery import Recovery
from twinlog.store.recovery.side_files import SideFiles

FILE_SIZE = 1 << 16
BODY = bytes(10_000)
SIZE = record_size(put_message(body=BODY))  # Six of them in a file.


@pytest.fixture
def stopped(tmp_path):
    """A directory after a clean stop: 40 messages in seven files of the log."""
    store = make(tmp_path)
    store.load()
    for number in range(40):
        store.put([put_message(body=BODY, queue_id=number % 2)])
    trio.run(store.close)
    return tmp_path


@pytest.fixture
def left(stopped):
    """The same without twinlog's side files, as RocketMQ leaves it."""
    shutil.rmtree(stopped / "twinlog")
    return stopped


def recovered(root, *, after_crash=False) -> tuple[MessageStore, object]:
    """What a recovery says of a directory."""
    store = make(root)
    store.commit_log.files.load()
    store._parts.checkpoint.load()
    outcome = Recovery(
        log=store.commit_log,
        queues=store._queues,
        checkpoint=store._parts.checkpoint,
        side=SideFiles(root / "twinlog"),
        damaged=store.damaged,
        durable_end=store._parts.durable_end,
        durable_start=store._parts.durable_start,
        after_crash=after_crash,
        check_crc=True,
        delays_ms=store.delays_ms,
    )
    outcome.run()
    return store, outcome


def damage(root, phy_offset, data=b"damage"):
    with (root / "commitlog" / f"{phy_offset // FILE_SIZE * FILE_SIZE:020}").open("r+b") as file:
        file.seek(phy_offset % FILE_SIZE)
        file.write(data)


END = 6 * FILE_SIZE + 4 * SIZE
START = 4 * FILE_SIZE  # Of the third last file.


def test_after_a_clean_stop_the_end_is_known(stopped):
    """Nothing is walked: the recovery point fits the log, and nothing lies behind it."""
    store, outcome = recovered(stopped)
    assert (outcome.from_point, outcome.records, outcome.dispatched, outcome.cut.size) == (True, 0, 0, 0)
    assert outcome.start == outcome.end == store.commit_log.max_offset == END
    assert outcome.last_record.store_timestamp > 0
    assert outcome.last_record.phy_offset + outcome.last_record.size == END


def test_after_rocketmqs_clean_stop_the_last_files_are_walked(left):
    _, outcome = recovered(left)
    assert (outcome.from_point, outcome.start, outcome.records, outcome.dispatched) == (False, START, 16, 0)
    assert (outcome.end, outcome.cut.size, outcome.of_queues.faults) == (END, 0, {})
    assert outcome.last_record.phy_offset + outcome.last_record.size == END


def test_records_that_no_queue_has_are_found(left):
    """Half messages with the transaction bits, and whatever RocketMQ had not dispatched."""
    store = make(left)
    store.load()
    store.put([put_message(body=BODY, sys_flag=4), put_message(body=BODY)])
    store._release()
    (left / "abort").unlink()
    store, outcome = recovered(left)
    assert (outcome.start, outcome.records, outcome.dispatched) == (START, 18, 1)
    assert store.queue("T1", 0).max_offset == 21
    assert outcome.end == END + 2 * SIZE


@pytest.mark.parametrize("lost", [1, 3, 20])
def test_queues_that_lag_behind_are_filled(left, lost):
    store, _ = recovered(left)
    for queue_id in (0, 1):
        store.queue("T1", queue_id).truncate(
            0 if lost == 20 else store.queue("T1", queue_id).unit(20 - lost).phy_offset
        )
    store._release()
    store, outcome = recovered(left)
    assert outcome.dispatched == 2 * lost
    assert [store.queue("T1", n).max_offset for n in (0, 1)] == [20, 20]
    assert outcome.end == END


def test_deleted_queues_are_made_anew_from_the_whole_log(left):
    before = golden.queue_files(left)
    shutil.rmtree(left / "consumequeue")
    _, outcome = recovered(left)
    assert (outcome.start, outcome.dispatched) == (0, 40)
    assert golden.queue_files(left) == before


def test_when_the_last_record_is_damaged_the_last_files_are_walked(left):
    damage(left, END - SIZE + 200)
    store, outcome = recovered(left)
    assert outcome.start == 4 * FILE_SIZE
    assert (outcome.records, outcome.end, outcome.cut.size) == (15, END - SIZE, SIZE)
    assert "CRC" in outcome.cut.found
    assert [store.queue("T1", n).max_offset for n in (0, 1)] == [20, 19]
    assert store.commit_log.next_queue_offsets == {("T1", 0): 20, ("T1", 1): 19}


def test_garbage_behind_the_end_is_cut(left):
    damage(left, END + 1000)
    store, outcome = recovered(left)
    assert (outcome.end, outcome.cut.size) == (END, 1006)
    assert store.commit_log.files.files[-1].is_clear_from(4 * SIZE)


def test_a_log_that_lost_its_end(left):
    """An older last file was put there: the queues follow the log."""
    damage(left, END - 2 * SIZE, bytes(2 * SIZE))
    store, outcome = recovered(left)
    assert (outcome.end, outcome.cut.size) == (END - 2 * SIZE, 0)
    assert [store.queue("T1", n).max_offset for n in (0, 1)] == [19, 19]


def test_after_a_crash_the_checkpoint_says_where_to_begin(left):
    """With a fresh checkpoint all messages are too young; with an older log the newest file that is old enough counts."""
    _, outcome = recovered(left, after_crash=True)
    assert (outcome.start, outcome.records, outcome.dispatched) == (0, 40, 40)
    store = make(left)
    store._parts.checkpoint.load()
    store._parts.checkpoint.physic_msg_timestamp += 3000
    store._parts.checkpoint.logics_msg_timestamp += 3000
    store._parts.checkpoint.save()
    before = golden.queue_files(left)
    _, outcome = recovered(left, after_crash=True)
    assert (outcome.start, outcome.records, outcome.dispatched) == (6 * FILE_SIZE, 4, 4)
    assert golden.queue_files(left) == before


@pytest.mark.parametrize("timestamp", [1, 1 << 40, (1 << 63) - 1, -5, 0x0102030405060708])
def test_a_damaged_checkpoint_does_not_hide_what_was_lost(left, timestamp):
    """Whatever it says: all that the queues lack is found."""
    before = golden.queue_files(left)
    for path in (left / "consumequeue").rglob("0*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:60].ljust(200, b"\0"))
    checkpoint = Checkpoint(left / "checkpoint", timestamp, timestamp)
    checkpoint.save()
    store, _ = recovered(left, after_crash=True)
    assert golden.queue_files(left) == before
    assert [store.queue("T1", n).max_offset for n in (0, 1)] == [20, 20]


@pytest.mark.parametrize("after_crash", [False, True])
def test_an_empty_directory(tmp_path, after_crash):
    store, outcome = recovered(tmp_path, after_crash=after_crash)
    assert (outcome.start, outcome.end, outcome.records, outcome.cut.size) == (0, 0, 0, 0)
    assert store.commit_log.max_offset == 0


@pytest.mark.parametrize("after_crash", [False, True])
def test_a_lost_log_takes_the_queues_with_it(left, after_crash):
    shutil.rmtree(left / "commitlog")
    store, outcome = recovered(left, after_crash=after_crash)
    assert outcome.end == 0
    assert [store.queue("T1", n).max_offset for n in (0, 1)] == [0, 0]


@pytest.mark.parametrize("after_crash", [False, True])
def test_a_log_whose_first_files_are_gone(left, after_crash):
    for number in range(3):
        (left / "commitlog" / f"{number * FILE_SIZE:020}").unlink()
    store, outcome = recovered(left, after_crash=after_crash)
    assert (store.commit_log.min_offset, outcome.end) == (3 * FILE_SIZE, END)
    assert [(store.queue("T1", n).min_offset, store.queue("T1", n).max_offset) for n in (0, 1)] == [(9, 20), (9, 20)]
