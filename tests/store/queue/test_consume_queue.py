"""Consume queues: units in order, numbering that survives, and an end that is found again."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.store.errors import StoreDirectoryError
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.queue.layout import UNIT, Unit
from twinlog.store.record.scan import DispatchEntry

FILE_SIZE = 200  # Ten units.
BLANK = Unit(0, 0x7FFFFFFF, 0)


def entry(queue_offset, *, phy_offset=None, size=100, code=7, sys_flag=0, topic="T1", queue_id=0):
    place = 1000 + 100 * queue_offset if phy_offset is None else phy_offset
    return DispatchEntry(topic, queue_id, queue_offset, place, size, code, 99, sys_flag)


def open_queue(directory):
    queue = ConsumeQueue("T1", 0, MappedFileQueue(directory, FILE_SIZE, "mappedFileSizeConsumeQueue"))
    queue.files.load()
    queue.recover()
    return queue


def put(queue, *entries):
    staged = [queue.stage(one) for one in entries]
    queue.write()
    return staged


def reopened(queue):
    queue.files.close()
    return open_queue(queue.files.directory)


def all_units(queue):
    return [queue.unit(n) for n in range(queue.min_offset, queue.max_offset)]


@given(st.lists(st.integers(1, 35), max_size=6))
def test_units_go_on_over_files(tmp_path_factory, batches):
    """However they are batched, unit n is message n, before and after a restart."""
    queue, count = open_queue(tmp_path_factory.mktemp("q")), 0
    for size in batches:
        assert put(queue, *(entry(n) for n in range(count, count + size))) == [True] * size
        count += size
    for _ in range(2):
        assert (queue.min_offset, queue.max_offset) == (0, count)
        assert all_units(queue) == [(1000 + 100 * n, 100, 7) for n in range(count)]
        assert queue.max_phy_offset == (1000 + 100 * count if count else -1)
        assert len(queue.files.files) == -(-count // 10)
        queue = reopened(queue)
    queue.files.close()


def test_what_is_there_already_is_left_out(tmp_path):
    queue = open_queue(tmp_path)
    put(queue, entry(0), entry(1))
    assert put(queue, entry(0), entry(1), entry(2)) == [False, False, True]
    assert put(queue, entry(1, phy_offset=5000)) == [False]  # A later record with a number that is taken.
    assert queue.max_offset == 3


@pytest.mark.parametrize("together", [False, True])
def test_blanks_take_the_place_of_messages_that_the_log_lost(tmp_path, together):
    """The others keep their numbers, and the search by place in the log is not led astray."""
    queue = open_queue(tmp_path)
    numbers = [0, 5, 6, 30, 31]
    for batch in [numbers] if together else [[n] for n in numbers]:
        assert all(put(queue, *map(entry, batch)))
    for _ in range(2):
        assert (queue.min_offset, queue.max_offset) == (0, 32)
        assert all_units(queue) == [(1000 + 100 * n, 100, 7) if n in numbers else BLANK for n in range(32)]
        for phy_offset in range(900, 4300, 50):
            expected = next((n for n in numbers if 1000 + 100 * n >= phy_offset), 32)
            queue.min_offset = 0
            queue.correct_min_offset(phy_offset)
            assert queue.min_offset == expected
        queue = reopened(queue)
    queue.rewind(1000 + 100 * 29)
    assert (queue.max_offset, queue.max_phy_offset) == (30, 1700)
    queue.rewind(1600)
    assert (queue.max_offset, queue.max_phy_offset) == (6, 1600)
    queue.rewind(1500)
    assert (queue.max_offset, queue.max_phy_offset) == (5, 1100)
    assert put(queue, entry(6)) == [True]
    assert queue.unit(6) == (1600, 100, 7)


def test_a_number_that_cannot_be_is_not_believed(tmp_path):
    """The log has no room for so many messages before this one: as RocketMQ's, the unit goes to the end of the queue."""
    queue = open_queue(tmp_path)
    put(queue, entry(0))
    put(queue, entry(1 << 40, phy_offset=1500))
    assert queue.max_offset == 2
    assert queue.unit(1).phy_offset == 1500


@pytest.mark.parametrize("together", [False, True])
def test_of_two_records_with_the_last_number_the_later_one_counts(tmp_path, together):
    """RocketMQ 5.3.3 leaves a record out when it starts, and gives its number away again."""
    queue = open_queue(tmp_path)
    entries = [entry(0), entry(1), entry(1, phy_offset=1200), entry(2, phy_offset=1300)]
    for batch in [entries] if together else [[one] for one in entries]:
        assert all(put(queue, *batch))
    assert [unit.phy_offset for unit in all_units(reopened(queue))] == [1000, 1200, 1300]


