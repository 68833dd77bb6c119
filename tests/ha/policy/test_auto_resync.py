"""What haAutoResync may do, and what it must leave to a person."""

import pytest
from attrs import evolve

from twinlog.ha.compare.finding import Finding
from twinlog.ha.compare.preflight import OwnLog, Verdict
from twinlog.ha.peer import PeerLog
from twinlog.ha.policy.auto_resync import BeginAnew, Cut, Refusal, Resync

OWN = OwnLog(0, 10_000, 16_384)
PEER = PeerLog(is_twinlog=True, min_offset=0, max_offset=9_000, boot_ms=1, is_master=True)


def verdict(kind: str, **more: object) -> Verdict:
    found = Finding(kind, 9_000, "why")
    facts = {"own": OWN, "peer": PEER, "common_offset": 9_000, "compared": "digests", **more}
    return Verdict(kind=kind, finding=found, **facts)


def resync(*, is_on: bool = True, bytes_max: int = 1_000) -> Resync:
    return Resync(is_on, bytes_max)


@pytest.mark.parametrize("kind", ["ahead", "diverged"])
@pytest.mark.parametrize("compared", ["digests", "records"])
def test_what_the_master_lacks_is_cut(kind, compared):
    assert resync().decide(verdict(kind, compared=compared)) == Cut(9_000, "why")


def test_a_slave_that_was_away_begins_anew():
    assert resync().decide(verdict("below min", common_offset=None, compared="nothing")) == BeginAnew("why")


@pytest.mark.parametrize("kind", ["ahead", "diverged", "below min"])
def test_nothing_happens_unless_asked_for(kind):
    assert resync(is_on=False).decide(verdict(kind)) is None


@pytest.mark.parametrize("kind", ["follow", "file size"])
def test_nothing_happens_where_it_is_no_cure(kind):
    assert resync().decide(verdict(kind)) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"peer": evolve(PEER, is_master=False)}, "no master"),
        ({"peer": evolve(PEER, max_offset=0), "common_offset": None}, "the master's log is empty"),
        ({"common_offset": None}, "no byte is known to be common"),
        ({"compared": "nothing"}, "no byte is known to be common"),
        ({"common_offset": 8_999}, "1001 bytes would be cut, haAutoResyncBytesMax is 1000"),
    ],
)
@pytest.mark.parametrize("kind", ["ahead", "diverged"])
def test_what_may_be_the_last_copy_is_left_alone(kind, change, why):
    decided = resync().decide(verdict(kind, **change))
    assert isinstance(decided, Refusal)
    assert why in decided.why


def test_a_rocketmq_master_need_not_say_that_it_is_one():
    assert isinstance(resync().decide(verdict("ahead", peer=evolve(PEER, is_twinlog=False, is_master=None))), Cut)


def test_the_same_repair_is_not_made_twice():
    found = resync()
    assert isinstance(found.decide(verdict("ahead")), Cut)
    assert isinstance(found.decide(verdict("ahead")), Cut)  # It was only asked.
    found.done(verdict("ahead"))
    assert isinstance(found.decide(verdict("ahead")), Refusal)
    assert isinstance(found.decide(verdict("ahead", peer=evolve(PEER, boot_ms=2))), Cut)  # The master crashed again.
