"""Compares the logs of two running brokers under load, up to the end of the shorter one at the start.

Two twinlog members compare by digest, coarse to fine, down to the byte: every byte is compared, nothing but digests is sent.
Digests are explained in store/integrity/range_digests.py. RocketMQ has none: there samples of records are compared,
by request 33.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import StrEnum
from functools import partial
from typing import Any

from attrs import define, evolve, frozen

from twinlog.cluster.client.api import ClientApi, StoredRecord
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.observe.gather import error_text
from twinlog.cluster.observe.log_side import LiveSide, LogMovedError, LogSide, diff_record
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.ha.compare.digests import Answers, Digests, answered, first_byte, first_difference
from twinlog.ha.errors import HAPeerError
from twinlog.store.offline.diff import DiffRecord, fields_that_differ
from twinlog.store.offline.finding import doc
from twinlog.store.record.resync import BLANK
from twinlog.store.util.progress import Progress, no_progress

_NEIGHBOURS_MAX = 100  # Damaged records in a row that are counted one by one.
_ATTEMPTS = 5  # With logs that lose files or are cut meanwhile.


class LiveVerdict(StrEnum):
    """Result of a comparison."""

    EQUAL = "equal"  # Every byte that both have.
    SAMPLES_EQUAL = "samples-equal"  # Every record that was compared; others were not.
    DIFFERENT = "different"
    NOTHING_IN_COMMON = "nothing-in-common"  # One ends before the other begins.
    INCOMPLETE = "incomplete"  # Equal as far as it went; see `reason`.


@frozen(kw_only=True)
class LiveDifference:
    """First difference of two logs, with the record of each side there."""

    first_offset: int = doc("the first byte that differs; with samples the first of the samples that do")
    left: DiffRecord
    right: DiffRecord
    fields: tuple[str, ...] = doc("of the two messages, which differ")


@frozen(kw_only=True)
class NotCompared:
    """Bytes that only one of the two has."""

    side: str = doc("left or right: the one that has them")
    start_offset: int
    end_offset: int
    reason: str


@frozen(kw_only=True)
class LiveDiffReport:
    """The logs of two running brokers compared."""

    verdict: LiveVerdict
    left: LiveSide
    right: LiveSide
    common_start: int
    common_end: int
    compared_by: str = doc("digests: every byte; samples: some records")
    equal_to: int = doc("all bytes from common_start to here are equal; with samples all that were compared")
    samples: int | None = doc("how many records were compared; null: all bytes were")
    right_behind_bytes: int = doc("how much longer the left one is; negative: the right one is longer")
    not_compared: tuple[NotCompared, ...]
    difference: LiveDifference | None
    reason: str | None = doc("why the comparison is not complete")


@define
class Run:
    """A comparison of bytes `start` to `end` under way: what is known so far."""

    start: int
    end: int
    equal_to: int
    samples: int = 0
    difference: LiveDifference | None = None
    damaged_records: int = 1  # So many in a row, where the difference is damage on one side.
    reason: str | None = None  # Why it is not complete.

    def narrow(self, start: int, end: int) -> None:
        """The logs have only these bytes in common now."""
        self.start, self.end = max(self.start, start), min(self.end, end)
        self.equal_to = min(max(self.equal_to, self.start), self.end)


async def live_diff(
    api: ClientApi,
    left: tuple[str, str],
    right: tuple[str, str],
    progress: Progress = no_progress,
    *,
    last_bytes: int | None = None,
) -> LiveDiffReport:
    """Compare two brokers, each given by name and address; with `last_bytes` only the end of the common range.

    Raises RemotingError when one cannot be asked at the start.
    """
    sides = LogSide(api, left[1], left[0]), LogSide(api, right[1], right[0])
    sides_now = await in_parallel(side.look for side in sides)
    is_sampled = not all(side.is_twinlog for side in sides)
    start, end = common_range(*sides_now)
    start = start if last_bytes is None else max(start, end - last_bytes)
    run = Run(start, end, start)
    attempts = 0
    while run.equal_to < run.end and attempts < _ATTEMPTS:
        attempts += 1
        if await go_on(sides, run, progress, by_samples if is_sampled else by_digests):
            break
    if run.equal_to >= run.end:  # All that both still have.
        run.reason = None
    return report_of(sides_now[0], sides_now[1], run, is_sampled=is_sampled)


async def go_on(sides: tuple[LogSide, LogSide], run: Run, progress: Progress, compare: Any) -> bool:
    """Compare as long as the logs hold what they held; whether that was all."""
    try:
        try:
            await compare(*sides, run, progress)
        except LogMovedError as error:
            run.reason = str(error)
            run.narrow(*common_range(*await in_parallel(side.look for side in sides)))
            return False
    except (RemotingError, HAPeerError) as error:
        run.reason = error_text(error)
        return True
    run.reason = None
    return True


def common_range(left: LiveSide, right: LiveSide) -> tuple[int, int]:
    """The range that both logs hold; empty when one ends before the other begins."""
    start = max(left.min_offset, right.min_offset)
    return start, max(start, min(left.end_offset, right.end_offset))


# By digest


async def by_digests(left: LogSide, right: LogSide, run: Run, progress: Progress) -> None:
    """Every byte from `run.equal_to` on. Raises RemotingError, HAPeerError, LogMovedError."""

    async def ask(question: Digests) -> Answers:
        answers = await in_parallel(partial(side.digests, question) for side in (left, right))
        return answers[0], answers[1]

    async def ask_and_note(question: Digests) -> Answers:
        run.equal_to = question.start
        progress(run.equal_to - run.start, run.end - run.start)
        return await ask(question)

    compared = await answered(first_difference(run.equal_to, run.end), ask_and_note)
    run.equal_to = compared.equal_to
    if compared.differs_to is not None:
        offset = await answered(first_byte(compared.equal_to, compared.differs_to), ask)
        if offset is None:  # Other bytes were written, but what is on the disks now is equal: one of them is damaged.
            offset = compared.equal_to
        ours, theirs = await in_parallel(partial(side.record_at, offset) for side in (left, right))
        if (ours.problem is None) != (theirs.problem is None):
            if ours.problem is None:
                run.damaged_records = await _records_within(left, ours, theirs.end)
                theirs = _with_neighbours(theirs, run.damaged_records)
            else:
                run.damaged_records = await _records_within(right, theirs, ours.end)
                ours = _with_neighbours(ours, run.damaged_records)
        run.equal_to, run.difference = offset, difference_of(offset, ours, theirs)


async def _records_within(side: LogSide, first: StoredRecord, end: int) -> int:
    """Count the records of a sound log from `first` to `end`, the end of the other log's damage."""
    count, at = 1, first.end
    while at < end and count < _NEIGHBOURS_MAX:
        record = await side.record_at(at)
        if record.end <= at:
            break
        count += record.problem is None
        at = record.end
    return count


