"""What is logged: sentences that stay the same, each on its page."""

import re
from pathlib import Path

import pytest

from tests.helpers import docs_extension
from twinlog.cluster.cli.common.logging_setup import FIRST_FIELDS

ROOT = Path(__file__).parents[1]
logs = docs_extension("logs")
PAGE = (ROOT / "docs/operating/logs.md").read_text()
# Where a function logs the event that it was given; those who give it are read instead.
GIVEN = {"connection_admission.py", "registration.py", "following.py"}


def test_every_module_that_logs_is_on_the_page():
    """By the sections of the page; the command line and the jobs on Spark talk to people, not to a log."""
    assert set(re.findall(r"^```{log-events} (.+)$", PAGE, re.MULTILINE)) == set(logs.SECTIONS)
    shown = {file for section in logs.SECTIONS for file in logs.files(section)}
    for file in [file for package in ("store", "ha", "cluster") for file in (ROOT / package).rglob("*.py")]:
        if "/cli/" not in str(file) and "/pipeline/" not in str(file) and list(logs.events_in(file)):
            assert file in shown, f"{file.relative_to(ROOT)} logs, and is in no section of docs/_ext/logs.py"


@pytest.mark.parametrize("section", logs.SECTIONS)
def test_an_event_has_no_values_in_it(section):
    """Whoever counts events, or waits for one, writes down its text: values are fields."""
    found = [event for file in logs.files(section) for event in logs.events_in(file)]
    assert found
    made_up = [event.where for event in found if event.names is None and event.where.split(":")[0] not in GIVEN]
    assert made_up == []


@pytest.mark.slow
def test_no_field_of_a_line_is_taken_for_what_stands_on_each():
    """`member`, `role` and `peer` mean one thing. `epoch`: where a member says which one it is master of."""
    taken = set(FIRST_FIELDS) - {"epoch", "peer"}
    for section in logs.SECTIONS:
        for event in (each for file in logs.files(section) for each in logs.events_in(file)):
            assert not taken & set(event.fields), event


def test_the_page_names_the_fields_of_every_line():
    assert [f"`{name}`" in PAGE for name in FIRST_FIELDS] == [True] * len(FIRST_FIELDS)
