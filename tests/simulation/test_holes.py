"""The simulation notices what it is there for: each fault that is put back into the product is caught within a few seeds.

Only seeds whose plan can bring a fault out are tried. The one that catches it passes without the fault.
"""

import itertools
import re
from collections.abc import Callable
from contextlib import closing

import pytest
from attrs import field, frozen

from tests.simulation.holes import HOLES
from tests.simulation.plan import Plan
from tests.simulation.role_plan import draw
from tests.simulation.run import Job, described

TRIES = 48


@frozen
class Catch:
    """What the violation says, and which plans are worth to be tried: those with one of `kinds`, and of a configuration."""

    words: str
    kinds: tuple[str, ...] = ()
    config: Callable[[Plan], bool] = field(default=lambda plan: True)
    flips: bool = False  # A bit that flipped may be what is noticed first.
    roles: bool = False  # Of a change of roles.
    alone: bool = False  # Of groups that nobody helps.
    etcd: bool = False  # Of groups whose record etcd keeps, whoever helps them.
    first: int = 0  # The search begins there, where a seed is known; a few faults show in one of hundreds.

    def fits(self, plan: Plan) -> bool:
        kinds = {event.kind for event in plan.events}
        is_of_kind = (plan.config.operators, plan.config.roles) == (self.roles, self.roles or self.alone)
        return (
            (plan.config.etcd if self.etcd else is_of_kind and not plan.config.etcd)
            and (not self.kinds or bool(kinds & set(self.kinds)))
            and (self.flips or "flip" not in kinds)
            and self.config(plan)
        )


ACKED = r"is acknowledged for|the confirmed offset is"
POWER = ("power cut", "power cut in call", "power cut of all")


def synchronous(plan: Plan) -> bool:
    return plan.config.synchronous


def three(plan: Plan) -> bool:
    """Both slaves are needed, and one is away while the other one has two connections."""
    kinds = {event.kind for event in plan.events}
    return plan.config.need == 3 and bool(kinds & {"cut", "slow link", "crash", "stop", "wiped", "slow disk"})


def master_loses(plan: Plan) -> bool:
    """The master's log becomes shorter than what slaves have."""
    return not plan.config.sync_flush and any(e.kind in POWER and e.target in ("m", "") for e in plan.events)


def master_loses_acks(plan: Plan) -> bool:
    return master_loses(plan) and plan.config.synchronous


def flushed(plan: Plan) -> bool:
    return plan.config.synchronous and plan.config.ack_flushed


def in_memory(plan: Plan) -> bool:
    """What is acknowledged is on no disk yet."""
    return synchronous(plan) and not plan.config.sync_flush and not plan.config.ack_flushed


def chosen_alone(need: int) -> Callable[[Plan], bool]:
    """Several members are to be master with nobody else in reach."""

    def fits(plan: Plan) -> bool:
        alone = [event for event in plan.events if event.kind == "chosen alone" and event.values["verb"] == "failover"]
        return synchronous(plan) and plan.config.need == need and len(alone) >= 2

    return fits


def begins_overthrown(plan: Plan) -> bool:
    """The slave of the first record is to be master before it is level."""
    return any(event.kind == "overthrown" and event.target == "s1" and event.at < 14 for event in plan.events)


def replaced(plan: Plan) -> bool:
    """An older copy of a slave is asked to become master."""
    asked = any(event.kind == "replaced" and event.values["asked"] for event in plan.events)
    return asked and plan.config.synchronous


def dies_while_it_cuts(plan: Plan) -> bool:
    """A master that was overthrown loses its power at a call to its disk soon after it is back."""
    overthrown = [event.values for event in plan.events if event.kind == "overthrown"]
    return plan.config.synchronous and any(0 < values["calls"] <= 20 and values["power"] for values in overthrown)


def trails(plan: Plan) -> bool:
    return plan.config.synchronous and plan.config.trail_max > 0


def loses_tail(plan: Plan) -> bool:
    """A master's power is cut, and what it lost its slaves have."""
    cuts = any(event.kind in POWER or event.values.get("power") for event in plan.events)
    return cuts and plan.config.synchronous and not plan.config.sync_flush


def always_elects(plan: Plan) -> bool:
    """Operators break off their commands, and the group is to find its way back."""
    switched = any(event.kind == "auto failover" for event in plan.events)
    return plan.config.synchronous and plan.config.auto == "members" and not switched


