"""When a member begins a failover by itself: the table of situations, and what must hold in all of them."""

import math
from itertools import product

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.ha.election.election import (
    ANSWERS_FRESH_SECONDS,
    BACK_OFF_SECONDS_MAX,
    FLAP_WINDOW_SECONDS,
    FLAPS_FREE,
    HOLD_OFF_SECONDS,
    HOLD_OFF_SECONDS_MAX,
    JITTER_SECONDS,
    RANK_SECONDS,
    Asked,
    Elections,
    Facts,
    accepted_loss,
    back_off,
    decide,
    mode_of,
    standings,
)
from twinlog.ha.election.epochs import with_entry
from twinlog.ha.election.voter import VoteReply
from twinlog.ha.election.witness import WitnessReply
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId
from twinlog.store.role_file import GroupMember, GroupRecord, Pause

NOW = 1000.0
SECOND = with_entry((FIRST,), EpochEntry(epoch=2, winner="a", start_offset=100))
NEWER = with_entry(SECOND, EpochEntry(epoch=3, winner="c", start_offset=150))
NOBODY = WitnessReply(address="n:9876", hears=False, why="has no master registered")
SOMEBODY = WitnessReply(address="n:9876", hears=True, why="hears the master a, which serves")
UNKNOWING = WitnessReply(address="n:9876", hears=None, why="knows no member of the group")


def record(size: int = 3, acks: int = 2, *, not_voting: str = "", **more: object) -> GroupRecord:
    """a is master, the others are its slaves."""
    members = tuple(
        GroupMember(address=name, ha_address=name, broker_id=number, name=name, votes=name not in not_voting)
        for number, name in enumerate("abcd"[:size])
    )
    said = {"master_role": BrokerRole.SYNC_MASTER, "loss_free_from": 100, "auto_failover": "members"} | more
    return GroupRecord(version=2, members=members, acks_needed=acks, **said)


GROUP = record()
PAIR = record(2, 2)


def answer(address: str, max_offset: int = 150, entries: tuple[EpochEntry, ...] = SECOND, **more: object) -> VoteReply:
    said = {"granted": True, "why": "", "whole": True, "is_master": False, "group": None, "hears": False} | more
    return VoteReply(
        promised=EpochId(3, "b"), entries=entries, max_offset=max_offset, min_offset=0, address=address, **said
    )


def asked(*answers: VoteReply, at: float = NOW - 0.1, witnesses: tuple[WitnessReply, ...] = ()) -> Asked:
    return Asked(at=at, answers={each.address: each for each in answers}, witnesses=witnesses)


def facts(group: GroupRecord | None = GROUP, **more: object) -> Facts:
    """b's: a is dead, and c answers that it does not hear it either."""
    known = {
        "now": NOW,
        "own": "b",
        "master": "a",
        "group": group,
        "is_serving": False,
        "paused": "",
        "cannot_store": "",
        "seconds_left": 0.0,
        "heard": "a was not heard for 5.1 s",
        "asked": asked(answer("b"), answer("c")),
        "suspected_at": NOW - 0.5,
        "jitter": 0.5,
    }
    return Facts(**(known | more))


def pair(*witnesses: WitnessReply, **more: object) -> Facts:
    return facts(PAIR, **({"asked": asked(answer("b"), witnesses=witnesses)} | more))


LOST = evolve(answer("c"), promised=EpochId(5, "c"))
OWN = evolve(answer("a"), promised=EpochId(2, "a"))
FOLLOWER = evolve(answer("b", hears=True), promised=EpochId(2, "a"))
RIVAL = evolve(answer("c", entries=with_entry(SECOND[:1], evolve(SECOND[1], winner="c"))), promised=EpochId(2, "c"))
STUCK = evolve(OWN, hears=True, is_master=True)  # Beside RIVAL, which has more.
OF_RIVAL = evolve(RIVAL, address="b")  # A slave that followed it.
OF_LESSER = evolve(  # A slave of one that has less than a.
    OF_RIVAL, promised=EpochId(2, "B"), entries=with_entry(SECOND[:1], evolve(SECOND[1], winner="B"))
)


