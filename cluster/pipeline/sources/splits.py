"""Cuts a log into splits, each for one task. Pure: values in, values out."""

from collections.abc import Sequence
from itertools import pairwise

from attrs import frozen

from twinlog.cluster.pipeline.sources.files import LogFile

SPLIT_SIZE = 64 << 20


@frozen
class Split:
    """Bytes `start` to `end` of the log, which may be any: it stands for the records, and the blocks, that begin in it."""

    start: int
    end: int


def splits(log: Sequence[LogFile], size: int = SPLIT_SIZE, start: int = 0, end: int | None = None) -> list[Split]:
    """Bytes `start` to `end` of the log, as far as its files go, cut at multiples of `size`; missing files are in them, too."""
    if size <= 0:
        raise ValueError(f"a split of {size} bytes: at least 1")
    if not log:
        return []
    start = max(start, log[0].start)
    last = log[-1].start + log[-1].size
    end = last if end is None else min(end, last)
    bounds = [start, *range(start - start % size + size, end, size), end] if start < end else []
    return [Split(low, high) for low, high in pairwise(bounds)]
