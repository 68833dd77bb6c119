"""What witnesses say of a master, and what it means for a member whose own vote alone elects."""

import pytest
from attrs import evolve

from twinlog.ha.election.witness import (
    ALL_REGISTERED_MS,
    MasterAnswer,
    WitnessReply,
    WitnessReport,
    judge_registered,
    judge_report,
    objection,
    silent,
)

NS, MASTER, OWN = "10.0.0.9:9876", "10.0.0.1:10911", "10.0.0.2:10911"
SERVES = WitnessReport(
    up_ms=60_000, members=2, master=MASTER, heard_ms=1_234, answer=MasterAnswer(serves=True, epoch=4)
)


@pytest.mark.parametrize(
    ("report", "hears", "why"),
    [
        (SERVES, True, "hears the master 10.0.0.1:10911, which serves in epoch 4"),
        (evolve(SERVES, answer=MasterAnswer(serves=None)), True, "hears the master 10.0.0.1:10911, which answers"),
        (
            evolve(SERVES, answer=MasterAnswer(serves=False, epoch=4, why="its disk is full")),
            False,
            "hears 10.0.0.1:10911, which serves nobody in epoch 4: its disk is full",
        ),
        (
            evolve(SERVES, answer=None, why_silent="no answer within 700 ms"),
            False,
            "does not hear the master 10.0.0.1:10911, last heard 1.2 s ago: no answer within 700 ms",
        ),
        (WitnessReport(up_ms=ALL_REGISTERED_MS, members=1), False, "has no master registered"),
        (
            WitnessReport(up_ms=ALL_REGISTERED_MS - 1, members=1),
            None,
            "was started a moment ago, and no master has registered since",
        ),
        (WitnessReport(up_ms=60_000, members=0), None, "knows no member of the group"),
    ],
)
def test_a_name_server_of_ours_hears_who_answers_and_serves(report, hears, why):
    """A process that hangs is registered, and does not answer; one that was just started knows nothing yet."""
    assert judge_report(NS, report) == WitnessReply(address=NS, hears=hears, why=why)


@pytest.mark.parametrize(
    ("members", "connected_ms", "hears"),
    [
        ({0: MASTER, 1: OWN}, 60_000, True),
        ({0: MASTER}, 0, True),
        ({1: OWN}, 60_000, False),
        ({1: OWN}, ALL_REGISTERED_MS - 1, None),
        ({0: OWN}, 60_000, None),
        ({}, 60_000, None),
    ],
)
def test_a_name_server_of_rocketmq_hears_who_is_registered(members, connected_ms, hears):
    """With one that may have been started a moment ago nobody is elected: the master may not have come back to it yet."""
    assert judge_registered(NS, members, OWN, connected_ms).hears is hears


HEARS, DEAF = judge_report(NS, SERVES), judge_report("10.0.0.8:9876", evolve(SERVES, answer=None))
UNKNOWN = silent("10.0.0.7:9876", "not connected within 1000 ms")


@pytest.mark.parametrize(
    ("replies", "speaks_against"),
    [
        ([DEAF], ""),
        ([DEAF, UNKNOWN], ""),
        ([DEAF, HEARS, UNKNOWN], "10.0.0.9:9876 hears the master 10.0.0.1:10911, which serves in epoch 4"),
        ([UNKNOWN], "no witness knows: 10.0.0.7:9876 gives no answer: not connected within 1000 ms"),
        ([], "there is no witness to ask: set namesrvAddr, or autoFailoverWitness"),
    ],
)
def test_one_witness_has_to_miss_the_master_and_none_may_hear_it(replies, speaks_against):
    """Being alone is not the master's death."""
    assert objection(replies) == speaks_against
