"""Comparison of logs by the digests of their blocks."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.pipeline.audit.compare import (
    BlockRow,
    ByteRange,
    LogBounds,
    block_differs,
    differing_blocks,
    nothing_in_common,
    ranges,
    tail_findings,
)
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.store.integrity.digest import BLOCK_SIZE, digest, parts_of

B = BLOCK_SIZE


def rows(side: LogBounds, log: bytes, begin: int = 0) -> list[BlockRow]:
    """The rows of a log whose byte `begin` is the first of `log`."""
    bounds = parts_of(side.first, side.last)
    return [BlockRow(low, high, digest(log[low - begin : high - begin])) for low, high in bounds]


def compared(*logs: tuple[LogBounds, bytes]) -> list[ByteRange]:
    sides = [side for side, _ in logs]
    return differing_blocks(sides, {side.name: rows(side, log) for side, log in logs})


def changed(log: bytes, *places: int) -> bytes:
    data = bytearray(log)
    for place in places:
        data[place] ^= 1
    return bytes(data)


LOG = bytes(range(256)) * (5 * B // 256)


def test_equal_logs_have_no_range():
    assert compared((LogBounds("a", 0, 5 * B), LOG), (LogBounds("b", 0, 5 * B), LOG)) == []


def test_neighbours_are_one_range():
    other = changed(LOG, B + 1, 2 * B, 4 * B)
    assert compared((LogBounds("a", 0, 5 * B), LOG), (LogBounds("b", 0, 5 * B), other)) == [
        ByteRange(B, 3 * B),
        ByteRange(4 * B, 5 * B),
    ]


def test_partial_blocks_are_looked_into_as_far_as_both_have_them():
    """Their digests are of other bytes: nothing follows from them."""
    first, second = LogBounds("a", 0, 5 * B - 10), LogBounds("b", B + 7, 5 * B)
    assert compared((first, LOG), (second, LOG)) == [ByteRange(B + 7, 2 * B), ByteRange(4 * B, 5 * B - 10)]


def test_partial_blocks_of_the_same_bounds_are_compared():
    sides = LogBounds("a", 7, 5 * B - 9), LogBounds("b", 7, 5 * B - 9)
    assert compared((sides[0], LOG), (sides[1], LOG)) == []
    assert compared((sides[0], LOG), (sides[1], changed(LOG, 8))) == [ByteRange(7, B)]


def test_a_block_without_a_row_differs():
    """Of a file that is missing there are no rows; for nobody, perhaps."""
    sides = LogBounds("a", 0, 3 * B), LogBounds("b", 0, 3 * B)
    ours = rows(sides[0], LOG)
    assert differing_blocks(sides, {"a": ours, "b": [ours[0], ours[2]]}) == [ByteRange(B, 2 * B)]
    assert differing_blocks(sides, {"a": [ours[0]], "b": [ours[0]]}) == [ByteRange(B, 3 * B)]
    assert differing_blocks(sides, {"a": [], "b": []}) == [ByteRange(0, 3 * B)]


def test_what_only_one_has_is_not_compared():
    assert compared((LogBounds("a", 0, 5 * B), LOG), (LogBounds("b", 2 * B, 3 * B), LOG)) == []
    assert compared((LogBounds("a", 0, B), LOG), (LogBounds("b", 3 * B, 4 * B), LOG)) == []
    assert nothing_in_common([LogBounds("a", 0, B), LogBounds("b", 3 * B, 4 * B)])
    assert not nothing_in_common([LogBounds("a", 0, 4 * B), LogBounds("b", 3 * B, 4 * B)])
    assert not nothing_in_common([LogBounds("a", 0, 4 * B), LogBounds("b", 0, 0)])


def test_three_members_are_compared_where_any_two_have_bytes():
    third = changed(LOG, 2 * B)
    logs = (LogBounds("a", 0, 2 * B), LOG), (LogBounds("b", 0, 5 * B), LOG), (LogBounds("c", B, 4 * B), third)
    assert compared(*logs) == [ByteRange(2 * B, 3 * B)]
    assert differing_blocks([side for side, _ in logs], {}) == [ByteRange(0, 4 * B)]


def test_a_block_may_be_asked_for_alone():
    sides = [LogBounds("a", 0, 2 * B), LogBounds("b", 0, 2 * B)]
    row = BlockRow(B, 2 * B, b"x" * 16)
    assert block_differs(sides, B, {"a": row, "b": row}) is None
    assert block_differs(sides, B, {"a": row, "b": row._replace(digest=b"y" * 16)}) == ByteRange(B, 2 * B)
    assert block_differs(sides, B, {"a": row}) == ByteRange(B, 2 * B)
    assert block_differs(sides[:1], B, {"a": row}) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=20))
def test_ranges_cover_what_their_parts_cover(spans):
    parts = sorted(ByteRange(start, start + size) for start, size in spans)
    found = ranges(parts)
    assert {n for part in found for n in range(*part)} == {n for part in parts for n in range(*part)}
    assert all(a.end < b.start for a, b in pairwise(found))


@given(st.sets(st.integers(0, 5 * B - 1), max_size=6), st.integers(0, 2 * B), st.integers(3 * B, 5 * B))
def test_every_byte_that_differs_is_in_a_range(places, first, last):
    sides = LogBounds("a", 0, 5 * B), LogBounds("b", first, last)
    found = compared((sides[0], LOG), (sides[1], changed(LOG, *places)))
    for place in places:
        assert any(part.start <= place < part.end for part in found) == (first <= place < last)


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        (LogBounds("b", 0, 80), [(FindingClass.LAG, "b", 80, 100)]),
        (LogBounds("b", 0, 80, claimed=80), [(FindingClass.LAG, "b", 80, 100)]),
        (LogBounds("b", 0, 80, claimed=90), [(FindingClass.TRUNCATED, "b", 80, 100)]),
        (LogBounds("b", 0, 80, claimed=1 << 60), [(FindingClass.TRUNCATED, "b", 80, 100)]),
        (LogBounds("b", 0, 100, claimed=120), []),
        (LogBounds("b", 0, 80, is_running=True, claimed=90), [(FindingClass.LAG, "b", 80, 100)]),
        (LogBounds("b", 0, 100, claimed=100), []),
        (LogBounds("b", 0, 120), [(FindingClass.LAG, "a", 100, 120)]),
    ],
)
def test_who_ends_early(side, expected):
    """Lag, unless the member's own files mention a later end."""
    found = tail_findings([LogBounds("a", 0, 100), side])
    assert [(each.cls, each.member, each.offset, each.end) for each in found] == expected
