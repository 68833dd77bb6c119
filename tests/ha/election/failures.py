"""Failures of docs/operating/automatic-failover.md as facts of the slave b, whose master is a; c is the other slave of three."""

import math

from attrs import evolve

from tests.ha.election.votes_given import answer, group
from twinlog.ha.election.election import Asked, Facts
from twinlog.ha.election.voter import VoteReply
from twinlog.ha.election.witness import WitnessReply
from twinlog.store.role_file import GroupRecord

NOW = 1000.0
THREE = evolve(group(3, 2), auto_failover="members")
PAIR = evolve(group(2, 2), auto_failover="members")
NOT_HEARD = WitnessReply(address="n:9876", hears=False, why="has no master registered")
UNKNOWN = WitnessReply(address="n:9876", hears=None, why="gives no answer")
B, C = answer("b", 150, hears=False), answer("c", 150, hears=False)


def facts(*answers: VoteReply, record: GroupRecord = THREE, witness: WitnessReply | None = None, **more) -> Facts:
    """A master that is suspected, and what the others answer."""
    witnesses = (witness,) if witness is not None else ()
    known = {
        "now": NOW,
        "own": "b",
        "master": "a",
        "group": record,
        "is_serving": False,
        "paused": "",
        "cannot_store": "",
        "seconds_left": 0.0,
        "heard": "a was not heard for 5.1 s",
        "asked": Asked(at=NOW - 0.1, answers={each.address: each for each in answers}, witnesses=witnesses),
        "suspected_at": NOW - 0.9,
        "held_off_until": -math.inf,
        "jitter": 0.5,
    }
    return Facts(**(known | more))


FAILURES = {
    "the master's process ends": facts(B, C, heard="a was not heard for 0.6 s, and its process is gone"),
    "the master's process ends, and is started again in time": facts(B, C, suspected_at=None, seconds_left=4.9),
    "the master hangs": facts(B, C),
    "the master is cut off from all": facts(B, C),
    "one slave is cut off from the master, the other is not": facts(B, evolve(C, hears=True)),
    "a slave is cut off from all": facts(B),
    "a slave dies": facts(B, suspected_at=None, seconds_left=4.9),
    "a slave dies, then the master": facts(B),
    "the master's disk is full, fails or hangs": facts(answer("a", 150, hears=False, can_store=False), B, C),
    "the disk of the slave that would be next is full": facts(B, C, cannot_store="its disk is full"),
    "there were more than three elections in ten minutes": facts(B, C, held_off_until=NOW + 10),
    "the group is paused": facts(B, C, paused="the group is paused"),
    "members disagree on the mode": facts(B, evolve(C, group=evolve(THREE, auto_failover="off"))),
    "the master of an ASYNC_MASTER group dies": facts(B, C, record=evolve(THREE, acks_needed=1)),
    "the master of a pair dies": facts(B, record=PAIR, witness=NOT_HEARD),
    "the slave of a pair is cut off": facts(B, record=PAIR, witness=UNKNOWN),
}
