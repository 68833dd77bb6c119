"""Comparison of one split's digests: blocks that differ, and blocks that a member could not read."""

import pickle
from struct import Struct

import pytest

from twinlog.cluster.pipeline.audit.compare import ByteRange, LogBounds
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.tasks import (
    SplitCompared,
    SplitDigests,
    compare_split,
    compared,
    different_blocks,
    keyed,
)
from twinlog.cluster.pipeline.sources.log_bytes import Split
from twinlog.store.integrity.digest import BLOCK_SIZE

_ROW = Struct("<qq16s")
SPLIT = Split(0, 8 * BLOCK_SIZE)


def digests(member: int, *blocks: str | None, end: int | None = None) -> SplitDigests:
    """One letter a block; None: it could not be read."""
    packed, unreadable = b"", []
    for number, letter in enumerate(blocks):
        start = number * BLOCK_SIZE
        high = min(start + BLOCK_SIZE, end or 1 << 62)
        if letter is None:
            unreadable.append((start, high, "input/output error"))
        else:
            packed += _ROW.pack(start, high, letter.encode() * 16)
    return SplitDigests(member, 0, packed, tuple(unreadable))


def held(*found: SplitDigests, ends: dict[int, int] | None = None) -> SplitCompared:
    sides = {
        each.member: LogBounds("abc"[each.member], 0, (ends or {}).get(each.member, 4 * BLOCK_SIZE), file_size=1 << 20)
        for each in found
    }
    return compared(sides, SPLIT, found)


def blocks(found: SplitCompared) -> list[tuple[int, int]]:
    return [(part.start // BLOCK_SIZE, part.end // BLOCK_SIZE) for part in found.differing]


def test_equal_digests():
    found = held(digests(0, *"abcd"), digests(1, *"abcd"))
    assert (blocks(found), found.blocks, found.members) == ([], 4, (0, 1))
    assert found.compared == {"a": 4 * BLOCK_SIZE, "b": 4 * BLOCK_SIZE}


def test_neighbours_that_differ_are_one_range():
    assert blocks(held(digests(0, *"abcd"), digests(1, *"axyd"), digests(2, *"abcz"))) == [(1, 4)]


@pytest.mark.parametrize("other", ["abcd", "aXcd", "abXd"])
def test_what_one_cannot_read_is_compared_between_the_others(other):
    found = held(digests(0, *"abcd"), digests(1, "a", None, None, "d"), digests(2, *other))
    assert blocks(found) == [(at, at + 1) for at in range(4) if other[at] == "X"]
    assert {(each.cls, each.member) for each in found.unreadable} == {(FindingClass.UNREADABLE, "b")}
    assert found.read["b"] == 2 * BLOCK_SIZE


def test_what_cannot_be_read_has_its_place_and_its_file():
    found = held(digests(0, *"abcd"), digests(1, "a", "b", None, "d"))
    (unreadable,) = found.unreadable
    assert (unreadable.offset, unreadable.end) == (2 * BLOCK_SIZE, 3 * BLOCK_SIZE)
    assert unreadable.file == "commitlog/00000000000000000000"
    assert unreadable.why == "input/output error"
    assert blocks(found) == []


def test_a_member_whose_worker_died_takes_no_part():
    found = held(digests(0, *"abcd"), digests(2, *"abXd"))
    assert found.members == (0, 2)
    assert blocks(found) == [(2, 3)]


def test_alone_there_is_nothing_to_compare():
    found = held(digests(1, *"abcd"))
    assert (blocks(found), found.blocks, found.compared) == ([], 0, {})
    assert found.read == {"b": 4 * BLOCK_SIZE}


def test_a_block_without_a_row_is_looked_into():
    """A file is gone there."""
    one = digests(0, *"abcd")
    other = digests(1, *"ab")
    assert blocks(held(one, other)) == [(2, 4)]


def test_a_log_that_is_shorter_is_compared_as_far_as_it_goes():
    end = BLOCK_SIZE + 100
    found = held(digests(0, *"abcd"), digests(1, *"ax", end=end), ends={1: end})
    assert found.differing == (ByteRange(BLOCK_SIZE, end),)


def test_splits_meet_by_their_number():
    size = 8 * BLOCK_SIZE
    found = digests(0, *"ab")._replace(start=3 * size + 500)
    assert keyed(size, found)[0] == 3
    told = compare_split({0: LogBounds("a", 0, 10 * size)}, size, (3, [found]))
    assert told.start == 3 * size


def test_answers_can_be_sent():
    found = held(digests(0, *"abcd"), digests(1, "a", None, "c", "x"))
    assert pickle.loads(pickle.dumps(found)) == found


def test_blocks_are_counted_by_where_ranges_lie():
    assert different_blocks([ByteRange(0, 1), ByteRange(BLOCK_SIZE - 1, BLOCK_SIZE + 1)]) == 3
    assert different_blocks([]) == 0
