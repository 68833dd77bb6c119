"""The index of the real RocketMQ's store directories, made anew from their logs, and asked."""

import shutil

import pytest

from tests.store import golden
from tests.store.indexes import index_files, make_index, open_log, running, take_apart


@pytest.fixture(params=golden.ALL, ids="-".join)
def captured(request, tmp_path):
    """Each captured directory."""
    return golden.unpack(*request.param, tmp_path)


def without_times(taken):
    """What does not depend on when a file was begun: nothing but the names does."""
    return taken


async def test_made_anew_from_the_log_it_is_byte_for_byte_rocketmqs(captured):
    """Headers, slots, items, and where one file ends and the next begins."""
    expected = index_files(captured)
    assert len(expected) == 2
    shutil.rmtree(captured / "index")
    async with running(make_index(captured, open_log(captured, golden.FILE_SIZE))):
        pass
    found = index_files(captured)
    for ours, theirs in zip(found, expected, strict=True):
        ours, theirs = take_apart(ours), take_apart(theirs)
        assert ours.header == theirs.header
        assert ours.slots == theirs.slots
        assert ours.items == theirs.items
    assert found == expected


async def test_rocketmqs_own_files_stay_as_they_are(captured):
    """Nothing is missing in them, so nothing is added."""
    expected = index_files(captured)
    after_crash = (captured / "abort").exists()
    async with running(make_index(captured, open_log(captured, golden.FILE_SIZE)), after_crash=after_crash):
        pass
    assert index_files(captured) == expected
