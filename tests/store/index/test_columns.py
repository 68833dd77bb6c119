"""Keys that are put many at once make the files that keys make which are put one by one."""

from datetime import datetime

import numpy as np
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.column_entries import columns_of
from tests.store.index_ledger import Ledger
from tests.store.index_ledger import keyed as keys_in
from tests.store.indexes import Clock, expected_files, index_files, make_index, open_log, running, until_caught_up
from twinlog.store.index import service as index_service
from twinlog.store.index.columns import put_keys
from twinlog.store.index.image import IndexImage
from twinlog.store.index.index_files import IndexFiles
from twinlog.store.index.layout import IndexHeader, IndexLayout
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.record.columns import KeyColumns
from twinlog.store.record.keys import Keyed

TIMES = st.sampled_from([0, 1, 999, 1000, 1_795_265_726_442, 1_795_265_727_441, -5, (1 << 62), (1 << 50)])
KEYS = st.lists(
    st.tuples(st.one_of(st.integers(0, 40), st.integers(0, (1 << 31) - 1)), st.integers(0, 1 << 40), TIMES),
    max_size=120,
)


def keyed(keys):
    return Keyed([h for h, _, _ in keys], [at for _, at, _ in keys], [time for _, _, time in keys])


def columns(keys):
    return KeyColumns(*(np.array(part, np.int64) for part in keyed(keys)))


@settings(deadline=None)
@given(st.lists(KEYS.filter(bool), max_size=4), st.sampled_from([1, 7, 3000]), st.booleans())
def test_images_are_the_same(batches, slots, follows):
    """Slots that several keys of a batch share, the first key of a file, times before it and far behind it."""
    full = IndexHeader(5000, 1_795_265_726_000, 3, 4, 5, 6) if follows else None
    plain, bulk = (IndexImage.after(IndexLayout(slots, 1000), full) for _ in range(2))
    for batch in batches:
        plain.put(*keyed(batch))
        put_keys(bulk, columns(batch))
        assert (bulk.header, bulk.slots, bulk.tail) == (plain.header, plain.slots, plain.tail)
        assert bulk.changed_pages == plain.changed_pages
        if len(batch) % 2:
            assert bulk.take_unwritten() == plain.take_unwritten()


@settings(deadline=None)
@given(st.lists(KEYS, max_size=3))
def test_keys_go_on_over_files(tmp_path_factory, batches):
    root = tmp_path_factory.mktemp("index")
    both = []
    for name in ("plain", "bulk"):
        checkpoint = Checkpoint(root / f"checkpoint-{name}")
        checkpoint.load()
        both.append(IndexFiles(root / name / "index", IndexLayout(7, 20), checkpoint, Clock()))
    plain, bulk = both
    for batch in batches:
        plain.put(keyed(batch))
        bulk.put_columns(columns(batch))
    trio.run(plain.flush)
    trio.run(bulk.flush)
    assert index_files(root / "bulk") == index_files(root / "plain")


@pytest.mark.parametrize("seed", range(3))
async def test_an_index_that_is_fed_columns(tmp_path, seed):
    """All kinds of messages, in turn with entries: the files are RocketMQ's."""
    ledger = Ledger(tmp_path, seed)
    async with running(make_index(tmp_path, ledger.log, slots=7, items=20)) as index:
        for number in range(12):
            entries = ledger.put_any(1 + number * 3)
            index.feed(columns_of(entries) if number % 3 else entries)
            if number % 4 == 0:
                await trio.testing.wait_all_tasks_blocked()
        await until_caught_up(index)
    assert index_files(tmp_path) == ledger.expected()


async def test_many_keys_are_written_before_their_time(tmp_path):
    """Unwritten keys are bounded: half of the limit is written at once, so that the index stays caught up."""
    ledger = Ledger(tmp_path)
    async with running(make_index(tmp_path, ledger.log, slots=100, items=4000, unwritten_max=4000)) as index:
        began = datetime.now()
        for _ in range(30):
            index.feed(columns_of(ledger.put_any(60)))
            while index.statistics().lag_bytes or index._files.unwritten_bytes > 2000:
                assert (datetime.now() - began).seconds < 60
                await trio.sleep(0.001)
            assert index.is_caught_up
    assert index_files(tmp_path) == ledger.expected(100, 4000)
    assert open_log(tmp_path, 16_384).max_offset == ledger.log.max_offset


@pytest.mark.parametrize("seed", range(3))
async def test_an_index_that_catches_up_in_columns(tmp_path, monkeypatch, seed, autojump_clock):
    """From the log's beginning to its end, over the ends of files; where a record is damaged, it goes on behind that."""
    monkeypatch.setattr(index_service, "_BULK_STRETCH", 100)
    ledger = Ledger(tmp_path, seed)
    entries = ledger.put_any(300)
    damaged = entries[150]
    file = ledger.log.files.file_at(damaged.phy_offset)
    if seed:
        file.write_at(damaged.phy_offset - file.start + 28, b"\xff" * 8)
    async with running(make_index(tmp_path, ledger.log, slots=7, items=20)):
        pass
    left = [entry for entry in entries if entry is not damaged] if seed else entries
    assert index_files(tmp_path) == expected_files(map(keys_in, left), 7, 20)
