"""The account of a demonstration, and the sentences that depend on it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.broker.peers.role_messages import ChangeResult, ChangeState
from twinlog.cluster.cli.demo.screen import (
    PlainScreen,
    account_lines,
    bars,
    number,
    rewound,
    taken_over,
    verdict,
)
from twinlog.cluster.cli.demo.traffic import Ledger, LedgerAccount
from twinlog.ha.election.votes import Judgement, LostRange


def ledger(*times: float) -> Ledger:
    made = Ledger()
    for at in times:
        made.acknowledge(made.begin(), at)
    return made


def test_the_account_tells_what_is_missing_there_twice_and_of_nobody():
    kept = ledger(1.0, 2.0, 3.0)
    assert kept.begin() == 4  # Without an answer.
    account = kept.account([1, 3, 3, 4, 9])
    assert account == LedgerAccount(acknowledged=3, found=2, missing=(2,), surplus=1, unclear=1, unknown=1)
    assert not account.is_good


@given(st.lists(st.booleans(), max_size=30), st.data())
def test_nothing_acknowledged_is_missing_exactly_when_all_of_it_is_found(answers, data):
    kept = Ledger()
    for is_acknowledged in answers:
        begun = kept.begin()
        if is_acknowledged:
            kept.acknowledge(begun, 0.0)
    found = data.draw(st.lists(st.sampled_from(range(1, len(answers) + 1)), max_size=60) if answers else st.just([]))
    assert kept.account(found).is_good == (set(kept.acknowledged) <= set(found))


@pytest.mark.parametrize(
    ("since", "until", "pause"),
    [(2.5, 6.0, 3.0), (1.0, 2.0, 1.0), (0.0, 6.0, 3.0), (5.5, 9.0, 4.0)],
    ids=["began before", "none", "all", "lasts still"],
)
def test_the_longest_pause_reaches_into_what_came_before(since, until, pause):
    """A producer that waits at the moment of kill -9 has waited since its last answer."""
    assert ledger(1.0, 2.0, 5.0).longest_pause(since, until) == pause


def test_bars_show_a_gap():
    kept = ledger(0.1, 0.2, 0.3, 1.6, 1.7)
    assert kept.counts(0.0, 0.5, 4) == [3, 0, 0, 2]
    assert bars(kept.counts(0.0, 0.5, 4)) == "█  ▆"
    assert bars([0, 0]) == "  "


def test_a_good_account_in_words():
    lines = account_lines(LedgerAccount(acknowledged=3972, found=3972, missing=(), surplus=2, unclear=0, unknown=0))
    assert [words.split()[0] for words, _ in lines] == ["acknowledged", "found", "missing", "2"]
    assert all(is_good for _, is_good in lines)


def test_a_bad_account_names_the_first_that_is_missing():
    lines = account_lines(LedgerAccount(acknowledged=5, found=3, missing=(2, 4), surplus=0, unclear=1, unknown=1))
    bad = [words for words, is_good in lines if not is_good]
    assert bad == ["found        3", "missing      2, first number 2", "1 message found, but never sent"]


@pytest.mark.parametrize(
    ("judgement", "words"),
    [
        (Judgement("a", may=True), "bytes at risk: 0;"),
        (Judgement("a", may=False, lost=LostRange(100, 4196, ("b",))), "bytes at risk: 4 096"),
        (Judgement("a", may=True, forced=True, lost=LostRange(100, None, ("b",))), "bytes at risk: unknown"),
    ],
)
def test_the_verdict_says_how_much_is_at_stake(judgement, words):
    assert verdict(ChangeState(running=False, judgements=(judgement,))).startswith(words)


def test_times_and_numbers_are_easy_to_read():
    assert number(1491258) == "1 491 258"
    assert "nothing that the new master lacks" in rewound("a", [])
    result = ChangeResult(epoch=3, winner="h:1", start_offset=0, pause_ms=None, lost_bytes=0, kept=(), not_following=())
    assert taken_over("a", result, 0.177) == "a is the master in epoch 3, after 0.18 s; acknowledged bytes lost: 0"


def test_the_story_in_a_pipe_is_plain_lines(capsys):
    screen = PlainScreen(lambda: 1.25)
    screen.chapter("One", "because")
    screen.draw(lambda width: 1 / 0)
    screen.tell("done", "✓")
    assert capsys.readouterr().out == "\n1. One\n   because\n     1.2 s ✓ done\n"
