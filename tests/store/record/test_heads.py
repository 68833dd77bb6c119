"""The walk over heads meets what the walk over records meets; in pieces, too."""

import random
from itertools import pairwise

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.pipeline.logs import forged, message, records, traffic
from twinlog.store.record.heads import HEAD_SIZE, read_heads

FILE_SIZE = 1 << 20


def small(count: int, seed: int = 0):
    chance = random.Random(seed)
    return [message(number, chance.randbytes(chance.randrange(150))) for number in range(count)]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1 << 30),
    kind=st.sampled_from([small, traffic]),
    count=st.integers(1, 900),
    file_size=st.sampled_from([5_000, 70_000, FILE_SIZE]),
    cut=st.floats(0, 1),
)
def test_records_and_where_they_end(seed, kind, count, file_size, cut):
    data, placed = records(kind(count, seed), 3 * file_size, file_size)
    size = int(len(data) * cut)
    found = read_heads(memoryview(data)[:size], 3 * file_size, file_size)
    assert found.problem is None
    starts = [each.phy_offset - 3 * file_size for each in placed]
    met = [at for at in starts if at + HEAD_SIZE <= size]
    assert found.starts.tolist() == met
    if found.end >= size:
        assert found.end in {*starts, *(at + each.size for at, each in zip(starts, placed, strict=True))}
    else:
        assert size - found.end < HEAD_SIZE


@pytest.mark.parametrize("shift", range(5))
def test_dense_records_at_any_alignment(shift):
    data, placed = records(small(2000), 0, FILE_SIZE)
    buffer = memoryview(bytes(shift) + data)[shift:]
    found = read_heads(buffer, 0, FILE_SIZE)
    assert found.starts.tolist() == [each.phy_offset for each in placed]
    assert (found.end, found.problem) == (len(data), None)


def test_forged_records_among_dense_ones():
    made = small(700)
    at = len(records(made, 0, FILE_SIZE)[0])
    data, placed = records([*made, forged(1, at, 20), *small(700, 1)], 0, FILE_SIZE)
    assert read_heads(memoryview(data), 0, FILE_SIZE).starts.tolist() == [each.phy_offset for each in placed]


@settings(max_examples=50)
@given(seed=st.integers(0, 1 << 30), kind=st.sampled_from([small, traffic]))
def test_damage_ends_the_walk(seed, kind):
    data, placed = records(kind(600, seed), 0, FILE_SIZE)
    chance, image = random.Random(seed), bytearray(data)
    hurt = chance.choice(placed)
    at = chance.choice((0, 1, 4, 5, 6, 7, 28, 33, 35))
    image[hurt.phy_offset + at] ^= 1 << chance.randrange(8)
    found = read_heads(memoryview(image), 0, FILE_SIZE)
    starts = found.starts.tolist()
    before = [each.phy_offset for each in placed if each.phy_offset < hurt.phy_offset]
    assert starts[: len(before)] == before
    sizes = {each.phy_offset: int.from_bytes(image[each.phy_offset :][:4], signed=True) for each in placed}
    assert all(low + sizes[low] == high for low, high in pairwise(starts))
    if at >= 4 and image[hurt.phy_offset + 4 :][:4] not in (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"):
        assert (found.end, found.problem is not None) == (hurt.phy_offset, True)


def test_problems_are_told():
    data, placed = records([message(1), message(2)], 0, 1 << 10)
    second = placed[1].phy_offset
    for change, reason in (
        (b"\0\0\0\x20", "a record of 32 bytes where the file has"),
        (b"\0\0\x20\0", "a record of 8192 bytes where the file has"),
        (b"\0\0\0\x20\xcb\xd4\x31\x94", "a blank of 32 bytes where the file has"),
        (b"\0\0\0\0\0\0\0\0", "magic 0x00000000 is no message's"),
    ):
        image = bytearray(data)
        image[second : second + len(change)] = change
        found = read_heads(memoryview(image), 0, 1 << 10)
        assert (found.starts.tolist(), found.end) == ([0], second)
        assert reason in str(found.problem)
    moved = records([attrs.evolve(message(1))], 0, 1 << 10)[0]
    assert read_heads(memoryview(moved), 512, 1 << 10).problem == "a record that says it lies at 0"


def test_nothing():
    assert read_heads(memoryview(b""), 0, 100).starts.tolist() == []