def serving(**more: object) -> Facts:
    """a's, which is the master."""
    known = {"own": "a", "is_serving": True, "outpromised": True, "heard": "c has promised epoch 5 to c"}
    known["asked"] = asked(OWN, FOLLOWER, LOST)
    return facts(**(known | more))


ALL = asked(answer("a", 170), answer("b"), answer("c"))
STAY, WAIT, ASK, RUN = "stay", "wait", "ask", "run"

TABLE = [
    # Three members, two of which hold each message.
    (facts(), RUN, "a was not heard for 5.1 s; nor do c hear it"),
    (facts(None), STAY, "it belongs to no group"),
    (facts(record(auto_failover="off")), STAY, "autoFailover=off"),
    (facts(record(auto_failover=None)), STAY, "autoFailover=off"),
    (facts(own="x"), STAY, "it is no voter"),
    (facts(record(not_voting="b")), STAY, "it is no voter"),
    (facts(is_serving=True), STAY, "it is the master"),
    (facts(paused="the group is paused until somebody resumes it"), STAY, "paused"),
    (facts(cannot_store="its disk is full"), STAY, "it could store nothing: its disk is full"),
    (facts(why_not="a role change is under way"), STAY, "a role change"),
    (facts(seconds_left=0.1), WAIT, "a was not heard"),
    (facts(seconds_left=3.0, suspected_at=None, asked=None), WAIT, "a was not heard"),
    (facts(suspected_at=None), WAIT, "a was not heard"),
    (facts(held_off_until=NOW + 4), WAIT, "it holds off for 4 s more"),
    (facts(tried_at=NOW - 0.5, tries=1), WAIT, "the last attempt failed"),
    (facts(tried_at=NOW - 61, tries=20), RUN, ""),
    (facts(asked=None), ASK, "asks the others"),
    (facts(asked=asked(answer("b"), answer("c"), at=NOW - ANSWERS_FRESH_SECONDS)), ASK, "asks"),
    (facts(asked=asked(answer("b"), answer("c"), at=NOW - 0.6)), ASK, "asks"),  # Before it was suspected.
    (facts(asked=asked(answer("b"), answer("c"), at=NOW - 0.9), tried_at=NOW - 0.8, suspected_at=NOW - 9), ASK, "asks"),
    # What others answer.
    (facts(asked=asked(answer("b"), answer("c", hears=True))), WAIT, "c hears a master"),
    (facts(asked=asked(answer("b"), answer("c", hears=True)), is_gone=True), WAIT, "c hears a master"),
    (facts(asked=asked(answer("b"), answer("c", hears=True), at=NOW - 0.3), is_gone=True), ASK, "c hears a master"),
    (facts(asked=asked(answer("b"), answer("c", hears=True), at=NOW - 0.3)), WAIT, "c hears a master"),
    (facts(asked=asked(answer("b"), answer("a", hears=True, is_master=True))), WAIT, "a is master"),
    (facts(asked=asked(answer("b"), answer("a", hears=None), answer("c"))), WAIT, "older version"),
    (facts(asked=asked(answer("b"), answer("c", holds_off_ms=2_000))), WAIT, "c holds off for 2 s more"),
    (facts(asked=asked(answer("b", holds_off_ms=2_000), answer("c"))), WAIT, "b holds off"),
    (facts(asked=asked(answer("b"), answer("c", group=record(auto_failover="off")))), WAIT, "members disagree: c has"),
    (facts(asked=asked(answer("b"), answer("c", group=record(auto_failover=None)))), WAIT, "members disagree"),
    (facts(asked=asked(answer("b"), answer("c", group=evolve(GROUP, version=9)))), RUN, ""),
    (facts(asked=asked(answer("b"))), WAIT, "enough votes: needed 2 of 3 members, actual 1 (a, c silent)"),
    (facts(asked=asked(answer("b"), answer("c", granted=False, why="it has promised"))), WAIT, "enough votes"),
    (facts(asked=asked(answer("b"), answer("c", 170))), WAIT, "holds the newest bytes"),
    (facts(asked=asked(answer("b"), answer("c", 100, NEWER[:2]))), RUN, ""),
    (facts(asked=asked(answer("b"), answer("c", 160, NEWER))), WAIT, "holds the newest bytes"),
    (facts(asked=asked(answer("b", whole=False), answer("c"))), WAIT, "enough votes"),
    (facts(asked=asked(answer("b"), answer("c", whole=False))), WAIT, "enough votes"),
    # The old master answers, and serves no more: it was fenced, or starts.
    (facts(asked=asked(answer("a", 140), answer("b"))), RUN, "nor do a hear it"),
    (facts(asked=asked(answer("a", 170), answer("b"))), WAIT, "holds the newest bytes"),
    # Who comes first.
    (facts(own="c", suspected_at=NOW - 0.9), WAIT, "1 better candidates go first"),
    (facts(own="c", suspected_at=NOW - 1.2), RUN, ""),
    (facts(deposed=frozenset("b")), WAIT, "1 better candidates go first"),
    # Where all answer they agree on the order. Else two may take themselves for the next one: chance decides.
    (facts(suspected_at=NOW, asked=asked(answer("b"), answer("c"), at=NOW)), RUN, ""),
    (facts(record(4), suspected_at=NOW, asked=asked(answer("b"), answer("c"), answer("d"), at=NOW)), RUN, ""),
    (facts(record(4, 3), suspected_at=NOW, asked=asked(answer("b"), answer("c"), at=NOW)), WAIT, "about to begin"),
    (facts(record(4, 3), suspected_at=NOW - 0.2, asked=asked(answer("b"), answer("c"))), RUN, ""),
    (facts(tries=1, tried_at=NOW - 1.5, suspected_at=NOW - 9, asked=asked(answer("b"), answer("c"))), WAIT, "about to"),
    # All of a record with a RocketMQ slave.
    (facts(record(3, 2, not_voting="c"), asked=asked(answer("b"))), WAIT, "enough votes"),
    (facts(record(3, 2, not_voting="c"), asked=asked(answer("b"), answer("a", 140))), RUN, ""),
    # Each message is on all three: any single vote elects, so somebody else must answer, or a witness.
    (facts(record(3, 3)), RUN, ""),
    (facts(record(3, 3), asked=asked(answer("b"))), WAIT, "it may be cut off itself: there is no witness"),
    (facts(record(3, 3), asked=asked(answer("b"), witnesses=(NOBODY,))), RUN, "nor do n:9876 hear it"),
    (facts(record(3, 3), asked=asked(answer("b"), answer("c"), witnesses=(SOMEBODY,))), WAIT, "n:9876 hears"),
    (facts(record(3, 3), asked=asked(answer("b"), answer("c"), witnesses=(UNKNOWING,))), RUN, ""),
    # Pairs.
    (pair(), WAIT, "it may be cut off itself: there is no witness to ask"),
    (pair(NOBODY), RUN, "nor do n:9876 hear it"),
    (pair(SOMEBODY), WAIT, "hears the master a"),
    (pair(NOBODY, SOMEBODY), WAIT, "hears the master a"),
    (pair(UNKNOWING), WAIT, "no witness knows"),
    (pair(UNKNOWING, NOBODY), RUN, ""),
    # Its old master says itself that it does not serve. It may go first, and must if it has more.
    (pair(asked=asked(answer("a"), answer("b"))), WAIT, "1 better candidates go first"),
    (pair(asked=asked(answer("a"), answer("b")), suspected_at=NOW - 1.2), RUN, "nor do a hear it"),
    (pair(asked=asked(answer("a", 170), answer("b"))), WAIT, "holds the newest bytes"),
    (pair(asked=asked(answer("a", 170, can_store=False), answer("b"))), WAIT, "holds the newest bytes"),
    (pair(asked=asked(answer("a", can_store=False), answer("b"))), RUN, ""),
    # A master, when a voter has promised an epoch that nobody began: it is lost to the group until there is a newer one.
    (serving(), RUN, "c has promised epoch 5 to c"),
    # Two may win one number where any single vote elects. Both know which of them begins anew.
    (serving(group=record(3, 3), asked=asked(evolve(OWN, hears=True), FOLLOWER, RIVAL)), WAIT, "newest bytes"),
    (serving(own="c", group=record(3, 3), asked=asked(OWN, FOLLOWER, RIVAL)), RUN, ""),
    # The other one is gone, and a slave of its epoch has more than the one that serves, and can never follow it.
    (facts(record(3, 3), asked=asked(STUCK, OF_RIVAL)), RUN, ""),
    (facts(record(3, 3), asked=asked(STUCK, OF_RIVAL, witnesses=(SOMEBODY,))), RUN, ""),
    (facts(record(3, 3), asked=asked(STUCK, OF_LESSER)), WAIT, "a is master"),
    (facts(record(3, 3), asked=asked(STUCK, evolve(OF_RIVAL, promised=OWN.promised))), WAIT, "a is master"),
    (facts(record(3, 3), asked=asked(STUCK, evolve(OF_RIVAL, promised=EpochId(3, "c")))), WAIT, "a is master"),
    (serving(asked=asked(OWN, FOLLOWER, evolve(LOST, hears=True))), WAIT, "c hears a master"),
    (serving(outpromised=False), STAY, "it is the master"),
    (serving(suspected_at=None, seconds_left=2.0), WAIT, "c has promised"),
    (serving(paused="paused"), STAY, "paused"),
    (serving(asked=None), ASK, ""),
    (serving(asked=asked(OWN, FOLLOWER)), WAIT, "nobody answers who has promised"),
    (serving(asked=asked(OWN, evolve(LOST, max_offset=170))), WAIT, "newest bytes"),
    (serving(asked=asked(OWN)), WAIT, "enough votes"),
    (serving(group=record(3, 1), asked=asked(OWN, FOLLOWER, LOST)), STAY, "all voters would have to"),
    (serving(group=PAIR, asked=asked(OWN, evolve(LOST, address="b", member="b"))), RUN, ""),
    # A message is safe when only its master has it: nobody may be silent, or what it has is unknown.
    (facts(record(3, 1)), WAIT, "enough votes: needed 3 of 3"),
    (facts(record(3, 1), loss_max=1 << 40), WAIT, "enough votes"),
    (facts(record(3, 1), asked=ALL, loss_max=20), WAIT, "1 better candidates go first"),
    (facts(record(3, 1), asked=ALL, loss_max=20, suspected_at=NOW - 1.2), RUN, ""),
    (facts(record(3, 1), asked=ALL, loss_max=19), WAIT, "newest bytes"),
    (facts(record(3, 1), asked=ALL), WAIT, "newest bytes"),
    (facts(asked=asked(answer("b"), answer("c", 170)), loss_max=1 << 40), WAIT, "newest bytes"),  # Two have to hold it.
]


