"""What the page on reliability claims is what was kept: results of every row, of a long run, and of the planted faults."""

import re
import tomllib

import pytest

from scripts.fault_matrix.failpoints import POINTS
from scripts.fault_matrix.rows import ROWS, SECONDS_TO_RECOVER
from tests.helpers import docs_extension

page = docs_extension("reliability")
KINDS = ("matrix", "planted", "rocketmq", "soak")
KEPT = {kind: page.Kept.read(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_each_result_says_where_it_comes_from(kind):
    assert KEPT[kind].documents
    for document in KEPT[kind].documents:
        assert document["command"].startswith("scripts/faults ")
        assert re.fullmatch("[0-9a-f]{40}", document["machine"]["commit"])
        assert document["machine"]["changed_files"] == 0
        assert document["skipped"] == {}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_each_row_was_run_and_holds(row):
    """No row is left out of the page, and none of it is lost in a sum."""
    runs = KEPT["matrix"].of_row(row)
    assert runs
    assert all(run["holds"] for run in runs)
    assert all(run["acknowledged"] > 0 for run in runs)
    assert row.only_tail or not any(run["lost"] for run in runs)
    if row.recovers:
        assert all(seconds <= SECONDS_TO_RECOVER for run in runs for seconds in run["recovery_seconds"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_each_row_has_a_planted_fault_that_it_noticed(row):
    runs = KEPT["planted"].of_row(row)
    assert row.planted
    assert any(not run["holds"] and not run.get("error") for run in runs)


def test_members_have_died_at_every_named_place():
    assert page.points() == f"Members have died at {len(POINTS)} of the {len(POINTS)} named places in these runs."


def test_the_long_run_is_long():
    (run,) = KEPT["soak"].runs
    assert run["holds"]
    assert run["seconds"] >= 3600
    assert run["acknowledged"] >= 1_000_000
    assert run["lost"] == 0
    assert len(run["faults"]) >= 180  # One every 10 to 20 s.


def test_each_bug_of_the_track_record_can_be_seen_again():
    found = tomllib.loads((page.RESULTS / "found.toml").read_text())["found"]
    assert found
    for each in found:
        assert each.keys() == {"date", "by", "what", "again", "fix"}
        assert all(str(value).strip() for value in each.values())
