"""Finds where two logs differ first, by digests: coarse to fine. No I/O, no clock.

`first_difference` is a generator: it yields which digests it wants of both logs, and is sent the two answers. A log only
grows, so bytes once equal stay equal; one that was cut meanwhile gives answers that contradict each other: it is asked again.

    question  bytes 0 to 40 GiB in groups of 16 MiB         -> equal up to 12 GiB, a difference in the group behind
    question  that group in blocks of 64 KiB                -> the block
    question  halves, quarters, .. of that block            -> the byte
"""

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

from attrs import frozen

from twinlog.ha.errors import HAPeerError
from twinlog.store.integrity.digest import BLOCK_SIZE, RangeDigests, ceil_block, floor_block

DIGESTS_PER_LOOK = 256
T = TypeVar("T")
GROUP_BLOCKS_MAX = 256  # 16 MiB: what a member reads for an answer where it has no digests yet.


@frozen
class Digests:
    """Asks for the digests of bytes `start` to `end` of two logs; an answer may end earlier."""

    start: int
    end: int
    blocks_per_digest: int = 1


@frozen
class Compared:
    """Two logs are equal in bytes `start` to `equal_to`.

    `differs_to`: the end of the block, or part of one, behind them that differs; None when all that was asked for is equal.
    """

    start: int
    equal_to: int
    differs_to: int | None


Answers = tuple[RangeDigests, RangeDigests]
Comparison = Generator[Digests, Answers, Compared]


def first_difference(start: int, end: int, *, digests_max: int = DIGESTS_PER_LOOK) -> Comparison:
    """Compare bytes `start` to `end`, which both logs must hold. Raises HAPeerError for answers that do not fit."""
    assert digests_max >= 2, "a look must be finer than the one before"
    at, limit = start, end
    while at < end:
        question = Digests(at, limit, _group_size(at, limit, digests_max))
        left, right = yield question
        for answer in (left, right):
            _check(question, answer)
        equal_to, differs_to = _common(left, right)
        if differs_to is not None and ceil_block(equal_to + 1) >= differs_to:
            return Compared(start, equal_to, differs_to)
        if differs_to is None and equal_to == at:  # One answer ends inside of the other one's first group.
            differs_to = min(left.end, right.end)
        at = equal_to
        limit = differs_to if differs_to is not None else limit if at < limit else end
    return Compared(start, end, None)


def first_byte(start: int, end: int) -> Generator[Digests, Answers, int | None]:
    """The first byte that differs in a block, or part of one, that does; None when all of it turns out to be equal."""
    low, high = start, end
    while high - low > 1:
        middle = (low + high) // 2
        left, right = yield Digests(low, middle)
        if _common(left, right)[1] is None:
            low = middle
        else:
            high = middle
    left, right = yield Digests(low, high)
    return None if _common(left, right)[1] is None else low


def _group_size(start: int, end: int, digests_max: int) -> int:
    """Blocks in a group, a power of two: so many that a look takes at most about `digests_max` digests."""
    blocks = (ceil_block(end) - floor_block(start)) // BLOCK_SIZE
    return min(GROUP_BLOCKS_MAX, 1 << max(0, (-(-blocks // digests_max) - 1).bit_length()))


def _check(question: Digests, answer: RangeDigests) -> None:
    fits = (
        answer.start == question.start
        and question.start < answer.end <= question.end
        and answer.blocks_per_digest == question.blocks_per_digest
        and (answer.end == question.end or answer.end % BLOCK_SIZE == 0)
    )
    if not fits:
        raise HAPeerError(f"digests of bytes {answer.start} to {answer.end} are no answer to {question}")


def _common(left: RangeDigests, right: RangeDigests) -> tuple[int, int | None]:
    """End of the equal part of two answers, and of the group behind it that differs."""
    equal_to = left.start
    for (_, end, ours), (_, other_end, theirs) in zip(left.groups(), right.groups(), strict=False):
        if end != other_end:
            break
        if ours != theirs:
            return equal_to, end
        equal_to = end
    return equal_to, None


async def answered(asking: Generator[Digests, Answers, T], ask: Callable[[Digests], Awaitable[Answers]]) -> T:
    """Ask until the result is known. Raises errors of `ask`, and HAPeerError."""
    try:
        question = next(asking)
        while True:
            question = asking.send(await ask(question))
    except StopIteration as done:
        found: T = done.value
        return found
