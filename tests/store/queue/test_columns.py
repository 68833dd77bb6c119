"""Units that are put many at once are those that are put one by one."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.column_entries import columns_of
from tests.store.golden import queue_files
from twinlog.store.queue.columns import queue_runs
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.record.scan import DispatchEntry

FILE_SIZE = 200  # Ten units.
PREPARED, COMMIT, ROLLBACK = 4, 8, 12


@st.composite
def batches(draw):
    """Records of some queues in the order of the log, in batches: nearly all with the number that is next in their queue."""
    phy_offset, numbers, found = draw(st.sampled_from([0, 100_000])), {}, []
    for _ in range(draw(st.integers(0, 5))):
        batch = []
        for _ in range(draw(st.integers(0, 40))):
            key = draw(st.sampled_from([("T1", 0), ("T1", 1), ("T2", 0), ("T2", -1)]))
            number = numbers.setdefault(key, draw(st.sampled_from([0, 0, 7, 25])))
            number += draw(st.sampled_from([0] * 30 + [-1, -2, 1, 3, 12, 10**6]))
            sys_flag = draw(st.sampled_from([0] * 9 + [PREPARED, COMMIT, ROLLBACK]))
            size = draw(st.integers(91, 300))
            batch.append(DispatchEntry(*key, max(0, number), phy_offset, size, len(batch) - 3, 99, sys_flag))
            phy_offset += size
            if sys_flag not in (PREPARED, ROLLBACK) and number < 10**6:
                numbers[key] = number + 1
        found.append(batch)
    return found


@settings(deadline=None)
@given(batches(), st.data())
def test_units_are_the_same(tmp_path_factory, batches, data):
    """In files and for listeners, in any mix of single and bulk puts, and when batches come again."""
    root = tmp_path_factory.mktemp("queues")
    plain, bulk = (ConsumeQueueTable(root / name / "consumequeue", FILE_SIZE) for name in ("plain", "bulk"))
    again = data.draw(st.integers(0, 4))
    for number, batch in enumerate([*batches, *batches[again:]]):
        told = [(queue.topic, queue.queue_id, codes) for queue, codes in plain.put(batch).items()]
        in_bulk = data.draw(st.booleans()) or number == 0
        grown = bulk.put_columns(columns_of(batch)) if in_bulk else bulk.put(batch)
        assert sorted((queue.topic, queue.queue_id, codes) for queue, codes in grown.items()) == sorted(told)
        assert bulk.is_written
    assert {queue.state() for queue in bulk} == {queue.state() for queue in plain}
    assert queue_files(root / "bulk") == queue_files(root / "plain")
    plain.close()
    bulk.close()


def test_a_record_that_takes_the_place_of_the_one_before_it_in_a_batch(tmp_path):
    """RocketMQ 5.3.3 gives a number twice after some starts: the later record is the one that consumers know."""
    table = ConsumeQueueTable(tmp_path, FILE_SIZE)
    entries = [DispatchEntry("T1", 0, number, 1000 * at, 100, at, 99, 0) for at, number in enumerate((0, 1, 2, 3))]
    table.put_columns(columns_of(entries))
    late = [DispatchEntry("T1", 0, number, 5000 + 1000 * at, 100, at, 99, 0) for at, number in enumerate((4, 5))]
    same = DispatchEntry("T1", 0, 5, 9000, 100, 77, 99, 0)
    queue = table.get("T1", 0)
    queue.stage_run(next(queue_runs(columns_of(late))).units, 4, 5100, 6100)
    assert queue.stage(same)
    queue.write()
    assert [queue.unit(number).phy_offset for number in range(6)] == [0, 1000, 2000, 3000, 5000, 9000]
    table.close()


def test_what_the_disk_refused_is_written_by_the_next_call(tmp_path, monkeypatch):
    """Listeners are called once."""
    table = ConsumeQueueTable(tmp_path, FILE_SIZE)
    entries = [DispatchEntry("T1", number % 3, number // 3, 100 * number, 100, number, 99, 0) for number in range(30)]
    real, writes = os.pwrite, []

    def refuse(fd, data, position):
        writes.append(position)
        if len(writes) == 2:
            raise OSError(28, "No space left on device")
        return real(fd, data, position)

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(OSError, match="No space"):
        table.put_columns(columns_of(entries))
    assert not table.is_written
    grown = table.put_columns(columns_of(entries))
    assert {queue.queue_id: codes for queue, codes in grown.items()} == {n: list(range(n, 30, 3)) for n in range(3)}
    assert [table.get("T1", n).max_offset for n in range(3)] == [10, 10, 10]
    table.close()


def test_no_records():
    assert list(queue_runs(columns_of([]))) == []