@pytest.mark.parametrize(("known", "kind", "why"), TABLE, ids=range(len(TABLE)))
def test_a_situation(known, kind, why):
    decision = decide(known)
    assert (decision.kind, why in decision.why) == (kind, True), decision


def test_what_is_waited_for_has_a_time_behind_now():
    """Nobody spins, and nobody sleeps for ever who only waits."""
    waits = [(each, decide(each)) for each, kind, _ in TABLE if kind == WAIT]
    # The others are asked again when their answers are old: what makes it wait may be over by then.
    assert all(decision.at > known.now for known, decision in waits)
    assert all(decision.at < math.inf for known, decision in waits if known.suspected_at is not None)


@pytest.mark.parametrize(
    "change",
    [
        {"seconds_left": 0.01},
        {"suspected_at": None},
        {"paused": "paused"},
        {"cannot_store": "full"},
        {"why_not": "busy"},
        {"is_serving": True},
        {"held_off_until": NOW + 0.01},
        {"tries": 1, "tried_at": NOW - 0.5},
        {"asked": None},
        {"group": record(auto_failover="off")},
        {"group": None},
    ],
)
def test_each_rule_alone_keeps_it_from_running(change):
    for own, *_ in product("bc"):
        known = facts(own=own, suspected_at=NOW - 5)
        assert decide(known).kind == "run"
        assert decide(evolve(known, **change)).kind != "run"


