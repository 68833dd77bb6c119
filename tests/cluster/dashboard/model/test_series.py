"""Samples, and what their slope says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.dashboard.model.series import Sample, Series, catch_up_seconds, is_growing, slope


def sample(at, **lags):
    return Sample(at, {"lag_bytes": lags})


def test_what_is_old_is_forgotten():
    series = Series(seconds_kept=10)
    for at in range(100):
        series.add(sample(float(at), a=at))
    assert series.columns()["t"] == [float(at) for at in range(89, 100)]


def test_a_clock_that_is_set_back_keeps_times_in_order():
    series = Series()
    for at in (10.0, 11.0, 12.0, 10.5):
        series.add(sample(at, a=at))
    assert series.columns()["t"] == [10.0, 10.5]


def test_members_that_come_later_have_gaps():
    series = Series()
    series.add(sample(1.0, a=5))
    series.add(sample(2.0, a=6, b=7))
    assert series.columns()["lag_bytes"] == {"a": [5, 6], "b": [None, 7]}


def test_the_end_of_catching_up():
    """100 bytes a second over ten seconds, 500 left: five seconds."""
    points = [(float(t), 1500.0 - 100 * t) for t in range(11)]
    assert catch_up_seconds(points) == pytest.approx(5.0)


@pytest.mark.parametrize(
    "points",
    [[], [(0.0, 5.0), (1.0, 4.0)], [(float(t), 100.0 + t) for t in range(9)], [(float(t), 0.0) for t in range(9)]],
    ids=["nothing", "too few", "growing", "level"],
)
def test_no_end_in_sight(points):
    assert catch_up_seconds(points) is None


def test_noise_is_no_growth():
    assert not is_growing([(float(t), 1000.0 + t % 2) for t in range(15)])
    assert is_growing([(float(t), 1000.0 + 50 * t) for t in range(15)])


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e15)), max_size=30))
def test_whatever_the_samples_an_estimate_is_positive(points):
    """Also with all samples at one moment."""
    slope(points)
    found = catch_up_seconds(points)
    assert found is None or 0 <= found < 86_400


def test_a_gap_ends_the_stretch_that_is_looked_at():
    series = Series()
    for at, value in ((1.0, 9), (2.0, None), (3.0, 7), (4.0, 6)):
        series.add(sample(at, a=value))
    assert series.recent("lag_bytes", "a") == [(3.0, 7), (4.0, 6)]


def test_what_was_before_the_peak_does_not_spoil_the_estimate():
    """A slave that stood still and follows again: its lag rose until a moment ago."""
    rising = [(float(t), 1000.0 * t) for t in range(10)]
    falling = [(10.0 + t, 9000.0 - 1000.0 * t) for t in range(1, 5)]
    assert catch_up_seconds(rising + falling) == pytest.approx(5.0, rel=0.3)
    assert not is_growing(rising + falling)
