"""A stretch of the log for a thread: what is gone by the time that it is opened raises OSError, as what goes later."""

import pytest

from tests.helpers import open_store, put
from tests.store.digesting import FILE_SIZE, opened
from tests.store.records import put_message
from twinlog.store.log.range import LogRange, RecordAt, bounds_around, record_at
from twinlog.store.record.resync import BLANK


def test_bytes_of_a_file_that_is_deleted(tmp_path):
    store = open_store(tmp_path, file_size=4096)
    put(store, *(b"x" * 1000 for _ in range(8)))
    store.commit_log.files.files.pop(0).delete()
    with LogRange.open(store.commit_log, 0, store.max_offset) as bytes_:
        assert bytes_.start == 4096
        with pytest.raises(OSError, match="no file with byte 0"):
            bytes_.read(0, 100)


@pytest.fixture
async def store(tmp_path):
    """Three files of records of all sizes, blanks at their ends."""
    store = opened(tmp_path)
    for number in range(100):
        store.put([put_message(body=b"x" * (number % 7 * 997))])
    assert store.max_offset > 2 * FILE_SIZE
    yield store
    await store.close()


def look(store, offset):
    with LogRange.open(store.commit_log, *bounds_around(offset, FILE_SIZE)) as bytes_:
        return record_at(bytes_, offset, FILE_SIZE)


def records(store):
    """Where each record begins and ends."""
    at = store.min_offset
    while at < store.max_offset:
        record = store.message_at(at)
        if record is None:
            at = at - at % FILE_SIZE + FILE_SIZE
        else:
            yield at, at + len(record)
            at += len(record)


@pytest.mark.parametrize("look_back", [100, 3_000, 64 << 10])
async def test_every_byte_of_every_record(store, monkeypatch, look_back):
    """However far it has to look back."""
    monkeypatch.setattr("twinlog.store.log.range._LOOKS", (look_back, 1 << 20))
    found = list(records(store))
    assert len(found) == 100
    for start, end in found:
        for offset in (start, start + 1, (start + end) // 2, end - 1):
            assert look(store, offset) == RecordAt(start, end, None)


async def test_the_unused_rest_of_a_file(store):
    ends = [end for _, end in records(store) if end % FILE_SIZE and store.message_at(end) is None]
    start = ends[0]
    file_end = start - start % FILE_SIZE + FILE_SIZE
    for offset in (start, start + 9, file_end - 1):
        assert look(store, offset) == RecordAt(start, file_end, BLANK)


def damage(store, offset, data):
    file = store.commit_log.files.file_at(offset)
    file.write_at(offset - file.start, data)


async def test_a_damaged_record_reaches_to_the_next_sound_one(store):
    found = list(records(store))
    (start, end), (second, second_end) = found[5], found[6]
    damage(store, start + 90, b"!!")
    damaged = look(store, start + 200)
    assert (damaged.start, damaged.end) == (start, end)
    assert damaged.problem is not None
    damage(store, second, b"\xff" * 100)
    damaged = look(store, start + 3)
    assert (damaged.start, damaged.end) == (start, second_end)
    assert look(store, second_end) == RecordAt(second_end, found[7][1], None)


async def test_damage_without_a_sound_record_before_it(store, monkeypatch):
    """Nothing is read beyond a bound."""
    monkeypatch.setattr("twinlog.store.log.range._LOOKS", (50, 100))
    monkeypatch.setattr("twinlog.store.log.range.LOOK_MAX", 100)
    start = next(start for start, end in records(store) if end - start > 5_000)
    damage(store, start, bytes(4_000))
    assert look(store, start + 4_500) == RecordAt(start + 4_400, start + 4_501, "no sound record lies before it")


async def test_behind_the_end_of_the_log(store):
    assert look(store, store.max_offset).problem == "the log has no byte here"