@st.composite
def situations(draw: st.DrawFn) -> Facts:
    """Any of them, most of which speak for an election."""
    mode = st.sampled_from(("members", "members", "members", "off", None))
    group = record(draw(st.integers(2, 4)), draw(st.integers(1, 3)), auto_failover=draw(mode))
    answers = []
    for member in group.members:
        if draw(st.sampled_from((True, True, False))) or member.id == "b":
            answers.append(
                answer(
                    member.id,
                    draw(st.sampled_from((150, 150, 150, 120, 170))),
                    hears=draw(st.sampled_from((False, False, False, True, None))),
                    granted=draw(st.sampled_from((True, True, True, False))),
                    whole=draw(st.sampled_from((True, True, True, False))),
                    holds_off_ms=draw(st.sampled_from((0, 0, 0, 500))),
                    group=draw(st.sampled_from((None, group, record(auto_failover="off")))),
                    can_store=draw(st.sampled_from((True, True, False))),
                )
            )
    witnesses = tuple(draw(st.lists(st.sampled_from((NOBODY, SOMEBODY, UNKNOWING)), max_size=2)))
    return facts(
        group,
        seconds_left=draw(st.sampled_from((-3.0, 0.0, 0.2))),
        suspected_at=draw(st.sampled_from((NOW - 9, NOW - 0.5, NOW - 0.05, None))),
        held_off_until=NOW + draw(st.sampled_from((-5.0, -5.0, 3.0))),
        tries=draw(st.integers(0, 9)),
        tried_at=NOW - draw(st.sampled_from((math.inf, 100.0, 1.5))),
        jitter=draw(st.sampled_from((0.0, 0.4, 1.0))),
        deposed=draw(st.sampled_from((frozenset(), frozenset("b"), frozenset("c")))),
        loss_max=draw(st.sampled_from((0, 0, 10, 1 << 40))),
        asked=asked(*answers, at=NOW - draw(st.sampled_from((0.02, 0.3, 0.9, 1.0, 30.0))), witnesses=witnesses),
    )


