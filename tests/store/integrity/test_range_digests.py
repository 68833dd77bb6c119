"""Digests of any range of an open log: what the side file knows, what has to be read, and what is cut meanwhile."""

import os
import random

import pytest
import trio

from tests.helpers import log_bytes
from tests.store.digesting import fill, follow, opened
from twinlog.store.integrity.digest import BLOCK_SIZE, digest, digests_of, grouped
from twinlog.store.integrity.range_digests import READ_MAX, LogRangeError

BLOCK = BLOCK_SIZE


@pytest.fixture
async def store(tmp_path):
    """A log of 1.5 MB, of which all whole blocks but the last ones have a digest."""
    store = opened(tmp_path)
    fill(store, 1_200_000)
    await follow(store)
    fill(store, 300_000)
    assert store.digest.digests.end < store.max_offset - 4 * BLOCK
    yield store
    await store.close()


def expected(store, start, end, blocks_per_digest):
    data = log_bytes(store)[start - store.min_offset : end - store.min_offset]
    return grouped(digests_of(data, start), start, end, blocks_per_digest)


@pytest.mark.parametrize("seed", range(20))
async def test_digests_of_any_range(store, seed):
    """Wherever it begins and ends, and however the blocks are grouped."""
    chance = random.Random(seed)
    start = chance.choice([0, 1, BLOCK, 3 * BLOCK + 5, 20 * BLOCK])
    end = chance.choice([start + 1, start + BLOCK, store.max_offset - 7, store.max_offset])
    group = chance.choice([1, 2, 7, 1000])
    assert await store.range_digester.digests(start, end, blocks_per_digest=group) == expected(store, start, end, group)


async def test_a_group_of_one_block_has_its_digest_and_others_are_chained(store):
    one = await store.range_digester.digests(0, 3 * BLOCK)
    assert one.digests == tuple(block.digest for block in store.digest.digests.blocks(0, 3 * BLOCK))
    two = await store.range_digester.digests(0, 3 * BLOCK, blocks_per_digest=2)
    assert two.digests == (digest(one.digests[0] + one.digests[1]), digest(one.digests[2]))


def never_read(monkeypatch):
    def refuse(*_):
        raise OSError(5, "not to be read")

    monkeypatch.setattr(os, "pread", refuse)


async def test_what_the_side_file_covers_is_not_read(store, monkeypatch):
    """And what was written stays what a digest is of, whatever the disk makes of it later."""
    never_read(monkeypatch)
    await store.range_digester.digests(0, 18 * BLOCK, blocks_per_digest=4)
    with pytest.raises(OSError, match="not to be read"):
        await store.range_digester.digests(5, 18 * BLOCK)
    with pytest.raises(OSError, match="not to be read"):
        await store.range_digester.digests(0, store.max_offset)


async def test_blocks_of_which_a_crash_may_have_taken_bytes_are_read(store):
    """Their digest in the side file may be of bytes that never came to the disk."""
    digests = store.digest.digests
    right = digests.entries[3 * 16 : 5 * 16]
    digests.entries[3 * 16 : 5 * 16] = bytes(32)
    store.digest.doubtful_from, store.digest.doubtful_end = 3 * BLOCK + 9, 5 * BLOCK
    found = await store.range_digester.digests(0, 8 * BLOCK)
    assert b"".join(found.digests[3:5]) == bytes(right)
    assert found == expected(store, 0, 8 * BLOCK, 1)


@pytest.mark.parametrize("bounds", [(-1, 5), (0, 1 << 40), (7, 7), (9, 5)])
async def test_bytes_that_the_log_does_not_hold(store, bounds):
    for ask in (store.range_digester.digests(*bounds), answer(store, *bounds)):
        with pytest.raises(LogRangeError, match="not all in this log"):
            await ask


async def answer(store, start, end, *, blocks_per_digest=1, digests_max=1000):
    digester = store.range_digester
    return await digester.answer(start, end, blocks_per_digest=blocks_per_digest, digests_max=digests_max)


async def test_an_answer_has_no_more_digests_than_asked_for(store):
    """They end with a group, so that one can ask on from there."""
    found = await answer(store, 5, store.max_offset, blocks_per_digest=4, digests_max=2)
    assert found == expected(store, 5, 8 * BLOCK, 4)


async def test_an_answer_reads_a_bounded_part_of_the_log(store, monkeypatch):
    monkeypatch.setattr("twinlog.store.integrity.range_digests.READ_MAX", 2 * BLOCK)
    found = await answer(store, BLOCK + 5, store.max_offset)
    known_end = store.digest.digests.end
    assert found.end == known_end + BLOCK, "the rest of the first block, and one behind what is known"
    assert found == expected(store, BLOCK + 5, found.end, 1)
    assert (await answer(store, store.max_offset - 9, store.max_offset)).end == store.max_offset
    assert READ_MAX % BLOCK == 0


async def test_reading_is_bounded_in_rate_and_everybody_gets_an_answer(store, autojump_clock):
    """Who asks for more than its share waits; what needs no reading does not."""
    digester = store.range_digester
    digester.bytes_per_second = 5 * BLOCK
    began = trio.current_time()
    start = store.digest.digests.end
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(digester.digests, start, start + BLOCK * 4)
        await trio.testing.wait_all_tasks_blocked()
        await digester.digests(0, 4 * BLOCK)
        assert trio.current_time() == began
        assert digester.waiting == 3
    assert trio.current_time() - began == pytest.approx(3 * 4 / 5)


async def test_a_log_that_is_cut_while_it_is_read_gives_no_wrong_digest(store, monkeypatch):
    """It was cut and written anew between two steps of one answer: the second attempt finds what is there now."""
    digester = store.range_digester
    read = digester._read
    cut_at = store.digest.digests.end - BLOCK

    async def read_and_cut(start, end):
        found = await read(start, end)
        if store.digest.cuts == before:
            end_before = store.max_offset
            for listener in store.on_truncate:
                listener(cut_at)
            store.commit_log.files.cut(cut_at)
            store.commit_log.append_raw(bytes(end_before - cut_at))
        return found

    before = store.digest.cuts
    monkeypatch.setattr(type(digester), "_read", lambda _, start, end: read_and_cut(start, end))
    end = store.max_offset
    found = await digester.digests(0, end)
    assert found == expected(store, 0, end, 1)
    assert log_bytes(store)[-BLOCK:] == bytes(BLOCK)


async def test_a_log_that_is_cut_below_the_range_is_told(store, monkeypatch):
    digester = store.range_digester

    async def cut(start, end):
        for listener in store.on_truncate:
            listener(BLOCK)
        store.commit_log.files.cut(BLOCK)
        return bytes(16)

    monkeypatch.setattr(type(digester), "_read", lambda _, start, end: cut(start, end))
    with pytest.raises(LogRangeError):
        await digester.digests(5, 2 * BLOCK)


async def test_a_log_that_loses_its_first_file_while_it_is_read(store, autojump_clock):
    """The bytes that were asked for are still read from the file that was deleted."""
    digester = store.range_digester
    digester.bytes_per_second = BLOCK
    right = expected(store, 5, BLOCK, 1)
    result = []

    async def ask():
        result.append(await digester.digests(5, BLOCK))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked(0.0)
        file = store.commit_log.files.drop_first()
    file.close()
    assert result == [right]
    with pytest.raises(LogRangeError):
        await digester.digests(5, BLOCK)
