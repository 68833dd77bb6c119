"""Limits of reading a store, and the offset where a reader continues."""

from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.limits import (
    UNKNOWN,
    ReadRefusedError,
    batch_ends,
    epoch_before,
    may_be_old,
    readable_end,
    start_of,
)
from twinlog.cluster.pipeline.sources.log_end import LogFile
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.store.epoch_file import FIRST

PLACE = StoreUri(str(Path("/data/store")))
STOPPED = StoreFiles(uri=PLACE, log=(LogFile(PLACE, 1000, 9000),), file_size=9000, first=1000, end=8000)
RUNNING = evolve(STOPPED, is_running=True)


def test_a_stopped_store_is_read_to_its_end():
    assert readable_end(STOPPED, unconfirmed=False) == 8000
    assert readable_end(evolve(STOPPED, confirmed=5000), unconfirmed=False) == 8000


def test_a_running_store_is_read_up_to_what_is_confirmed():
    assert readable_end(evolve(RUNNING, confirmed=5000), unconfirmed=False) == 5000
    assert readable_end(evolve(RUNNING, confirmed=5000), unconfirmed=False, reported=6000) == 6000
    assert readable_end(evolve(RUNNING, confirmed=5000), unconfirmed=True, reported=6000) == 8000


def test_nothing_is_read_that_is_not_there():
    assert readable_end(RUNNING, unconfirmed=False, reported=9000) == 8000
    assert readable_end(RUNNING, unconfirmed=False, reported=0) == 1000


def test_what_is_not_known_is_said_and_what_to_do():
    with pytest.raises(ReadRefusedError, match=r"/data/store: .* is unknown: .*broker=HOST:PORT.*unconfirmed=true"):
        readable_end(RUNNING, unconfirmed=False)
    assert readable_end(RUNNING, unconfirmed=True) == 8000


def test_old_news_come_with_a_warning():
    noted = evolve(RUNNING, confirmed=5000)
    assert "5000" in (may_be_old(noted, unconfirmed=False) or "")
    assert may_be_old(noted, unconfirmed=False, reported=5000) is None
    assert may_be_old(noted, unconfirmed=True) is None
    assert may_be_old(evolve(RUNNING, confirmed=8000), unconfirmed=False) is None
    assert may_be_old(evolve(STOPPED, confirmed=5000), unconfirmed=False) is None


def test_a_reader_goes_on_where_it_was():
    assert start_of(STOPPED, 1000) == 1000
    assert start_of(STOPPED, 8000) == 8000


def test_bytes_that_retention_removed_are_named():
    with pytest.raises(ReadRefusedError, match=r"bytes 400 to 1000 are gone.*failOnDataLoss=false.*fileReservedTime"):
        start_of(STOPPED, 400)
    assert start_of(STOPPED, 400, fail_on_data_loss=False) == 1000


def test_keys_in_a_uri_are_in_no_message():
    archived = evolve(STOPPED, uri=StoreUri("s3://bucket/a?secret_key=x"))
    for start in (400, 9000):
        with pytest.raises(ReadRefusedError, match=r"^s3://bucket/a: "):
            start_of(archived, start)


def test_a_log_that_was_cut_is_not_gone_on_with():
    with pytest.raises(ReadRefusedError, match="read up to 8001, and the log ends at 8000"):
        start_of(STOPPED, 8001, fail_on_data_loss=False)


def test_a_log_that_was_cut_and_written_anew_is_not_gone_on_with():
    """Epochs tell, where there are some: RocketMQ has none, and old ones are forgotten."""
    old = evolve(STOPPED, epochs=(FIRST, evolve(FIRST, epoch=4, start_offset=3000)))
    new = evolve(old, epochs=(*old.epochs, evolve(FIRST, epoch=6, start_offset=5000)))
    assert [epoch_before(new, offset) for offset in (3000, 3001, 5000, 5001, 8000)] == [0, 4, 4, 6, 6]
    assert start_of(new, 5000, epoch=epoch_before(old, 5000)) == 5000
    with pytest.raises(ReadRefusedError, match="of epoch 4 then, and is of epoch 6 now"):
        start_of(new, 5001, epoch=epoch_before(old, 5001))
    assert epoch_before(STOPPED, 5001) == UNKNOWN
    assert start_of(STOPPED, 5001, epoch=4) == 5001
    forgotten = evolve(new, epochs=new.epochs[2:])
    assert start_of(forgotten, 4000, epoch=epoch_before(old, 4000)) == 4000


def test_logs_share_a_batch():
    assert batch_ends([0, 0], [100, 1000], 400) == [100, 300]
    assert batch_ends([0, 0], [1000, 1000], 400) == [200, 200]
    assert batch_ends([0, 500], [1000, 400], None) == [1000, 500]  # The confirmed offset may fall.


LOGS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=5)


@given(LOGS, st.integers(1, 5000))
def test_batches_are_bounded_and_come_to_the_end(logs, size_max):
    starts, ends = [start for start, _ in logs], [end for _, end in logs]
    for _ in range(100_000):
        found = batch_ends(starts, ends, size_max)
        sizes = [end - start for start, end in zip(starts, found, strict=True)]
        assert min(sizes) >= 0
        assert sum(sizes) <= size_max
        if found == starts:
            break
        starts = found
    assert all(start >= end for start, end in zip(starts, ends, strict=True))
