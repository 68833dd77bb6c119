"""What is kept of a run."""

import pytest

from scripts.fault_matrix.results import command, placeless


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


def test_directories_of_a_run_are_left_out():
    disk = "home"  # The search for machine names takes such a path for one.
    text = f'broker-a-0: "kept_in": "/some/where/twinlog-faults-1/m1/{disk}/broker-a-1/twinlog", its /some/where/m0/log'
    assert placeless(text) == 'broker-a-0: "kept_in": "m1:broker-a-1/twinlog", its m0:log'
