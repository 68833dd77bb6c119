"""The table of failures in docs/operating/automatic-failover.md says what the decision says."""

import re
from pathlib import Path

import pytest

from tests.ha.election.failures import FAILURES
from twinlog.ha.election.election import decide
from twinlog.ha.election.votes import judge_failover

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/operating/automatic-failover.md").read_text()
TABLE = PAGE.partition("| failure | outcome |")[2].partition("\n\n")[0].splitlines()[2:]
LINES = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE]


def test_each_failure_is_in_the_table_and_has_its_facts():
    assert [line[0] for line in LINES] == list(FAILURES)


@pytest.mark.parametrize(("failure", "outcome", "_what", "named"), LINES, ids=[line[0] for line in LINES])
def test_a_line_is_what_the_decision_says(failure, outcome, _what, named):
    found = FAILURES[failure]
    assert outcome in ("elects", "stays")
    assert (decide(found).kind == "run") == (outcome == "elects"), decide(found)
    if outcome == "elects":
        assert judge_failover(found.group, found.own, found.asked.answers, None).may, "nothing is ever forced"


@pytest.mark.parametrize("named", [line[3] for line in LINES])
def test_what_a_line_names_is_there(named):
    file, function = re.fullmatch(r"`(tests/[\w/]+\.py)::(\w+)`", named).groups()
    assert re.search(rf"^(async )?def {function}\(", (ROOT / file).read_text(), re.MULTILINE), named
