"""Formats of numbers, sizes and times."""

import pytest

from twinlog.cluster.text import about, count, latency, parse_size, seconds, size
from twinlog.store.util.text import counted


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1200, "1.2 kB"),
        (999_960, "1.0 MB"),
        (41_203_882, "41.2 MB"),
        (3e9, "3.0 GB"),
        (None, "\u2013"),
    ],
)
def test_sizes_have_a_unit(value, words):
    assert size(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0 s"),
        (0.44, "0.4 s"),
        (12.2, "12 s"),
        (252, "4 min 12 s"),
        (11_100, "3 h 05 min"),
        (200_000, "2 d 7 h"),
        (None, "\u2013"),
    ],
)
def test_times_have_a_unit(value, words):
    assert seconds(value) == words


def test_estimates_and_latencies():
    assert [about(each) for each in (0.2, 3.4, 43, 260, 9000)] == ["1 s", "3 s", "45 s", "4 min", "2 h"]
    assert [latency(each) for each in (0.00042, 0.012, 0.1574, 1.84)] == ["0.42 ms", "12 ms", "157 ms", "1.8 s"]


def test_counts_are_grouped():
    assert (count(41_203_882), count(1200, " "), counted(1, "slave", "slaves")) == (
        "41\u202f203\u202f882",
        "1 200",
        "1 slave",
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("500", 500), ("1kB", 1000), ("1KiB", 1024), ("1.5 MB", 1_500_000), ("2GiB", 2 << 30), ("7b", 7)],
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size
