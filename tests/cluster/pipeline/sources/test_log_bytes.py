"""Division of a log into splits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.pipeline.logs import is_cover
from twinlog.cluster.pipeline.sources.log_bytes import Split, splits
from twinlog.cluster.pipeline.sources.log_end import LogFile
from twinlog.cluster.pipeline.sources.places import StoreUri


def log(*files: tuple[int, int]) -> list[LogFile]:
    return [LogFile(StoreUri(f"/store/commitlog/{start:020d}"), start, size) for start, size in files]


@given(
    start=st.integers(0, 5000),
    end=st.none() | st.integers(0, 5000),
    size=st.integers(1, 3000),
    first=st.sampled_from([0, 1024]),
)
def test_splits_have_each_byte_once(start: int, end: int | None, size: int, first: int):
    files = log((first, 1024), (first + 1024, 1024), (first + 2048, 1000))
    found = splits(files, size, start, end)
    low, high = max(start, first), min(first + 3048, first + 3048 if end is None else end)
    assert is_cover(found, low, high) if low < high else found == []
    assert all(part.end % size == 0 for part in found[:-1])


def test_bytes_of_missing_files_are_in_splits():
    assert splits(log((0, 100), (200, 100)), 150) == [Split(0, 150), Split(150, 300)]


def test_no_files_no_splits():
    assert splits([]) == []


def test_a_size_that_is_none():
    with pytest.raises(ValueError, match="at least 1"):
        splits(log((0, 100)), 0)


@pytest.mark.parametrize(
    "parts", [[(0, 5)], [(0, 5), (5, 5), (5, 9)], [(0, 5), (4, 9)], [(0, 4), (5, 9)], [(0, 9), (9, 12)], []]
)
def test_what_is_no_cover(parts: list[tuple[int, int]]):
    assert not is_cover([Split(*part) for part in parts], 0, 9)