def test_a_queue_is_padded_up_to_the_numbers_that_were_given(tmp_path):
    for first in (0, 3, 25):
        queue = open_queue(tmp_path / str(first))
        if first:
            put(queue, *(entry(n) for n in range(first)))
        queue.pad(41)
        queue.pad(7)
        again = reopened(queue)
        again.correct_min_offset(1 << 40)
        assert (again.min_offset, again.max_offset) == (41, 41)
        assert again.max_phy_offset == (1000 + 100 * first if first else -1)
        put(again, entry(41, phy_offset=90_000))
        assert again.unit(41).phy_offset == 90_000


def settled(queue, state, *, may_begin_later=False):
    """What a start with a manifest makes of the directory."""
    queue.files.close()
    again = ConsumeQueue("T1", 0, MappedFileQueue(queue.files.directory, FILE_SIZE, "mappedFileSizeConsumeQueue"))
    again.files.load()
    return again, again.settle(state, may_begin_later=may_begin_later)


def noted(queue):
    return queue.state()._replace(fingerprint=queue.fingerprint())


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25])
@pytest.mark.parametrize("more", [0, 1, 12])
def test_the_end_that_was_noted_is_taken(tmp_path, count, more):
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(count)))
    state = noted(queue)
    put(queue, *(entry(n) for n in range(count, count + more)))
    again, fault = settled(queue, state)
    assert fault is None
    assert (again.min_offset, again.max_offset, again.max_phy_offset) == state[2:5]
    assert all_units(again) == [(1000 + 100 * n, 100, 7) for n in range(count)]


@pytest.mark.parametrize("garbage", [bytes(20), UNIT.pack(999, 2, 0), UNIT.pack(1 << 40, 100, 0), UNIT.pack(-1, 1, 1)])
@pytest.mark.parametrize("at", [1, 7, 24])
def test_changed_units_are_noticed(tmp_path, garbage, at):
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(25)))
    state = noted(queue)
    file = queue.files.file_at(at * 20)
    file.write_at(at * 20 - file.start, garbage)
    os.utime(file.path, ns=(1, 1))  # Whatever the clock of this file system can tell apart.
    assert f"unit {at} is none" in (fault := settled(queue, state)[1]) or at == 24
    assert fault is not None


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_lost_files_are_noticed(tmp_path, lost):
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(25)))
    state = noted(queue)
    queue.files.files[lost].path.unlink()
    if lost == 1:
        with pytest.raises(StoreDirectoryError):
            settled(queue, state)
    elif lost == 2:
        assert "20 units are there of 25" in settled(queue, state)[1]
    else:
        assert "begins with unit 10" in settled(queue, state)[1]
        again, fault = settled(queue, state, may_begin_later=True)  # As after retention.
        assert (fault, again.min_offset, again.max_offset) == (None, 10, 25)


def test_numbers_are_kept_when_all_that_was_noted_is_gone(tmp_path):
    """Retention deleted the files of what was noted, after what came later went to the next ones."""
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(5)))
    state = noted(queue)
    put(queue, *(entry(n) for n in range(5, 25)))
    for file in queue.files.files[:2]:
        file.path.unlink()
    again, fault = settled(queue, state, may_begin_later=True)
    assert (fault, again.max_offset) == (None, 20)
    assert put(again, *(entry(n) for n in range(15, 25))) == [False] * 5 + [True] * 5
    again.correct_min_offset(0)
    assert [unit.phy_offset for unit in all_units(again)] == [3000, 3100, 3200, 3300, 3400]


@pytest.mark.parametrize("first", [1, 9, 10, 13, 20, 35])
def test_a_queue_whose_early_messages_are_gone_starts_behind_blanks(tmp_path, first):
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(first, first + 12)))
    assert (queue.min_offset, queue.max_offset) == (first, first + 12)
    file = queue.files.files[0]
    assert file.start == first // 10 * FILE_SIZE
    assert file.read(0, first % 10 * 20) == UNIT.pack(*BLANK) * (first % 10)
    again = reopened(queue)
    assert (again.max_offset, again.max_phy_offset) == (first + 12, queue.max_phy_offset)
    again.correct_min_offset(1)
    assert again.min_offset == first
    assert put(again, entry(first + 12)) == [True]


@pytest.mark.parametrize("lost", range(1, 6))
def test_blanks_that_were_half_written_are_filled_up(tmp_path, lost):
    """After a crash the units are made anew; blanks alone must not move them to the wrong numbers."""
    queue = open_queue(tmp_path)
    put(queue, entry(15), entry(16))
    queue.files.files[0].write_at(5 * 20 - lost * 20, bytes((lost + 2) * 20))
    again = reopened(queue)
    assert again.max_offset == 15 - lost
    put(again, entry(15), entry(16))
    assert (again.max_offset, again.unit(15).phy_offset) == (17, 2500)
    assert [again.files.files[0].read(n * 20, 20) for n in range(5)] == [UNIT.pack(*BLANK)] * 5


