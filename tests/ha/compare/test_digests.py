"""Finding the first difference of two logs by digests."""

import contextlib
import random

import pytest
from attrs import define

from twinlog.ha.compare.digests import Compared, Digests, answered, first_byte, first_difference
from twinlog.ha.errors import HAPeerError
from twinlog.store.integrity.digest import BLOCK_SIZE, RangeDigests, digests_of, grouped

BLOCK = BLOCK_SIZE


@define
class Log:
    """Bytes that answer; at most `bytes_max` an answer, ending where a block does."""

    data: bytes
    bytes_max: int = 1 << 40
    asked: int = 0

    async def ask(self, question: Digests) -> RangeDigests:
        self.asked += 1
        end = min(question.end, (question.start + self.bytes_max) // BLOCK * BLOCK)
        end = end if end > question.start else min(question.end, (question.start // BLOCK + 1) * BLOCK)
        return answer_of(self.data, Digests(question.start, end, question.blocks_per_digest))


def answer_of(data: bytes, question: Digests) -> RangeDigests:
    start, end = question.start, question.end
    return grouped(digests_of(data[start:end], start), start, end, question.blocks_per_digest)


def asking(left: Log, right: Log):
    async def ask(question: Digests):
        return await left.ask(question), await right.ask(question)

    return ask


DATA = random.Random(1).randbytes(40 * BLOCK + 100)


def changed(at: int) -> bytes:
    return DATA[:at] + bytes([DATA[at] ^ 1]) + DATA[at + 1 :]


async def compare(left: Log, right: Log, start: int = 0, end: int = len(DATA), digests_max: int = 4) -> Compared:
    return await answered(first_difference(start, end, digests_max=digests_max), asking(left, right))


@pytest.mark.parametrize("start", [0, 5, BLOCK, 3 * BLOCK + 7])
@pytest.mark.parametrize("bounds", [(1 << 40, 1 << 40), (3 * BLOCK, 1 << 40), (5 * BLOCK, 2 * BLOCK), (1, 7 * BLOCK)])
async def test_equal_logs(start, bounds):
    """Whatever each of them tells in one answer."""
    found = await compare(*(Log(DATA, each) for each in bounds), start)
    assert found == Compared(start, len(DATA), None)


@pytest.mark.parametrize("at", [0, 1, BLOCK - 1, BLOCK, 17 * BLOCK + 5, 40 * BLOCK, len(DATA) - 1])
@pytest.mark.parametrize("bounds", [(1 << 40, 1 << 40), (3 * BLOCK, 5 * BLOCK)])
async def test_the_block_of_the_first_difference(at, bounds):
    left, right = Log(DATA, bounds[0]), Log(changed(at), bounds[1])
    low = at // BLOCK * BLOCK
    assert await compare(left, right) == Compared(0, low, min(low + BLOCK, len(DATA)))


async def test_a_difference_below_the_start_does_not_count():
    assert (await compare(Log(DATA), Log(changed(10)), start=11)).differs_to is None


async def test_the_first_of_many_differences():
    other = changed(9 * BLOCK)[: 20 * BLOCK] + bytes(len(DATA) - 20 * BLOCK)
    found = await compare(Log(DATA), Log(other))
    assert (found.equal_to, found.differs_to) == (9 * BLOCK, 10 * BLOCK)


async def test_few_questions_for_much_log():
    left, right = Log(DATA), Log(changed(30 * BLOCK))
    await compare(left, right, digests_max=4)
    assert left.asked == 3  # 41 blocks in groups of 16, then of 4, then of 1.


async def test_a_log_that_was_mended_between_two_looks_is_compared_to_its_end():
    """The coarse look found a difference that the fine one does not confirm."""
    comparison = first_difference(0, len(DATA), digests_max=4)
    question = next(comparison)
    question = comparison.send((answer_of(DATA, question), answer_of(changed(20), question)))
    assert question.end < len(DATA)
    with contextlib.suppress(StopIteration):
        while True:
            asked = question
            question = comparison.send((answer_of(DATA, asked), answer_of(DATA, asked)))
    assert question.end == len(DATA)


@pytest.mark.parametrize(
    "answer",
    [
        RangeDigests(1, 2 * BLOCK, 1, (b"",) * 2),
        RangeDigests(0, 0, 1, ()),
        RangeDigests(0, 4 * BLOCK, 1, (b"",) * 4),
        RangeDigests(0, 100, 1, (b"",)),
        RangeDigests(0, 2 * BLOCK, 2, (b"",)),
    ],
)
def test_answers_to_another_question_are_refused(answer):
    comparison = first_difference(0, 3 * BLOCK)
    question = next(comparison)
    with pytest.raises(HAPeerError):
        comparison.send((answer_of(DATA, question), answer))


@pytest.mark.parametrize("seed", range(30))
async def test_any_logs_and_any_answers(seed):
    """What it finds is what a look at all bytes finds."""
    chance = random.Random(seed)
    start = chance.randrange(len(DATA))
    end = chance.randrange(start, len(DATA)) + 1
    at = chance.randrange(len(DATA))
    sides = [Log(data, chance.choice([1, 2 * BLOCK, 9 * BLOCK, 1 << 40])) for data in (DATA, changed(at))]
    found = await compare(*sides, start, end, chance.choice([2, 7, 256]))
    if start <= at < end:
        assert found.equal_to <= at < found.differs_to <= end
        assert found.equal_to == max(start, at // BLOCK * BLOCK)
    else:
        assert found == Compared(start, end, None)


@pytest.mark.parametrize("seed", range(20))
async def test_the_first_byte_that_differs_in_a_block(seed):
    chance = random.Random(seed)
    start = chance.choice([0, 7])
    end = chance.choice([start + 1, start + 2, 1000, BLOCK])
    at = chance.randrange(start, end)
    other = DATA[:at] + bytes(byte ^ 1 for byte in DATA[at:])
    left, right = Log(DATA), Log(other)
    assert await answered(first_byte(start, end), asking(left, right)) == at
    assert left.asked <= 17


async def test_a_block_that_is_equal_after_all_has_no_such_byte():
    assert await answered(first_byte(0, BLOCK), asking(Log(DATA), Log(DATA))) is None
