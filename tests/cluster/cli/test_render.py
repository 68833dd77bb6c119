"""Numbers into words."""

import pytest

from cluster.cli.render import Column, plain, seconds, size


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0 B"), (999, "999 B"), (1200, "1.2 kB"), (41_203_882, "41.2 MB"), (3e9, "3.0 GB")]
)
def test_sizes_have_a_unit(value, words):
    assert size(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0.0 s"), (12.51, "12.5 s"), (252, "4m12s"), (3600 * 3 + 300, "3h05m")]
)
def test_times_have_a_unit(value, words):
    assert seconds(value) == words


def test_columns_are_as_wide_as_their_widest_cell():
    columns = [Column("NAME", str), Column("N", str, right=True)]
    assert plain(columns, [["a", "100"], ["longer", "1"]]) == "NAME      N\na       100\nlonger    1"
