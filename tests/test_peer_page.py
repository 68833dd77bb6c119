"""The page of results says what the results say."""

import json

import pytest

from tests.peer_suite import page


@pytest.mark.skipif(not page.RESULTS.exists(), reason="no results yet")
def test_the_page_is_that_of_the_results():
    assert page.PAGE.read_text() == page.page(json.loads(page.RESULTS.read_text()))


def test_both_runs_of_a_failed_class_are_shown():
    bad = {"tests": 2, "failures": [{"test": "late(T)", "trace": "AssertionError: `x`\n at"}], "seconds": 3.4}
    good = {"tests": 2, "failures": [], "seconds": 2.0}
    machine = {
        "rocketmq": "4.9.7",
        "cpu_model": "some",
        "cpu_count": 2,
        "kernel": "6",
        "python": "3.11",
        "java": "17",
        "commit": "0123456789abcdef",
        "changed_files": 0,
    }
    text = page.page(
        {"date": "2026-11-22T00:00:00", "machine": machine, "classes": {"a.B": [bad, good], "a.C": [good]}}
    )
    assert "**1 of 2 classes passed at once, 1 more when run again, 3 of 4 tests.**" in text
    assert "| `a.B` | 2 | 1 | 3 | passed |" in text
    assert "| `a.C` | 2 |  | 2 |  |" in text
    assert "- `a.B`, run 1: late(T): `AssertionError:  x `" in text
