"""What is kept of a run."""

import pytest

from tests.faults.matrix.results import command


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--row 5 --seed 7", "--row 5 --seed 7"),
        ("--soak 61 --keep /some/where --seed 1 --out there.json", "--soak 61 --seed 1"),
        ("--keep=/some/where --short --out=there.json", "--short"),
    ],
)
def test_where_results_went_is_no_part_of_the_command(arguments, told):
    assert command(arguments.split()) == f"scripts/faults {told}"
