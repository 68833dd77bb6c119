"""The page of a ledger: what it draws, and what it says."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from attrs import evolve

from tests.cluster.pipeline.ledger_history import EACH, RUNS, START, WEEK, coverage, history
from tests.cluster.pipeline.ledgers import BLOCK, make_ledger
from tests.cluster.pipeline.pages import assert_stands_alone, assert_usable_without_sight
from twinlog.cluster.pipeline.ledger.files import LedgerError
from twinlog.cluster.pipeline.report import lives
from twinlog.cluster.pipeline.report.coverage import ProofState, bands, columns, duration, over_time, replicas
from twinlog.cluster.pipeline.report.history import chosen, read_history
from twinlog.cluster.pipeline.report.ledger_page import headline, ledger_page, sentences, write_ledger_page
from twinlog.cluster.pipeline.report.plots import Scale, round_values, time_ticks

DAY = 86_400_000


@pytest.fixture(scope="module")
def three_weeks():
    return history()


@pytest.mark.parametrize("runs", [1, 3, 40, RUNS])
def test_the_page_stands_alone_and_can_be_used_without_seeing_it(runs):
    text = ledger_page(history(runs))
    assert_stands_alone(text)
    assert_usable_without_sight(text)
    assert len(text) < 200_000, "it is sent by mail"
    assert "topic <orders>" not in text


def test_each_replica_has_a_bar_with_its_proofs_and_findings(three_weeks):
    drawn = ElementTree.fromstring(replicas(three_weeks))
    assert len([each for each in drawn.iter("rect") if each.get("class") == "log"]) == 3
    (mark,) = [each for each in drawn.iter("rect") if each.get("class") == "mark"]
    assert mark.get("fill") == "url(#mark-hole)"
    states = {
        each.get("fill", "")[len("url(#replicas-") : -1] for each in drawn.iter("rect") if each.get("class") == "proved"
    }
    assert states == {"new", "middle", "old"}


def test_the_text_of_the_replicas_says_how_old_proofs_are(three_weeks):
    told = replicas(three_weeks)
    assert re.search(
        r"broker-a-2 has bytes \d+ to \d+; .*GB proved in the last 7 d; .*number 4, hole at 8000000000", told
    )


def test_states_go_by_age_and_neighbours_are_one():
    found = bands(coverage(20), START + 20 * EACH, WEEK)
    assert [band.state for band in found] == [ProofState.OLD, ProofState.MIDDLE, ProofState.NEW]
    assert all(one.end == other.start for one, other in pairwise(found))
    assert {band.state for band in bands(coverage(20), START + 60 * EACH, WEEK)} == {ProofState.OVERDUE}


def test_what_only_some_members_are_proved_of_is_told_apart():
    now = coverage(34)
    every = bands(now, now.run.ended, WEEK)
    assert ProofState.PARTLY not in {band.state for band in every}, (
        "broker-a-2 could not be read: nobody knows what it has"
    )
    back = coverage(40)
    partly = [band for band in bands(back, back.run.ended, WEEK) if band.state is ProofState.PARTLY]
    assert partly
    assert not any(
        band.start < partly[0].end and partly[0].start < band.end
        for band in bands(back, back.run.ended, WEEK, "broker-a-2")
    )


def test_a_column_for_each_run_and_parts_where_runs_are_missing(three_weeks):
    found = list(columns(three_weeks))
    assert len(found) == RUNS
    assert all(one[2] == other[1] for one, other in pairwise(found))
    assert all(start < end for _, start, end in found)
    gap = evolve(three_weeks, drawn=(three_weeks.drawn[0], three_weeks.drawn[-1]))
    parts = [end - start for each, start, end in columns(gap) if each is gap.drawn[0]]
    assert len(parts) > 4
    assert max(parts) <= WEEK // 4


def test_the_picture_over_time_shows_the_week_that_was_too_long(three_weeks):
    text = over_time(three_weeks)
    drawn = ElementTree.fromstring(text)
    fills = {
        each.get("fill", "")[len("url(#time-") : -1] for each in drawn.iter("rect") if each.get("class") == "proved"
    }
    assert fills == set(ProofState)
    assert len([each for each in drawn.iter("rect") if each.get("class") == "unproved"]) == RUNS
    assert "limit 7 d" in text
    assert (
        "Run 1, 2026-11-22 04:26:40.000 UTC: proved bytes 0 to 250000000 of 333333333, the oldest proof 0 s old."
        in text
    )


def test_open_findings_come_first_and_each_has_its_bar(three_weeks):
    assert [row.id for row in lives.order(three_weeks.findings)] == [4, 3, 2, 1]
    text = lives.lives(three_weeks)
    drawn = ElementTree.fromstring(text)
    bars = [each for each in drawn.iter("rect") if each.get("class") == "mark life"]
    assert len(bars) == 4
    assert "✓ repaired after 24 h" in text
    assert "open, first seen 2026-12-12 04:26" in text
    assert all(float(bar.get("x", 0)) + float(bar.get("width", 0)) <= 970.1 for bar in bars)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (19, "equal: all members are proved equal from 0 to 4"),
        (21, "divergent: 1 finding is open"),
        (33, "not complete: all members are proved equal"),
    ],
)
def test_the_headline(run, words):
    assert headline(history(run)).startswith(words)
    assert headline(history(run)) in ledger_page(history(run))


def test_the_sentences_say_how_old_the_oldest_proof_may_be():
    assert (
        "The oldest proof is 4 d 12 h old; every byte is to be proved again within 7 d: as it should be."
        in sentences(history(19))
    )
    assert any("which is too long" in each for each in sentences(history(55)))
    assert "The last run could not read broker-a-2." in sentences(history(33))


def test_runs_that_are_drawn_are_few_and_the_last_one_is_among_them():
    assert chosen(range(1, 11), 96) == list(range(1, 11))
    found = chosen(range(1, 8761), 96)
    assert len(found) <= 96
    assert found[-1] == 8760
    assert len({b - a for a, b in pairwise(found)}) == 1


def test_a_ledger_is_read_as_it_was_written(tmp_path):
    found = read_history(make_ledger(tmp_path / "ledger"))
    assert [each.run.run for each in found.drawn] == [1, 2]
    assert found.last.proofs[0].members == ("broker-a-0", "broker-a-1", "broker-a-2")
    assert found.last.run.proved_to == 5 * BLOCK
    (repaired,) = found.findings
    assert (repaired.id, repaired.state, repaired.offset) == (1, "repaired", BLOCK + 7)
    written = write_ledger_page(tmp_path / "ledger", tmp_path / "ledger.html")
    assert "✓ repaired after 1 h" in written.read_text()


def test_without_a_run_there_is_no_page(tmp_path):
    with pytest.raises(LedgerError, match="has no run"):
        read_history(tmp_path)
    (tmp_path / "runs" / "00000001").mkdir(parents=True)
    with pytest.raises(LedgerError, match="cannot be read"):
        read_history(tmp_path)


# Axes


@pytest.mark.parametrize("span", [1, 50_000, 3_600_000, 9 * DAY, 400 * DAY, 4000 * DAY])
def test_ticks_of_time_are_few_and_round(span):
    ticks = time_ticks(START, START + span)
    assert len(ticks) <= 12
    assert len({b - a for a, b in pairwise(ticks)}) <= 1
    assert all(START <= tick <= START + span for tick in ticks)


@pytest.mark.parametrize("end", [0, 1, 7, 999, 10**9, 123_456_789_012])
def test_round_values_reach_the_end(end):
    found = round_values(end, 5)
    assert found[0] == 0
    assert found[-1] <= end
    assert 1 <= len(found) <= 6


def test_a_scale_holds_what_lies_outside():
    scale = Scale(100, 200, 0, 10)
    assert [scale.at(value) for value in (0, 100, 150, 200, 999)] == [0, 0, 5, 10, 10]


@pytest.mark.parametrize(
    ("milliseconds", "words"), [(WEEK, "7 d"), (42 * 3_600_000, "42 h"), (180_000, "3 min"), (-1, "0 s")]
)
def test_spans_of_time_are_short(milliseconds, words):
    assert duration(milliseconds) == words