@settings(max_examples=400, deadline=None, derandomize=True)
@given(situations())
def test_whoever_runs_was_allowed_to(known):
    """The rules once more, each said on its own."""
    decision = decide(known)
    assert decision.why
    if decision.kind != "run":
        return
    group, ask = known.group, known.asked
    assert group is not None
    assert ask is not None
    others = [each for id, each in ask.answers.items() if id != known.own]
    assert known.seconds_left <= 0
    assert known.suspected_at is not None
    assert group.auto_failover == "members"
    assert known.now >= known.held_off_until
    assert known.suspected_at <= ask.at > known.now - ANSWERS_FRESH_SECONDS
    assert not any(each.hears is not False for each in others)
    assert all(mode_of(each.group) == "members" for each in ask.answers.values() if each.group is not None)
    assert not any(each.holds_off_ms for each in ask.answers.values())
    if len(group.members) - group.acks_needed + 1 <= 1:  # By the own vote alone.
        assert not any(each.hears for each in ask.witnesses)
        assert others or any(each.hears is False for each in ask.witnesses)
    if group.acks_needed > 1 or known.loss_max == 0:  # Nobody who votes has more.
        assert all(each.key <= ask.answers["b"].key for each in others if each.granted and each.whole)
    if not known.tries:
        return
    assert known.now >= known.tried_at + back_off(known.tries, 0.0)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(situations(), st.floats(0.0, 30.0))