def loses_answers(plan: Plan) -> bool:
    """Answers of etcd are lost, or its questions are."""
    return any(event.kind in ("etcd loses", "etcd cut", "etcd slow") for event in plan.events)


def unheard(plan: Plan) -> bool:
    """A slave comes back into the in-sync set, and its master does not hear that, and the slave dies."""
    return any(event.kind == "comes back" and event.values["unheard"] for event in plan.events)


def heard(plan: Plan) -> bool:
    """A slave comes back over a slow link."""
    return not unheard(plan)


def two_of_three(plan: Plan) -> bool:
    """A member of the in-sync set may lack what two others hold, and is asked to be master."""
    return plan.config.operators and plan.config.need == 2


CATCHES = {
    "highest ack of all times": Catch(ACKED, POWER, master_loses_acks),
    "anybody's ack counts": Catch(ACKED, ("stranger",), synchronous),
    "a request above the end counts": Catch(ACKED, POWER, master_loses_acks),
    "ack before verification": Catch("nothing that a master ever wrote", ("flip",), flips=True),
    "acks what has not been verified": Catch(ACKED, config=trails),
    "written acknowledged as flushed": Catch(ACKED, config=flushed),
    "one slave counted twice": Catch(ACKED, ("reset of half", "power cut"), three),
    "synchronous is silently asynchronous": Catch(
        ACKED, config=lambda plan: synchronous(plan) and not plan.config.sync_flush
    ),
    "last file only": Catch("its master has all from"),
    "heartbeats for ever": Catch("has stood at", POWER, master_loses),
    "a longer slave streams on": Catch("nothing that a master ever wrote|its bytes are others", POWER, master_loses),
    "wall clock for timeouts": Catch("is called silent|was silent for", ("clock",)),
    "a cut clears nothing": Catch("behind the end of its log", POWER),
    "failed syncs are swallowed": Catch(
        "is acknowledged|says that .* is flushed|the confirmed offset",
        ("sync fails",),
        lambda plan: plan.config.sync_flush or flushed(plan),
    ),
    "names are not flushed": Catch("on its disk is|on the master's disk is|the confirmed offset"),
    "flushed before it is": Catch("on its disk is|is acknowledged|the confirmed offset", config=flushed),
    "dispatch past a hole": Catch("for the record at"),
    "histories are compared by offset only": Catch(
        "was to follow by itself|I4", config=chosen_alone(3), roles=True, first=1236
    ),
    "an epoch's number is used again": Catch("^I[1235]", config=synchronous, roles=True, first=18),
    "a promise is not flushed": Catch("^I2", roles=True),
    "an epoch's beginning is not flushed": Catch("^I1", config=synchronous, roles=True),
    "a cut is not flushed": Catch(
        "^I4|is flushed|should be the file|nothing that a master ever wrote",
        config=dies_while_it_cuts,
        roles=True,
        first=246,
    ),
    "a history is adopted before the cut": Catch("^I4", ("overthrown",), synchronous, roles=True),
    "a lost tail is written again": Catch(
        "^I1: .* lost bytes", POWER, lambda plan: plan.config.synchronous, roles=True
    ),
    "who lost bytes is counted whole": Catch("began without", ("power cut of all",), in_memory, roles=True),
    "what others acknowledged is forgotten": Catch(
        "began without", ("old slave",), begins_overthrown, roles=True, first=377
    ),
    "an unlisted member is counted": Catch(
        "began without|is acknowledged for|^I[45]", ("old slave",), roles=True, first=330
    ),
    "a promise is given before the stream ends": Catch("^I3", ("overthrown",), synchronous, roles=True, first=34),
    "an epoch without a byte is not recorded": Catch("^I4", roles=True),
    "offsets going back": Catch("^I9", roles=True),
    "one promise is enough": Catch("began without|^I5", config=chosen_alone(2), roles=True),
    "a vote counts twice for one id": Catch("began without|^I5", config=chosen_alone(2), roles=True),
    "an old address counts beside the new one": Catch(
        "is acknowledged for|confirmed, but held", ("moves silently",), roles=True, first=542
    ),
    "a moved member is counted whole": Catch("began without", config=replaced, roles=True, first=406),
    "register codes are ignored": Catch("^I8", ("copied",), roles=True),
    "a moved member answers for itself": Catch(
        "is acknowledged for|confirmed, but held", ("cut off and copied",), roles=True, first=71
    ),
    "a master that is called a copy serves": Catch("^I8", ("master copied",), roles=True, first=174),
    "no pre-vote": Catch("^E1", ("quiet cut",), alone=True),
    "election while the stream lives": Catch("^E1", alone=True),
    "a lease that is heard is ignored": Catch("^E1", alone=True),
    "the best candidate does not go first": Catch("^E7", ("master dies", "flaps"), alone=True, first=55),
    "the hold-off is forgotten": Catch("^E3", ("flaps",), alone=True, first=190),
    "a stale answer is used": Catch("^E[1-7]", ("flaps",), alone=True, first=190),
    "the witness is ignored": Catch("^E4", config=lambda plan: plan.config.pair, alone=True, first=35),
    "the record's mode is ignored": Catch("^E5", config=lambda plan: plan.config.auto == "off", roles=True, first=25),
    "an election is forced": Catch("^E6|began without", alone=True),
    "a master that does not serve is waited for": Catch("^E2", config=loses_tail, alone=True, first=440),
    "a lost voter is left alone": Catch("^E2", ("chosen alone",), always_elects, roles=True, first=805),
    "a member of the set that lacks bytes is elected": Catch(
        "began without", config=two_of_three, etcd=True, first=188
    ),
    "a member is in the set before it is waited for": Catch("^S2", ("comes back",), heard, etcd=True, first=140),
    "a member outside of the set is elected": Catch("^S4|began without", ("the last dies",), etcd=True, first=499),
    "a stale set is read": Catch("^S[234]|began without", ("the last dies",), etcd=True, first=364),
    "the set is taken from a slave's own copy": Catch("^S[24]|began without", ("the last dies",), etcd=True, first=499),
    "the last copy goes on without its tail": Catch("began without", ("alone by force",), etcd=True, first=830),
    "an error of etcd is taken for loss": Catch("^S5", config=loses_answers, etcd=True, first=259),
    "a master that was passed writes its version": Catch("^S3", etcd=True, first=1551),
    "a master that nobody can follow is waited for": Catch("^E2", etcd=True, first=1293),
    "a master that moved is left where it was": Catch("^E2", ("swapped",), roles=True, first=1145),
    "what arrived ends without a mark": Catch("nothing that a master ever wrote", etcd=True, first=1687),
}
LONG = {  # For each change two of groups with etcd are enough, and those of the others that are found soon.
    "an epoch's number is used again",
    "a promise is given before the stream ends",
    "who lost bytes is counted whole",
    "a member of the set that lacks bytes is elected",
    "a member is in the set before it is waited for",
    "the set is taken from a slave's own copy",
    "the last copy goes on without its tail",
    "an error of etcd is taken for loss",
    "a master that nobody can follow is waited for",
    "a master that moved is left where it was",
}
# No seed is known for these since the plans changed last: tests/cluster/broker/roles/test_etcd_faults.py tells the story of each.
SOUGHT = {
    "a shrink is released before it is written": Catch("^S1", config=loses_answers, etcd=True, first=80),
    "an unknown swap is taken for done": Catch("^S[14]", ("leaves",), etcd=True, first=471),
    "an unknown swap is taken for failed": Catch("^S[123]", ("comes back",), unheard, etcd=True, first=16),
}


def test_each_fault_has_its_catch():
    assert {*CATCHES, *SOUGHT} == set(HOLES)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("hole", [pytest.param(hole, marks=[pytest.mark.long] * (hole in LONG)) for hole in CATCHES])
def test_a_fault_is_caught_and_its_seed_passes_without(pool, hole):
    catch, caught, others = CATCHES[hole], None, []
    seeds = itertools.islice((seed for seed in itertools.count(catch.first) if catch.fits(draw(seed))), TRIES)
    with closing(pool.run(Job(seed, hole) for seed in seeds)) as outcomes:
        for outcome in outcomes:
            if re.search(catch.words, outcome["violation"]):
                caught = outcome
                break
            others.append(outcome["violation"])
    assert caught is not None, others
    (without,) = pool.run([Job(caught["seed"])])
    assert not without["violation"], described(without)
