"""The table of failures in docs/operating/automatic-failover.md says what the decision says."""

import re
from pathlib import Path

import pytest

from tests.ha.election.failures import FAILURES, FAILURES_WITH_ETCD
from twinlog.ha.election.election import decide
from twinlog.ha.election.votes import judge_failover

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/operating/automatic-failover.md").read_text()
TABLES = [part.partition("\n\n")[0].splitlines()[2:] for part in PAGE.split("| failure | outcome |")[1:]]
MEMBERS, ETCD = ([[cell.strip() for cell in line.strip("|").split("|")] for line in table] for table in TABLES)
LINES = [*MEMBERS, *ETCD]
FACTS = [*FAILURES.items(), *FAILURES_WITH_ETCD.items()]


def test_each_failure_is_in_its_table_and_has_its_facts():
    assert [line[0] for line in MEMBERS] == list(FAILURES)
    assert [line[0] for line in ETCD] == list(FAILURES_WITH_ETCD)


@pytest.mark.parametrize(
    ("found", "outcome"),
    [(each[1], line[1]) for each, line in zip(FACTS, LINES, strict=False)],
    ids=[each[0] for each in FACTS],
)
def test_a_line_is_what_the_decision_says(found, outcome):
    assert outcome in ("elects", "stays")
    assert (decide(found).kind == "run") == (outcome == "elects"), decide(found)
    if outcome == "elects":
        group = found.asked.group or found.group
        assert judge_failover(group, found.own, found.asked.answers, None).may, "nothing is ever forced"


@pytest.mark.parametrize("named", [line[3] for line in LINES])
def test_what_a_line_names_is_there(named):
    file, function = re.fullmatch(r"`(tests/[\w/]+\.py)::(\w+)`", named).groups()
    assert re.search(rf"^(async )?def {function}\(", (ROOT / file).read_text(), re.MULTILINE), named
