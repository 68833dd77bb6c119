"""The decision itself, over logs in memory: its verdict is that of a naive comparison, after few questions."""

import random
from collections.abc import Callable
from itertools import pairwise
from math import log2

import pytest
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.ha.compare import preflight as module
from twinlog.ha.compare.preflight import (
    Bounds,
    Digests,
    Ends,
    FirstRecord,
    LastRecord,
    OwnLog,
    Proven,
    Question,
    Record,
    Verdict,
    preflight,
)
from twinlog.ha.errors import HAConnectionLostError, HAPeerError
from twinlog.ha.peer import PeerLog
from twinlog.store.integrity.digest import RangeDigests, digests_of, grouped

FILE_SIZE = 150_000  # Blocks do not end where files do.


@frozen
class MemoryLog:
    """Records, as positions and bytes, with zeros between; bytes `min_offset` to `max_offset` are there."""

    records: dict[int, bytes]
    min_offset: int
    max_offset: int

    def data(self, start: int, end: int) -> bytes:
        found = bytearray(end - start)
        for at, record in self.records.items():
            low, high = max(at, start), min(at + len(record), end)
            if low < high:
                found[low - start : high - start] = record[low - at : high - at]
        return bytes(found)

    def digests(self, start: int, end: int, blocks_per_digest: int) -> RangeDigests:
        assert self.min_offset <= start < end <= self.max_offset
        return grouped(digests_of(self.data(start, end), start), start, end, blocks_per_digest)

    def starts(self, start: int, end: int) -> list[int]:
        return [at for at in self.records if start <= at < end and at >= self.min_offset]

    def from_file(self, number: int) -> "MemoryLog":
        """Without its first files."""
        return MemoryLog(
            {at: record for at, record in self.records.items() if at >= number * FILE_SIZE},
            number * FILE_SIZE,
            self.max_offset,
        )

    def until(self, end: int) -> "MemoryLog":
        return MemoryLog({at: record for at, record in self.records.items() if at < end}, self.min_offset, end)


def grow(records: dict[int, bytes], at: int, end: int, seed: int, size_max: int = 40_000) -> MemoryLog:
    """Append random records up to `end`, about, with a blank at the end of each file."""
    source, records = random.Random(seed), dict(records)
    while at < end:
        size = source.randrange(91, size_max)
        if at % FILE_SIZE + size > FILE_SIZE - 8:
            at += FILE_SIZE - at % FILE_SIZE
            continue
        records[at] = source.randbytes(size)
        at += size
    return MemoryLog(records, 0, at)


@define
class Members:
    """Answers for both. `before` may change the peer between two questions."""

    own: MemoryLog
    peer: MemoryLog
    is_twinlog: bool = True
    boot_ms: int = 1
    digests_max: int = 100
    before: Callable[["Members", Question], None] = lambda _members, _question: None
    questions: list[Question] = field(factory=list)

    def ask(self, proven: Proven | None = None) -> Verdict:
        asking = preflight(proven)
        question = next(asking)
        while True:
            self.questions.append(question)
            self.before(self, question)
            try:
                answer = self.answer(question)
            except HAPeerError as error:
                question = asking.throw(error)
                continue
            try:
                question = asking.send(answer)
            except StopIteration as end:
                return end.value

    def answer(self, question: Question) -> object:
        own, peer = self.own, self.peer
        match question:
            case Ends():
                peer_log = PeerLog(
                    is_twinlog=self.is_twinlog,
                    min_offset=peer.min_offset,
                    max_offset=peer.max_offset,
                    boot_ms=self.boot_ms,
                    file_size=FILE_SIZE if self.is_twinlog else None,
                )
                return OwnLog(own.min_offset, own.max_offset, FILE_SIZE), peer_log
            case Digests(start, end, blocks_per_digest):
                if not peer.min_offset <= start < end <= peer.max_offset:
                    raise HAPeerError("these bytes are not in the log")
                size = blocks_per_digest * 65_536
                end = min(end, start - start % size + self.digests_max * size)
                return own.digests(start, end, blocks_per_digest), peer.digests(start, end, blocks_per_digest)
            case Record(at):
                return own.records.get(at), peer.records.get(at)
            case LastRecord(start, end):
                return max(own.starts(start, end), default=None)
            case FirstRecord(start, end):
                return min(own.starts(start, end), default=None)
            case Bounds(start, end):
                return bounds(own, start, end)


