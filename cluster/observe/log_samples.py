"""Compares two logs record by record, some of them, where one of the two is RocketMQ's, which tells no digests.

With a twinlog member on one side it says where records begin: the first and the last one are compared, some at growing distances
from the end, and some evenly in between; where one differs, the first that does is found by halving. Between two RocketMQ brokers
only the starts of log files are places where records are known to begin.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from attrs import frozen

from twinlog.cluster.client.api.api import StoredRecord
from twinlog.cluster.observe.log_side import LogSide
from twinlog.store.log.range import BLANK

_EVENLY = 48
_STEP = 64 * 1024  # How far before the end the first of those at growing distances is.
_CHAIN = 8  # Records at the start of each file, between two RocketMQ brokers.
_FILES_MAX = 64

Progress = Callable[[int, int], None]


@frozen
class Sampled:
    """`count` records were compared, all below `equal_to` are equal; `differs`: what both have at `place`, if anything does."""

    count: int
    equal_to: int
    place: int
    differs: tuple[StoredRecord, StoredRecord] | None


async def first_sample(left: LogSide, right: LogSide, start: int, end: int, progress: Progress) -> Sampled:
    """Compare bytes `start` to `end`. Raises RemotingError, LogMovedError."""
    guide = left if left.is_twinlog else right if right.is_twinlog else None
    places = _guided(guide, start, end) if guide is not None else _file_starts(left, start, end)
    count, equal_to, good = 0, start, None
    async with aclosing(places):
        async for place in places:
            progress(place - start, end - start)
            pair = await left.record_from(place), await right.record_from(place)
            if not pair[0].data and not pair[1].data:  # Nobody has one: no place for a sample.
                continue
            count += 1
            if pair[0].data == pair[1].data:
                good, equal_to = place, pair[0].end
            elif guide is None or good is None:
                return Sampled(count, equal_to, place, pair)
            else:
                return await _first_between(guide, left, right, good, place, pair, count)
    return Sampled(count, equal_to, equal_to, None)


async def _guided(guide: LogSide, start: int, end: int) -> AsyncGenerator[int, None]:
    """Where some records begin that lie wholly in the range."""
    told: set[int] = set()
    for offset in offsets_to_look_at(start, end):
        place = await _start_of(guide, offset, start, end)
        if place is not None and place not in told:
            told.add(place)
            yield place


async def _start_of(guide: LogSide, offset: int, start: int, end: int) -> int | None:
    """Where the record begins that has byte `offset`, or the one before it if that one does not lie in the range."""
    for _ in range(2):
        found = await guide.record_at(offset)
        if found.problem != BLANK and start <= found.start and found.end <= end:
            return found.start  # A damaged one, too: the other side may have it.
        if found.start <= start:
            return None
        offset = found.start - 1
    return None


def offsets_to_look_at(start: int, end: int) -> list[int]:
    """In order: the first and the last byte, some near the end, and some evenly between."""
    offsets = {start, end - 1}
    offsets |= {start + (end - start) * number // _EVENLY for number in range(_EVENLY)}
    step = _STEP
    while end - step > start:
        offsets.add(end - step)
        step *= 2
    return sorted(offsets)


async def _first_between(
    guide: LogSide,
    left: LogSide,
    right: LogSide,
    good: int,
    bad: int,
    pair: tuple[StoredRecord, StoredRecord],
    count: int,
) -> Sampled:
    """Halve: the record at `good` is equal, the one at `bad` is not."""
    equal = await guide.record_at(good)
    while equal.end < bad:
        middle = await guide.record_at((equal.end + bad) // 2)
        if not equal.end <= middle.start < bad:
            middle = await guide.record_at(equal.end)
        if middle.problem == BLANK:
            middle = await guide.record_at(middle.end) if middle.end < bad else await guide.record_at(equal.end)
        if middle.problem is not None or not equal.end <= middle.start < bad:
            break
        found = await left.record_from(middle.start), await right.record_from(middle.start)
        count += 1
        if found[0].data == found[1].data:
            equal = middle
        else:
            bad, pair = middle.start, found
    return Sampled(count, equal.end, bad, pair)


async def _file_starts(side: LogSide, start: int, end: int) -> AsyncGenerator[int, None]:
    """The first records of each file of the range; of some files, when there are many."""
    size = side.file_size
    starts = range(-(-start // size) * size, end, size)
    for number in range(0, len(starts), max(1, len(starts) // _FILES_MAX)):
        at = starts[number]
        for _ in range(_CHAIN):
            yield at
            record = await side.record_from(at)
            if not record.data or record.end >= end:
                break
            at = record.end
