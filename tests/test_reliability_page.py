"""What the page on reliability claims is what was kept: results of every row, of a long run, and of the planted faults."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests.faults.matrix.rows import ROWS, SECONDS_TO_RECOVER

RESULTS = Path(__file__).parents[1] / "docs" / "reliability"
KINDS = ("matrix", "planted", "rocketmq", "soak")


def kept(kind: str) -> list[dict]:
    files = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{kind}-*.json"))]
    return [each for file in files for each in (file if isinstance(file, list) else [file])]


def runs_of(kind: str) -> list[dict]:
    return [run for document in kept(kind) for run in document["runs"]]


@pytest.mark.parametrize("kind", KINDS)
def test_each_result_says_where_it_comes_from(kind):
    assert kept(kind)
    for document in kept(kind):
        assert document["command"].startswith("scripts/faults ")
        assert re.fullmatch("[0-9a-f]{40}", document["machine"]["commit"])
        assert document["machine"]["changed_files"] == 0
        assert document["skipped"] == {}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_each_row_was_run_and_holds(row):
    """No row is left out of the page, and none of it is lost in a sum."""
    runs = [run for run in runs_of("matrix") if (run["row"], run["level"]) == (row.number, row.level)]
    assert runs
    assert all(run["holds"] for run in runs)
    assert all(run["acknowledged"] > 0 for run in runs)
    assert row.only_tail or not any(run["lost"] for run in runs)
    if row.recovers:
        assert all(seconds <= SECONDS_TO_RECOVER for run in runs for seconds in run["recovery_seconds"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_each_row_has_a_planted_fault_that_it_noticed(row):
    runs = [run for run in runs_of("planted") if (run["row"], run["level"]) == (row.number, row.level)]
    assert row.planted
    assert any(not run["holds"] and not run.get("error") for run in runs)


def test_the_long_run_is_long():
    (run,) = runs_of("soak")
    assert run["holds"]
    assert run["seconds"] >= 3600
    assert run["acknowledged"] >= 1_000_000
    assert run["lost"] == 0
    assert len(run["faults"]) >= 180  # One every 10 to 20 s.


def test_each_bug_of_the_track_record_can_be_seen_again():
    found = tomllib.loads((RESULTS / "found.toml").read_text())["found"]
    assert found
    for each in found:
        assert each.keys() == {"date", "by", "what", "again", "fix"}
        assert all(str(value).strip() for value in each.values())