def _with_neighbours(record: StoredRecord, count: int) -> StoredRecord:
    """Damaged neighbours are one finding, as in an audit."""
    if count == 1:
        return record
    number = f"at least {count}" if count == _NEIGHBOURS_MAX else str(count)
    return evolve(record, problem=f"{number} records in a row are damaged; the first one: {record.problem}")


def difference_of(offset: int, left: StoredRecord, right: StoredRecord) -> LiveDifference:
    """The difference at an offset, described."""
    ours, theirs = diff_record(left), diff_record(right)
    fields = fields_that_differ(ours.message, theirs.message)
    return LiveDifference(first_offset=offset, left=ours, right=theirs, fields=fields)


async def by_samples(left: LogSide, right: LogSide, run: Run, progress: Progress) -> None:
    """Compare some records of the common range. Raises RemotingError, LogMovedError."""
    found = await first_sample(left, right, run.start, run.end, progress)
    run.equal_to, run.samples = found.equal_to, found.count
    if found.differs is not None:
        records = [
            await side.record_at(found.place) if side.is_twinlog else record  # It tells more of what is damaged.
            for side, record in zip((left, right), found.differs, strict=True)
        ]
        run.difference = difference_of(found.place, *records)


# The report


def report_of(left: LiveSide, right: LiveSide, run: Run, *, is_sampled: bool) -> LiveDiffReport:
    """Assemble the report."""
    return LiveDiffReport(
        verdict=_verdict(left, right, run, is_sampled),
        left=left,
        right=right,
        common_start=run.start,
        common_end=run.end,
        compared_by="samples" if is_sampled else "digests",
        equal_to=run.equal_to,
        samples=run.samples if is_sampled else None,
        right_behind_bytes=left.end_offset - right.end_offset,
        not_compared=tuple(
            piece
            for name, side, other in (("left", left, right), ("right", right, left))
            for piece in _not_compared(name, side, other)
        ),
        difference=run.difference,
        reason=run.reason,
    )


def _verdict(left: LiveSide, right: LiveSide, run: Run, is_sampled: bool) -> LiveVerdict:
    if run.difference is not None:
        return LiveVerdict.DIFFERENT
    if run.start >= run.end and any(side.end_offset > side.min_offset for side in (left, right)):
        return LiveVerdict.NOTHING_IN_COMMON
    if run.reason is not None or (run.start < run.end and is_sampled and not run.samples):
        return LiveVerdict.INCOMPLETE
    return LiveVerdict.SAMPLES_EQUAL if is_sampled else LiveVerdict.EQUAL


def _not_compared(name: str, side: LiveSide, other: LiveSide) -> list[NotCompared]:
    before = (side.min_offset, min(other.min_offset, side.end_offset), "has deleted them, or never had them")
    behind = (max(other.end_offset, side.min_offset), side.end_offset, "does not have them")
    return [
        NotCompared(side=name, start_offset=start, end_offset=end, reason=f"{other.name} {reason}")
        for start, end, reason in (before, behind)
        if start < end
    ]


_EVENLY = 48
_STEP = 64 * 1024  # How far before the end the first of those at growing distances is.
_CHAIN = 8  # Records at the start of each file, between two RocketMQ brokers.
_FILES_MAX = 64


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
    """Start offsets of some records that lie wholly in the range."""
    reported: set[int] = set()
    for offset in sample_offsets(start, end):
        place = await _start_of(guide, offset, start, end)
        if place is not None and place not in reported:
            reported.add(place)
            yield place


async def _start_of(guide: LogSide, offset: int, start: int, end: int) -> int | None:
    """Start of the record at byte `offset`, or of the one before it if that record leaves the range."""
    for _ in range(2):
        found = await guide.record_at(offset)
        if found.problem != BLANK and start <= found.start and found.end <= end:
            return found.start  # A damaged one, too: the other side may have it.
        if found.start <= start:
            return None
        offset = found.start - 1
    return None


def sample_offsets(start: int, end: int) -> list[int]:
    """Sample offsets in order: the first and the last byte, some near the end, and some evenly between."""
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
    """Bisect: the record at `good` is equal, the one at `bad` is not."""
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
