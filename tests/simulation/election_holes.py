"""Faults of automatic failover to be put into the product, in memory. The checks of election_checks.py catch them.

Two are not here, as other rules keep them from doing harm in any seed: silence that counts while a process stands still (the
others, who are asked, hear the master), and a back-off that is forgotten (who was asked a moment ago and spoke for an election
votes for it). Tests of ha/election/hearing.py and election.py catch these.
"""

import math
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from attrs import evolve

import twinlog.cluster.broker.roles.elector
import twinlog.ha.election.election
from tests.simulation.holes import hole
from twinlog.cluster.broker.roles.elector import Elector
from twinlog.cluster.broker.roles.joining import JoinRequests
from twinlog.cluster.broker.roles.voter import Voter
from twinlog.ha.election.election import Elections
from twinlog.ha.election.hearing import Hearing
from twinlog.ha.election.voter import LeaseRequest

election, elector = twinlog.ha.election.election, twinlog.cluster.broker.roles.elector


@hole("no pre-vote")
def no_pre_vote() -> Iterator[None]:
    """Whoever does not hear the master begins, whatever others hear."""
    with_hearing = Voter._with_hearing

    def deaf(self: Voter, answer: Any, ask: Any) -> Any:
        return evolve(with_hearing(self, answer, ask), hears=False)

    with patch.object(Voter, "_with_hearing", deaf):
        yield


@hole("election while the stream lives")
def election_while_heard() -> Iterator[None]:
    """Nothing that is heard counts, only the time."""

    def nothing(self: Hearing, at: float) -> None:
        self.why_given_up = ""

    with patch.object(Hearing, "heard", nothing), patch.object(Hearing, "serves", nothing):
        yield


@hole("a lease that is heard is ignored")
def lease_ignored() -> Iterator[None]:
    """Only bytes of the stream are heard: where nobody sends there is a heartbeat each 5 s."""

    def takes_back(self: Hearing, at: float) -> None:
        self.why_given_up = ""

    with patch.object(Hearing, "serves", takes_back):
        yield


@hole("the best candidate does not go first")
def no_ranks() -> Iterator[None]:
    """No ranks, no jitter: all begin together."""
    with patch.object(election, "_rank", lambda facts, found: 0), patch.object(election, "JITTER_SECONDS", 0.0):
        yield


@hole("the hold-off is forgotten")
def no_hold_off() -> Iterator[None]:
    """A group may flap as it likes."""
    with patch.object(Elections, "held_off_until", property(lambda self: -math.inf)):
        yield


@hole("a stale answer is used")
def stale_answer() -> Iterator[None]:
    """Who was asked once need not be asked again."""
    decide = election.decide

    def lazily(facts: Any) -> Any:
        asked = facts.asked
        return decide(evolve(facts, asked=evolve(asked, at=facts.now)) if asked is not None else facts)

    with patch.object(elector, "decide", lazily):
        yield


@hole("the witness is ignored")
def no_witness() -> Iterator[None]:
    """A pair's slave takes being alone for its master's death."""
    with patch.object(election, "_alone", lambda facts, group, asked: ""):
        yield


@hole("the record's mode is ignored")
def mode_ignored() -> Iterator[None]:
    """Members elect whatever was decided for the group."""
    with (
        patch.object(election, "mode_of", lambda group: "members"),
        patch.object(elector, "mode_of", lambda group: "members"),
    ):
        yield


@hole("an election is forced")
def forced() -> Iterator[None]:
    """Any loss is accepted for a new master."""
    with (
        patch.object(election, "accepted_loss", lambda group, loss_max: "unknown"),
        patch.object(elector, "accepted_loss", lambda group, loss_max: "unknown"),
    ):
        yield


@hole("a master that does not serve is waited for")
def serves_ignored() -> Iterator[None]:
    """Whoever asks for its lease is heard, although it says that it cannot go on."""
    note = Voter._note_master

    def trusting(self: Voter, ask: LeaseRequest) -> None:
        note(self, evolve(ask, serves=True))

    with patch.object(Voter, "_note_master", trusting):
        yield


@hole("a lost voter is left alone")
def never_anew() -> Iterator[None]:
    """A master goes on in its epoch, and a voter that has promised another one follows nobody."""
    with patch.object(Elector, "_look_for_promises", lambda self, now: None):
        yield


@hole("a master that moved is left where it was")
def rival_not_found() -> Iterator[None]:
    """Only whoever follows tells its new address: of two masters of one number neither finds the other."""
    with patch.object(JoinRequests, "rival", lambda self, ask: None):
        yield


@hole("a master that nobody can follow is waited for")
def stuck_waited_for() -> Iterator[None]:
    """A master that serves is left alone, also one whose number its voters promised to another winner, which is gone."""
    with patch.object(election, "_is_stuck", lambda master, own: False):
        yield