def bounds(log: MemoryLog, start: int, end: int) -> list[int]:
    places = sorted({place for at, record in log.records.items() for place in (at, at + len(record))})
    first = max((place for place in places if log.min_offset <= place <= start), default=start)
    return [first, *(place for place in places if start < place < end)]


def naive(own: MemoryLog, peer: MemoryLog, *, by_records: bool) -> tuple[str, int | None]:
    """The kind of the verdict, and where the first own record begins that differs."""
    if not own.max_offset:
        return "follow", None
    if own.max_offset < peer.min_offset:
        return "below min", None
    start, end = max(own.min_offset, peer.min_offset), min(own.max_offset, peer.max_offset)
    if start < end and by_records:
        for at in own.starts(start, end):
            if own.records[at] != peer.records.get(at):
                return "diverged", at
    elif start < end and (left := own.data(start, end)) != (right := peer.data(start, end)):
        first = start + next(at for at, (mine, its) in enumerate(zip(left, right, strict=True)) if mine != its)
        return "diverged", bounds(own, first, first)[0]
    return ("ahead" if own.max_offset > peer.max_offset else "follow"), None


@pytest.fixture(autouse=True, scope="module")
def small_groups() -> object:
    """Of four blocks, so that a log of some megabytes has many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GROUP_BLOCKS", 4)
        yield


@settings(max_examples=300, deadline=None)
@given(
    common=st.integers(0, 900_000),
    own_more=st.sampled_from([0, 1, 5_000, 70_000, 400_000]),
    peer_more=st.sampled_from([0, 1, 5_000, 70_000, 400_000]),
    own_file=st.integers(0, 3),
    peer_file=st.integers(0, 3),
    size_max=st.sampled_from([200, 3_000, 40_000, 140_000]),
    is_twinlog=st.booleans(),
    digests_max=st.sampled_from([1, 3, 100]),
    seed=st.integers(0, 1 << 16),
)
def test_the_verdict_is_that_of_a_naive_comparison(
    common, own_more, peer_more, own_file, peer_file, size_max, is_twinlog, digests_max, seed
):
    """Two logs with a common beginning, of which each goes on by itself; the oldest files may be gone on either."""
    shared = grow({}, 0, common, seed, size_max)
    own, peer = shared, shared
    if own_more:
        own = grow(shared.records, shared.max_offset, shared.max_offset + own_more, seed + 1, size_max)
    if peer_more:
        peer = grow(shared.records, shared.max_offset, shared.max_offset + peer_more, seed + 2, size_max)
    own = own.from_file(min(own_file, own.max_offset // FILE_SIZE))
    peer = peer.from_file(min(peer_file, peer.max_offset // FILE_SIZE))
    members = Members(own, peer, is_twinlog, digests_max=digests_max)
    verdict = members.ask()
    kind, offset = naive(own, peer, by_records=not is_twinlog)
    assert verdict.kind == kind
    if kind == "diverged":
        assert verdict.finding is not None
        assert verdict.finding.offset == offset
        assert verdict.common_offset == (offset if offset > max(own.min_offset, peer.min_offset) else None)
    if digests_max == 100:
        assert len(members.questions) < 12 + 6 * log2(2 + own.max_offset / 91)


def test_the_number_of_questions_grows_with_the_logarithm_only():
    counts = []
    for size in (200_000, 2_000_000, 20_000_000):
        shared = grow({}, 0, size // 3, 1, 3_000)
        own = grow(shared.records, shared.max_offset, size, 2, 3_000)
        peer = grow(shared.records, shared.max_offset, size, 3, 3_000)
        for is_twinlog in (True, False):
            members = Members(own, peer, is_twinlog)
            assert members.ask().kind == "diverged"
            counts.append(len(members.questions))
    assert max(counts) < 60
    assert all(later - earlier < 20 for earlier, later in pairwise(sorted(counts)))


@pytest.mark.parametrize("is_twinlog", [True, False])
@pytest.mark.parametrize("at", [0, 1, 5, 9, -1])
def test_a_single_record_that_differs_in_place(is_twinlog, at):
    """Digests find it wherever it lies; samples of a RocketMQ master's log see the first and the last one."""
    own = grow({}, 0, 300_000, 7)
    place = sorted(own.records)[at]
    changed = own.records[place]
    peer = MemoryLog({**own.records, place: changed[:50] + b"other" + changed[55:]}, 0, own.max_offset)
    verdict = Members(own, peer, is_twinlog).ask()
    if is_twinlog or at in (0, -1):
        assert verdict.kind == "diverged"
        assert verdict.finding.offset == place
    assert verdict.compared == ("digests" if is_twinlog else "records")


