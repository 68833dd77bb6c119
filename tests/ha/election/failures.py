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
ETCD = evolve(PAIR, auto_failover="etcd", in_sync=("a", "b"))
ETCD_THREE = evolve(THREE, auto_failover="etcd", in_sync=("a", "b", "c"))
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


def by_etcd(*answers: VoteReply, kept: GroupRecord = ETCD, announced: str = "", away: str = "", **more) -> Facts:
    """The same in a group whose record etcd keeps. `announced`: who told etcd lately that it serves; `away`: why it is silent."""
    asked = Asked(
        at=NOW - 0.1,
        answers={each.address: each for each in answers},
        group=kept,
        announced=announced,
        why_no_record=away,
    )
    return facts(record=kept, **({"asked": asked} | more))


# Of the second table, in which two members are a pair unless the line says otherwise.
FAILURES_WITH_ETCD = {
    "the master of a pair dies": by_etcd(B, announced="a", is_gone=True),
    "the master of a pair hangs, or its machine is gone": by_etcd(B),
    "the slave of a pair dies, and the master stays": by_etcd(B, suspected_at=None, seconds_left=4.9),
    "the slave of a pair dies, later the master": by_etcd(B, kept=evolve(ETCD, in_sync=("a",))),
    "master and slave of a pair are cut off from each other": by_etcd(B, announced="a"),
    "the slave of a pair is cut off from all": by_etcd(B, away="no connection"),
    "etcd is away, and nothing else": by_etcd(B, away="no connection", suspected_at=None, seconds_left=4.9),
    "etcd is away, and the master dies": by_etcd(B, away="no connection"),
    "etcd lost its data, and the master dies": by_etcd(B, away="etcd holds no record of this group"),
    "of three the master is cut off from both slaves, and all see etcd": by_etcd(B, C, kept=ETCD_THREE, announced="a"),
    "of three a slave dies, then the master": by_etcd(B, kept=evolve(ETCD_THREE, in_sync=("a", "b"))),
    "of three the set has lost one slave, which is the one that is left": by_etcd(
        B, kept=evolve(ETCD_THREE, in_sync=("a", "c"))
    ),
    "the only member of the set is back, and another one's log is longer": by_etcd(
        B, answer("a", 160, hears=False), kept=evolve(ETCD, in_sync=("b",))
    ),
}


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