def test_more_of_the_masters_silence_never_speaks_against_it(known, more):
    """Whoever runs now would also run if it had suspected its master for longer."""
    if decide(known).kind == "run":
        assert known.suspected_at is not None
        longer = evolve(known, suspected_at=known.suspected_at - more, seconds_left=known.seconds_left - more)
        assert decide(longer).kind == "run"


def test_a_better_rank_never_waits_longer():
    def begins(own: str, deposed: str, jitter: float) -> float:
        more = {"master": "e", "suspected_at": NOW}  # One whom they await does not answer, so that chance counts.
        known = facts(record(4, 2), own=own, deposed=frozenset(deposed), jitter=jitter, **more)
        said = asked(answer("b"), answer("c"), answer("d"), at=NOW)
        decision = decide(evolve(known, asked=said))
        return NOW if decision.kind == "run" else decision.at

    assert begins("b", "", 0.0) == NOW
    for jitter in (0.5, 1.0):
        assert begins("b", "", jitter) == NOW + jitter * JITTER_SECONDS
        assert begins("c", "", jitter) == NOW + RANK_SECONDS + jitter * JITTER_SECONDS
        assert begins("d", "", jitter) == NOW + 2 * RANK_SECONDS + jitter * JITTER_SECONDS
        assert begins("d", "bc", jitter) == begins("b", "", jitter)
    assert RANK_SECONDS > JITTER_SECONDS, "jitter would let a worse candidate go first"


def test_who_was_held_back_until_now_still_lets_a_better_candidate_go_first():
    """A pause ends for all at once, long after the master was suspected: two that begin together outbid each other."""
    later = facts(own="c", suspected_at=NOW - 60, held_back_at=NOW - 0.2)
    decision = decide(later)
    assert (decision.kind, decision.is_turn, decision.at) == ("wait", True, NOW - 0.2 + RANK_SECONDS)
    assert decide(evolve(later, own="b")).kind == "run"
    assert not decide(evolve(later, paused="the group is paused")).is_turn


def test_a_member_that_may_lack_bytes_goes_last():
    """The master of the record may win all the same, by what the others kept: after all that would win without a doubt."""
    known = facts(own="a", suspected_at=NOW - 0.9, asked=asked(answer("a", whole=False), answer("b"), answer("c")))
    decision = decide(known)
    assert (decision.kind, decision.at) == ("wait", NOW - 0.9 + 2 * RANK_SECONDS)
    assert decide(evolve(known, suspected_at=NOW - 5)).kind == "run"


def test_what_others_had_to_hold_is_never_given_up():
    assert [accepted_loss(record(3, acks), 20) for acks in (0, 1, 2, 3)] == [20, 20, None, None]
    assert accepted_loss(record(3, 1), 0) is None


def test_the_back_off_doubles_up_to_its_bound_and_is_jittered():
    assert [back_off(tries, 0.0) for tries in range(8)] == [0, 1, 2, 4, 8, 16, 30, 30]
    assert back_off(3, 1.0) == 8
    assert max(back_off(tries, 1.0) for tries in range(100)) == 2 * BACK_OFF_SECONDS_MAX


def test_the_standings_say_what_speaks_against_each():
    group = record(4, 2, not_voting="d")
    answers = {"a": answer("a", 170, can_store=False), "b": answer("b", 140), "d": answer("d")}
    found = {each.member: (each.rank, each.against) for each in standings(group, answers)}
    assert found == {
        "a": (None, "it could store nothing"),
        "b": (0, ""),
        "c": (None, "it does not answer"),
        "d": (None, "it cannot vote: a RocketMQ slave"),
    }
    answers = {"a": answer("a", whole=False), "b": answer("b", granted=False, why="it has promised"), "c": answer("c")}
    found = {each.member: (each.rank, each.against) for each in standings(record(), answers)}
    assert found["c"] == (0, "")
    assert found["a"][1].startswith("it may lack bytes")
    assert found["b"] == (None, "it has promised")