@pytest.mark.parametrize("is_twinlog", [True, False])
@pytest.mark.parametrize("whose", ["own", "peer"])
@pytest.mark.parametrize("at", [0, 3, -2])
def test_a_record_that_one_of_them_lost_on_its_disk(is_twinlog, whose, at):
    """That is damage, not another history: what follows is equal. Samples need not see it."""
    whole = grow({}, 0, 300_000, 7)
    place = sorted(whole.records)[at]
    lost = MemoryLog({each: record for each, record in whole.records.items() if each != place}, 0, whole.max_offset)
    own, peer = (lost, whole) if whose == "own" else (whole, lost)
    verdict = Members(own, grow(peer.records, peer.max_offset, 400_000, 8), is_twinlog).ask()
    if is_twinlog:
        assert verdict.kind == ("follow" if whose == "own" else "damaged")
        assert (verdict.finding.kind, verdict.proven_offset) == ("damaged", None)
        assert verdict.finding.offset <= place
        assert (whose == "own") == ("this slave's log is damaged" in verdict.finding.text)
    else:
        assert verdict.kind in ("follow", "damaged")


def test_the_last_record_lost_by_the_master_is_a_difference():
    """Nothing behind it says that it is damage."""
    own = grow({}, 0, 300_000, 7)
    last = max(own.records)
    peer = MemoryLog({at: record for at, record in own.records.items() if at != last}, 0, own.max_offset)
    verdict = Members(own, peer).ask()
    assert (verdict.kind, verdict.common_offset) == ("diverged", last)


@pytest.mark.parametrize("is_twinlog", [True, False])
@pytest.mark.parametrize("number", [1, 7, 8, 9, 15, 16, 17, 39])
def test_records_that_begin_where_a_block_or_a_file_does(is_twinlog, number):
    """Eight of them to a block."""
    own = MemoryLog({at: random.Random(at).randbytes(8192) for at in range(0, 40 * 8192, 8192)}, 0, 40 * 8192)
    peer = MemoryLog(
        {at: record if at < number * 8192 else record[::-1] for at, record in own.records.items()}, 0, 36 * 8192
    )
    verdict = Members(own, peer, is_twinlog).ask()
    expected = ("diverged", number * 8192) if number < 36 else ("ahead", 36 * 8192)
    assert (verdict.kind, verdict.common_offset) == expected


def test_what_differs_behind_a_blank_is_found_too():
    """No message is another one, but the copies are to be equal in every byte: a cut is due where the gap begins."""
    own = grow({}, 0, 400_000, 7)
    gap = max(at + len(record) for at, record in own.records.items() if at < FILE_SIZE)
    peer = MemoryLog({**own.records, gap + 20: b"rubbish"}, 0, own.max_offset)
    verdict = Members(own, peer).ask()
    assert (verdict.kind, verdict.common_offset) == ("diverged", gap)


def cut_down(members: Members, question: Question) -> None:
    """The master restarts with a shorter log, and other records are put there."""
    if members.boot_ms == 1 and isinstance(question, Digests | Record):
        members.boot_ms = 2
        members.peer = grow(members.peer.until(100_000).records, 150_000, 800_000, 99)


def drop_first_file(members: Members, question: Question) -> None:
    if isinstance(question, Digests | Record) and not members.peer.min_offset:
        members.peer = members.peer.from_file(1)


def append(members: Members, question: Question) -> None:
    peer = members.peer
    members.peer = grow(peer.records, peer.max_offset, peer.max_offset + 1, len(members.questions))