@pytest.mark.parametrize("count", [1, 9, 10, 11, 25])
@pytest.mark.parametrize("keep", [0, 1, 9, 10, 11, 24, 25])
def test_truncate_drops_messages_behind_an_offset(tmp_path, count, keep):
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(count)))
    queue.truncate(1000 + 100 * keep)
    left = min(keep, count)
    for _ in range(2):
        assert queue.max_offset == left
        assert queue.max_phy_offset == (1000 + 100 * left if left else -1)
        assert len(queue.files.files) == -(-left // 10)
        queue = reopened(queue)
    put(queue, *(entry(n, phy_offset=90_000 + 100 * n) for n in range(left, left + 3)))
    assert reopened(queue).max_offset == left + 3


def test_truncate_leaves_no_stale_unit_behind_shorter_data(tmp_path):
    """What was cut must not come back behind what is written later."""
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(9)))
    queue.truncate(1200)
    put(queue, entry(2, phy_offset=90_000))
    assert all_units(reopened(queue)) == [(1000, 100, 7), (1100, 100, 7), (90_000, 100, 7)]


def test_a_rewound_queue_is_written_anew(tmp_path):
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(25)))
    queue.rewind(1000 + 100 * 12)
    assert queue.max_offset == 12
    put(queue, *(entry(n, code=8) for n in range(12, 14)))
    queue.truncate(1 << 40)
    assert [unit.tags_code for unit in all_units(reopened(queue))] == [7] * 12 + [8] * 2


def test_numbering_survives_when_all_messages_are_cut(tmp_path):
    """Early files are gone, the others hold only messages behind the cut: the next message still has the next number."""
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(25)))
    queue.files.files.pop(0).delete()
    queue.min_offset = 10
    queue.truncate(0)
    again = reopened(queue)
    again.correct_min_offset(0)
    assert (again.min_offset, again.max_offset) == (10, 10)
    put(again, entry(10))
    assert again.unit(10) == (2000, 100, 7)


@pytest.mark.parametrize(
    ("min_phy_offset", "expected"),
    [(0, 0), (1000, 0), (1001, 1), (1100, 1), (1990, 10), (3400, 24), (3401, 25), (9999, 25)],
)
def test_min_offset_is_the_first_message_that_the_log_still_has(tmp_path, min_phy_offset, expected):
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(25)))
    queue.correct_min_offset(min_phy_offset)
    assert queue.min_offset == expected
    assert queue.read(expected - 1, 1) == b""


def test_reads_end_with_the_file(tmp_path):
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(15)))
    assert len(queue.read(0, 100)) == 200
    assert len(queue.read(7, 100)) == 60
    assert len(queue.read(10, 100)) == 100
    assert len(queue.read(0, 3)) == 60
    for offset in (-1, 15, 1 << 50):
        assert queue.read(offset, 1) == b""
        assert queue.unit(offset) is None
    assert (queue.next_file_offset(0), queue.next_file_offset(9), queue.next_file_offset(10)) == (10, 10, 20)


def test_garbage_ends_a_queue(tmp_path):
    queue = open_queue(tmp_path)
    put(queue, *(entry(n) for n in range(8)))
    for garbage in (UNIT.pack(-1, 5, 0), UNIT.pack(5, -5, 0), UNIT.pack(5, 0, 9)):
        queue.files.files[0].write_at(5 * 20, garbage)
        queue = reopened(queue)
        assert queue.max_offset == 5
        put(queue, *(entry(n) for n in range(5, 8)))


def test_table_takes_what_belongs_into_queues(tmp_path):
    """Half messages that are marked as such and rollbacks enter none; each queue has its own numbers."""
    table = ConsumeQueueTable(tmp_path, FILE_SIZE)
    grown = table.put(
        [
            entry(0, phy_offset=0),
            entry(0, phy_offset=100, queue_id=1, code=8),
            entry(0, phy_offset=200, sys_flag=4),
            entry(0, phy_offset=300, sys_flag=0xC),
            entry(1, phy_offset=400, sys_flag=8, code=9),
        ]
    )
    assert {(queue.topic, queue.queue_id): codes for queue, codes in grown.items()} == {
        ("T1", 0): [7, 9],
        ("T1", 1): [8],
    }
    assert table.put([entry(0, phy_offset=0)]) == {}
    assert table.max_phy_offset == 500
    assert table.next_offsets() == {("T1", 0): 2, ("T1", 1): 1}
    table.truncate(400)
    assert table.next_offsets() == {("T1", 0): 1, ("T1", 1): 1}
    table.close()


def test_table_opens_what_lies_there_and_leaves_foreign_things_alone(tmp_path):
    table = ConsumeQueueTable(tmp_path, FILE_SIZE)
    table.put([entry(0, topic="%RETRY%g", queue_id=12)])
    table.close()
    (tmp_path / "readme").write_text("hello")
    (tmp_path / "%RETRY%g" / "x").mkdir()
    (tmp_path / "%RETRY%g" / "12" / "note.txt").write_text("hello")
    again = ConsumeQueueTable(tmp_path, FILE_SIZE)
    again.load()
    assert [(queue.topic, queue.queue_id, queue.max_offset) for queue in again] == [("%RETRY%g", 12, 1)]
    assert (tmp_path / "%RETRY%g" / "12" / "note.txt").exists()
    again.close()
