"""A long log is walked in columns: with the outcome of the walk from record to record."""

import random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store import golden
from tests.store.column_entries import columns_of
from tests.store.records import put_message
from twinlog.store.log import walk as log_walk
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.log.walk import walk, walk_in_bulk
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.columns import of_queues
from twinlog.store.record.scan import DispatchEntry

FILE_SIZE = 16_384
MULTI = b"\x02INNER_MULTI_DISPATCH\x01other\x02INNER_MULTI_QUEUE_OFFSET\x010"


@pytest.fixture(autouse=True)
def short_is_long(monkeypatch):
    monkeypatch.setattr(log_walk, "BULK_MIN", 0)
    monkeypatch.setattr(log_walk, "_BULK_STRETCH_MIN", 100)
    monkeypatch.setattr(log_walk, "_BULK_WINDOW", 3000)


def outcome(steps):
    """What the steps of a walk say of the log: its records, and what is wrong where."""
    records, errors = [], []
    for offset, scan in steps:
        records += [entry[:8] for entry in scan.entries]
        if scan.error is not None:
            errors.append((offset + scan.consumed, scan.error))
    return records, errors


@settings(deadline=None)
@given(st.integers(0, 1 << 32), st.integers(0, 4))
def test_the_walk_is_the_same(tmp_path_factory, seed, damages):
    rnd, root = random.Random(seed), tmp_path_factory.mktemp("log")
    log = CommitLog(MappedFileQueue(root, FILE_SIZE, "mappedFileSizeCommitLog"))
    for number in range(rnd.choice((0, 1, 100))):
        more = MULTI if rnd.random() < 0.02 else b""
        log.append(
            [put_message(body=rnd.randbytes(rnd.choice((10, 300))), properties=b"UNIQ_KEY\x01id" + more)], number
        )
    for _ in range(damages if log.max_offset else 0):
        at = rnd.randrange(log.max_offset)
        file = log.files.file_at(at)
        size = min(rnd.choice((1, 1, 600)), file.start + FILE_SIZE - at)
        file.write_at(at - file.start, bytes(size) if rnd.random() < 0.5 else rnd.randbytes(size))
    plain, bulk = (list(way(log, 0, check_crc=True)) for way in (walk, walk_in_bulk))
    assert outcome(bulk) == outcome(plain)
    before = None
    for offset, scan in bulk:  # Whoever meets damage sees the record before it, which a crash may have torn.
        if scan.error is not None and before is not None and not isinstance(before[1].entries, list):
            assert scan.entries or before[0] + before[1].consumed < offset
        before = offset, scan
    log.close()


@pytest.mark.slow
@pytest.mark.parametrize("captured", golden.ALL, ids="-".join)
@pytest.mark.parametrize("noted", [True, False], ids=["point", "no-point"])
def test_queues_of_captured_stores_are_made_anew(captured, noted, tmp_path):
    """All of them, or one: byte for byte, however the log is walked."""
    found = []
    for way in ("plain", "bulk"):
        root = golden.unpack(*captured, tmp_path / way)
        with pytest.MonkeyPatch.context() as patch:
            if way == "plain":
                patch.setattr(log_walk, "BULK_MIN", 1 << 60)
            if noted:
                close(root)
            lost = sorted((root / "consumequeue").iterdir())
            for queue in lost if not noted else lost[:3]:
                queue.rename(tmp_path / f"{way}-{queue.name}")
            close(root)
        found.append(golden.queue_files(root))
    assert found[0] == found[1]
    assert found[0]


def close(root):
    store = MessageStore(golden.config(root))
    store.load()
    trio.run(store.close)


def test_records_of_some_queues():
    entries = [DispatchEntry(f"T{n % 2}", n % 3, n, n * 100, 100, n, 99, 0) for n in range(20)]
    keys = {("T0", 1), ("T1", 2)}
    assert list(of_queues(columns_of(entries), keys)) == [entry for entry in entries if entry[:2] in keys]
    assert list(of_queues(columns_of(entries), {entry[:2] for entry in entries})) == entries


@pytest.mark.parametrize(("properties", "in_bulk"), [(b"UNIQ_KEY\x01id", True), (b"UNIQ_KEY\x01id" + MULTI, False)])
def test_most_of_a_usual_log_is_walked_in_columns(tmp_path, properties, in_bulk):
    log = CommitLog(MappedFileQueue(tmp_path, FILE_SIZE, "mappedFileSizeCommitLog"))
    for number in range(100):
        log.append([put_message(body=bytes(300), properties=properties)], number)
    steps = [scan for _, scan in walk_in_bulk(log, 0, check_crc=True)]
    assert sum(len(scan.entries) for scan in steps) == 100
    assert (sum(len(scan.entries) for scan in steps if not isinstance(scan.entries, list)) > 70) == in_bulk
    log.close()
