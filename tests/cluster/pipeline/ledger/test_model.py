"""Whatever happens to logs between two runs, a ledger claims nothing that was not compared, and comes to claim what is equal."""

import pytest

from tests.cluster.pipeline.ledger_model import CELL, HOUR, WEEK, World
from twinlog.cluster.pipeline.ledger import outcome
from twinlog.cluster.pipeline.ledger import plan as planning
from twinlog.cluster.pipeline.ledger.standing import standing_of
from twinlog.cluster.pipeline.ledger.values import Reason, size_of
from twinlog.store.integrity.digest import BLOCK_SIZE


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(outcome, "MARK_EVERY", 8 * BLOCK_SIZE)
    monkeypatch.setattr(planning, "PROBE", 2 * BLOCK_SIZE)


@pytest.mark.parametrize("seed", range(40))
def test_a_ledger_claims_only_what_was_compared(seed: int):
    world = World(seed, has_history=seed % 2 == 0)
    for _ in range(25):
        for _ in range(world.chance.randrange(8)):
            world.happen()
        is_whole = world.chance.random() < 0.8
        world.audit(is_whole=is_whole)
        assert list(world.problems()) == []
        if is_whole:
            assert list(world.unclaimed()) == []
    world.heal()
    world.now_ms += WEEK  # All of it is proved again.
    for _ in range(3):
        world.audit()
        world.now_ms += HOUR
    assert list(world.problems()) == []
    assert (world.state.faults, [seen for seen in world.state.findings if seen.finding.offset is not None]) == ((), [])
    standing = standing_of(world.state)
    assert (standing.verdict, standing.open_findings) == ("equal", 0)
    assert standing.proved_to == (standing.log_end if standing.proved_from is not None else None)


def test_no_proof_grows_older_than_a_full_pass():
    """Whatever comes, and at any interval: each run proves its share of the oldest again."""
    world = World(1, has_history=True)
    oldest, shares = 0, []
    for number in range(400):
        world.append(world.chance.randrange(3))
        for copy in world.members:
            world.follow(copy, 1000)
        result = world.audit()
        step = world.chance.choice((HOUR, 5 * HOUR))
        found = standing_of(world.state)
        oldest = max(oldest, world.state.started_ms - (found.oldest_proof_ms or 0))
        shares.append(size_of(each for each in result.planned if each.reason is Reason.AGAIN) / (found.log_end or 1))
        world.now_ms += step
        assert len(world.state.proofs) < 250, number
    assert oldest <= WEEK + 5 * HOUR + WEEK // 64
    assert max(shares[50:]) < 0.2  # Never all of it at once.


def test_a_cut_log_without_history_is_noticed_by_its_last_proved_block():
    """What was written again is compared, and what lies below is not."""
    world = World(2, has_history=False)
    world.append(40)
    for copy in world.members:
        world.follow(copy, 1000)
    world.audit()
    for copy in world.members:
        copy.cut(30)
    world.append(25)
    for copy in world.members:
        world.follow(copy, 1000)
    result = world.audit()
    start = next(each.start for each in result.planned if each.reason is Reason.NEW)
    assert start == 16 * CELL  # The next mark below the cut.
    assert {each.member for each in result.lost} == {copy.name for copy in world.members}
    assert "last proved block" in result.lost[0].why


def test_a_member_that_is_away_keeps_what_is_proved_of_it():
    world = World(4, has_history=True)
    world.append(10)
    for copy in world.members:
        world.follow(copy, 1000)
    world.audit()
    world.members[2].is_away = True
    world.append(4)
    world.follow(world.members[1], 1000)
    world.now_ms += HOUR
    result = world.audit()
    found = standing_of(world.state)
    assert (found.proved_to, found.verdict) == (10 * CELL, "incomplete")
    assert [each.is_away for each in found.members] == [False, False, True]
    assert {each.equal for each in result.compared.pieces} == {("m0", "m1")}
    world.members[2].is_away = False
    world.follow(world.members[2], 1000)
    result = world.audit()
    assert size_of(each for each in result.planned if each.reason is Reason.NEW) == 4 * CELL
    assert standing_of(world.state).proved_to == 14 * CELL


def test_a_member_that_came_back_empty_has_no_proof():
    world = World(5, has_history=True)
    world.append(10)
    for copy in world.members:
        world.follow(copy, 1000)
    world.audit()
    world.members[2] = world.new("m2")
    result = world.audit()
    assert {each.why for each in result.lost} == {"another store is in its place"}
    assert standing_of(world.state).proved_to is None
    assert {proof.members for proof in world.state.proofs} == {("m0", "m1")}


def test_a_finding_from_first_seen_to_repaired():
    world = World(6, has_history=True)
    world.append(10)
    for copy in world.members:
        world.follow(copy, 1000)
    bad = world.members[2]
    bad.disk[3] = -1
    for state in ("new", "seen"):
        world.audit()
        (seen,) = world.state.findings
        assert (seen.state, seen.finding.member, seen.finding.offset, seen.first_run) == (state, "m2", 3 * CELL, 1)
    assert standing_of(world.state).verdict == "divergent"
    bad.is_away = True
    world.audit()
    assert [seen.state for seen in world.state.findings] == ["unchecked"]
    bad.is_away = False
    bad.disk[3] = bad.written[3]
    (closed,) = world.audit().closed
    assert (closed.state, closed.first_run, closed.last_run, closed.closed_ms) == ("repaired", 1, 2, world.now_ms - 1)
    assert standing_of(world.state).verdict == "equal"
