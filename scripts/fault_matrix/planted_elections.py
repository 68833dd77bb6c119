"""Planted faults of a group that elects by itself."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from attrs import evolve

import twinlog.cluster.broker.roles.elector
import twinlog.ha.election.election
import twinlog.ha.election.hearing
from scripts.fault_matrix.planted import planted
from twinlog.cluster.broker.roles.candidate import CandidateSurvey
from twinlog.ha.election.election import Asked, Decision, Elections, Facts
from twinlog.ha.election.hearing import Hearing
from twinlog.store.role_file import GroupRecord

Decide = Callable[[Facts], Decision]


def decides(change: Callable[[Decide, Facts], Decision]) -> AbstractContextManager[object]:
    """The elector goes by `change`, which may ask what was decided before."""
    decide = twinlog.cluster.broker.roles.elector.decide
    return patch.object(twinlog.cluster.broker.roles.elector, "decide", lambda facts: change(decide, facts))


@contextmanager
def nobody_is_asked() -> Iterator[None]:
    """Whoever suspects its master begins at once, and deposes one that answers, too."""

    def at_once(decide: Decide, facts: Facts) -> Decision:
        decision = decide(facts)
        return Decision(kind="run", why=facts.heard) if decision.kind == "ask" else decision

    async def is_gone(self: CandidateSurvey, id: str) -> bool:
        return False

    with decides(at_once), patch.object(CandidateSurvey, "_is_serving", is_gone):
        yield


@planted("nobody begins an election")
def nobody_begins() -> Iterator[None]:
    """As if the mode were off."""
    with decides(lambda decide, facts: Decision(kind="stay", why="it was planted")):
        yield


@planted("silence counts while a member stands still, and nobody is asked")
def standing_still_counts() -> Iterator[None]:
    """Who was away for 5 s has not heard its master for 5 s."""
    with (
        patch.object(twinlog.ha.election.hearing, "LOOK_SECONDS_MAX", math.inf),
        nobody_is_asked(),
    ):
        yield


@planted("it does not matter who hears the master")
def hearing_does_not_matter() -> Iterator[None]:
    """No pre-vote: a slave that is cut off from its master deposes it with the vote of one that is not."""
    objection = twinlog.ha.election.election.objection

    def deaf(facts: Facts, group: GroupRecord, asked: Asked) -> str:
        answers = {id: evolve(answer, hears=False) for id, answer in asked.answers.items()}
        return objection(facts, group, evolve(asked, answers=answers))

    with patch.object(twinlog.ha.election.election, "objection", deaf):
        yield


@planted("silence is measured by the wall clock, and nobody is asked")
def wall_clock_silence() -> Iterator[None]:
    """An hour that a clock leaps over is an hour of silence."""
    look, looked = Hearing.look, {}

    def by_the_wall(self: Hearing, now: float) -> None:
        look(self, now)
        wall = time.time()
        self.silent_seconds += max(wall - looked.get(self, wall) - 1.0, 0.0)
        looked[self] = wall

    with patch.object(Hearing, "look", by_the_wall), nobody_is_asked():
        yield


@planted("only a process that is gone is suspected")
def silence_is_nothing() -> Iterator[None]:
    """Neither a master that says nothing, nor one that says that it does not serve."""

    def left(self: Hearing) -> float:
        return math.inf if self.gone_seconds is None else self.patience.restart - self.gone_seconds

    with patch.object(Hearing, "seconds_left", property(left)):
        yield


@planted("nobody holds off")
def nobody_holds_off() -> Iterator[None]:
    """Each election is the first one."""
    with patch.object(Elections, "held_off_until", property(lambda self: -math.inf)):
        yield
