"""The matrix as data: each row can be told from the others, is judged, and names a planted fault that there is."""

import pytest

from scripts.fault_matrix.checkers.verdict import ORACLES
from scripts.fault_matrix.planted import all_of, every
from scripts.fault_matrix.rows import ROWS
from scripts.fault_matrix.workload import body_of, value_of
from tests.simulation.holes import HOLES


def test_rows_can_be_told_apart():
    assert len({row.key for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_a_row_is_judged_by_oracles_that_there_are(row):
    assert row.faults
    assert set(row.oracles) <= ORACLES.keys()
    assert list(row.oracles) == sorted(set(row.oracles))
    assert "A" in row.oracles


@pytest.mark.parametrize("row", [row for row in ROWS if row.planted], ids=lambda row: row.key)
def test_the_fault_that_is_planted_for_a_row_can_be_planted(row):
    """What it patches is there, and is there again afterwards."""
    assert row.planted in every().keys() | HOLES.keys()
    with all_of(row.planted):
        pass


def test_a_body_follows_from_its_value_and_any_other_is_corrupt():
    body = body_of("p0-17")
    assert value_of(body) == "p0-17"
    for at in range(0, len(body), 7):
        changed = bytearray(body)
        changed[at] ^= 1
        assert value_of(bytes(changed)) is None
    assert value_of(body[:-1]) is None
    assert value_of(body + b"x") is None
    assert len({len(body_of(f"p0-{number}")) for number in range(50)}) > 10