def test_the_standings_are_by_bytes_then_by_what_was_lost_lately_then_by_id():
    def order(deposed: str = "", **ends: int) -> str:
        answers = {id: answer(id, end) for id, end in ends.items()}
        return "".join(
            each.member for each in standings(record(), answers, frozenset(deposed)) if each.rank is not None
        )

    assert order(a=150, b=150, c=150) == "abc"
    assert order("a", a=150, b=150, c=150) == "bca"
    assert order("ab", a=150, b=150, c=150) == "cab"
    assert order("c", a=150, b=150, c=151) == "cab"


def test_a_pause_is_part_of_the_record_and_not_of_the_mode():
    assert mode_of(record(paused=Pause(until_ms=None, reason=""))) == "members"
    assert mode_of(None) == "off"


# Elections that were seen


def epoch(number: int, decided_by: str = "group", old: str = "a") -> EpochEntry:
    return EpochEntry(epoch=number, winner="b", start_offset=number, old=old, decided_by=decided_by)  # type: ignore[arg-type]


def noted(seen: Elections, history: list[EpochEntry], now: float) -> None:
    seen.note(history, now, round(now * 1000))


def test_only_automatic_elections_count_and_each_once():
    seen = Elections()
    history = [FIRST]
    noted(seen, history, 0.0)
    for now, entry in enumerate([epoch(2, "person"), epoch(3), epoch(3), epoch(4, "")]):
        history += [entry] * (entry != history[-1])
        noted(seen, history, float(now))
    assert (seen.count, seen.deposed, seen.held_off_until) == (1, {"a"}, -math.inf)
    history.append(evolve(epoch(5, old="b"), kind="restart"))  # No other master than before.
    noted(seen, history, 5.0)
    assert seen.count == 1
    history.append(epoch(6, old="b"))  # Elected again.
    noted(seen, history, 6.0)
    assert (seen.count, seen.deposed) == (2, {"a"})


def test_the_hold_off_begins_with_the_third_and_doubles_up_to_two_minutes():
    seen, waits, history = Elections(), [], [FIRST]
    noted(seen, history, 0.0)
    for number in range(1, 10):
        history.append(epoch(number))
        noted(seen, history, float(number))
        waits.append(seen.held_off_until - number)
    assert waits[: FLAPS_FREE - 1] == [-math.inf] * (FLAPS_FREE - 1)
    assert waits[FLAPS_FREE - 1 :] == [HOLD_OFF_SECONDS * 2**n for n in range(5)] + [HOLD_OFF_SECONDS_MAX] * 2


def test_what_is_long_ago_is_forgotten():
    seen, history = Elections(), [FIRST]
    noted(seen, history, 0.0)
    for number in range(1, 5):
        history.append(epoch(number))
        noted(seen, history, 10.0 * number)
    noted(seen, history, FLAP_WINDOW_SECONDS + 30.0)
    assert seen.count == 1
    noted(seen, history, FLAP_WINDOW_SECONDS + 40.0)
    assert (seen.count, seen.deposed, seen.held_off_until) == (0, frozenset(), -math.inf)


def test_a_member_that_starts_knows_of_the_elections_before():
    """Else one that comes and goes would forget them. Its wall clock may have been set since."""
    history = [FIRST, *(evolve(epoch(number), at_ms=number * 100_000) for number in range(1, 5))]
    seen = Elections()
    seen.note(history, 5.0, 450_000)
    assert (seen.count, seen.held_off_until) == (4, 5.0 - 50.0 + 2 * HOLD_OFF_SECONDS)
    ahead, behind = Elections(), Elections()
    ahead.note(history, 5.0, 450_000 + 3_600_000)
    behind.note(history, 5.0, 450_000 - 3_600_000)
    assert (ahead.count, behind.count) == (0, 4)
    assert behind.held_off_until <= 5.0 + HOLD_OFF_SECONDS_MAX
