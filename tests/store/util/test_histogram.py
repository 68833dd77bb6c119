"""Durations: none is lost between buckets, and the last minute is distinguished from all before."""

import pytest

from twinlog.store.util.histogram import BOUNDS, Histogram, percentile


@pytest.mark.parametrize(
    ("seconds", "bound"), [(0.0, 0.0001), (0.0001, 0.0001), (0.0002, 0.00025), (11.0, float("inf"))]
)
def test_each_lands_below_the_first_bound_that_it_does_not_exceed(seconds, bound):
    histogram = Histogram()
    histogram.note(seconds, 3)
    assert histogram.counts[BOUNDS.index(bound)] == 3 == sum(histogram.counts)
    assert histogram.sum == pytest.approx(3 * seconds)


def test_a_run_in_one_bucket_is_exact():
    """As nearly always, where one acknowledgement releases many producers."""
    histogram = Histogram()
    histogram.note_run(0.0009, 0.0006, 1000)
    assert histogram.counts[BOUNDS.index(0.001)] == 1000
    assert histogram.sum == pytest.approx(0.75)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_a_run_over_several_buckets_loses_nobody(count):
    histogram = Histogram()
    histogram.note_run(3.0, 0.00005, count)
    assert sum(histogram.counts) == count
    assert all(each >= 0 for each in histogram.counts)
    assert not sum(histogram.counts[BOUNDS.index(5.0) + 1 :]), "longer than the longest"


def test_only_the_last_minute_is_recent():
    histogram = Histogram()
    histogram.note(0.2, 50)
    for second in range(120):
        histogram.sample(second)
        if second == 100:
            histogram.note(0.001, 8)
    assert sum(histogram.recent()) == 8
    assert sum(histogram.taken().counts) == 58


def test_all_is_recent_in_the_first_minute():
    """Also what came before the first look."""
    histogram = Histogram()
    histogram.note(0.001)
    for second in range(50):
        assert sum(histogram.recent()) == 1
        histogram.sample(second)


def test_percentiles_lie_in_their_bucket():
    histogram = Histogram()
    histogram.note(0.0004, 90)
    histogram.note(0.04, 10)
    assert 0.00025 < percentile(histogram.counts, 0.5) <= 0.0005
    assert 0.025 < percentile(histogram.counts, 0.99) <= 0.05


def test_what_nobody_waited_for_has_no_percentile():
    assert percentile(Histogram().counts, 0.5) is None


def test_longer_than_all_bounds_is_told_as_the_last_one():
    histogram = Histogram()
    histogram.note(60.0)
    assert percentile(histogram.counts, 0.99) == 10.0