@pytest.mark.parametrize("is_twinlog", [True, False])
@pytest.mark.parametrize(("race", "kind"), [(cut_down, "diverged"), (drop_first_file, "follow"), (append, "follow")])
def test_a_master_that_changes_meanwhile(is_twinlog, race, kind):
    own = grow({}, 0, 500_000, 7)
    members = Members(own, grow(own.records, own.max_offset, 600_000, 8), is_twinlog, before=race)
    verdict = members.ask()
    assert verdict.kind == kind
    assert (verdict.kind, verdict.finding and verdict.finding.offset) == naive(
        own, members.peer, by_records=not is_twinlog
    )


def test_a_master_that_never_stays_is_not_judged():
    def restart(members: Members, question: Question) -> None:
        members.boot_ms += 1

    own = grow({}, 0, 500_000, 7)
    with pytest.raises(HAConnectionLostError, match="kept moving"):
        Members(own, own, before=restart).ask()


def test_a_master_that_lost_bytes_and_grows_without_pause_is_found_out():
    """It must not look unsettled until it has grown past this slave's log."""
    shared = grow({}, 0, 300_000, 7)
    own = grow(shared.records, shared.max_offset, 900_000, 8)
    assert Members(own, shared, before=append).ask().kind in ("ahead", "diverged")


def test_a_peer_that_stops_to_answer():
    def gone(members: Members, question: Question) -> None:
        if isinstance(question, Digests):
            raise HAPeerError("gone")

    own = grow({}, 0, 500_000, 7)
    members = Members(own, own)
    asking = preflight()
    assert isinstance(next(asking), Ends)
    assert isinstance(asking.send(members.answer(Ends())), Digests)
    assert isinstance(asking.throw(HAPeerError("gone")), Ends)
    with pytest.raises(HAPeerError, match="gone"):
        asking.send(members.answer(Ends()))


def test_what_was_proven_is_not_compared_again():
    own = grow({}, 0, 500_000, 7)
    members = Members(own, grow(own.records, own.max_offset, 900_000, 8))
    proven = Proven(1, own.max_offset)
    assert members.ask(proven).proven_offset == own.max_offset
    assert not [question for question in members.questions if isinstance(question, Digests)]
    members = Members(own, members.peer, boot_ms=2)  # Started anew: nothing is known of it.
    assert members.ask(proven).proven_offset == own.max_offset
    assert [question.start for question in members.questions if isinstance(question, Digests)] == [0]


@pytest.mark.parametrize(
    ("own", "peer", "kind", "words"),
    [
        ((0, 0), (0, 300), "follow", None),
        ((0, 0), (0, 0), "follow", None),
        ((0, 300), (0, 0), "ahead", "has it lost its disk"),
        ((1, 300), (2, 600), "follow", None),
        ((0, 100), (1, 600), "below min", "deleted there"),
        ((2, 600), (0, 200), "ahead", "no byte in common"),
        ((2, 600), (0, 600), "follow", "lacks the first 300000 bytes of the master's history"),
    ],
)
def test_lengths(own, peer, kind, words):
    """In files, or thousands of bytes: (first file, end)."""
    whole = grow({}, 0, 600_000, 7)

    def part(first: int, end: int) -> MemoryLog:
        ends = [0, *(at + len(record) for at, record in whole.records.items())]
        return whole.from_file(first).until(min(ends, key=lambda at: abs(at - end * 1000)))

    verdict = Members(part(*own), part(*peer)).ask()
    assert verdict.kind == kind
    assert (words is None) == (verdict.finding is None)
    assert words is None or words in verdict.finding.text


def test_files_of_another_size():
    own = grow({}, 0, 500_000, 7)
    members = Members(own, own)
    asking = preflight()
    next(asking)
    mine, its = members.answer(Ends())
    asking.send((OwnLog(mine.min_offset, mine.max_offset, 1 << 30), its))
    with pytest.raises(StopIteration) as end:
        asking.send((OwnLog(mine.min_offset, mine.max_offset, 1 << 30), its))
    assert end.value.value.kind == "file size"
    assert "mappedFileSizeCommitLog is 1073741824 here and 150000 on the master" in end.value.value.finding.text
