"""Durations of writes: counted by the minute, shown as RocketMQ does."""

import pytest

from twinlog.store.log.put_service import PutTimes


def after_a_minute(times: PutTimes) -> PutTimes:
    times.rotate(60.0)
    return times


@pytest.fixture
def times():
    times = PutTimes()
    times.rotate(0.0)
    return times


def test_only_whole_minutes_are_shown(times):
    times.quick += 5
    assert "[<=0ms]:0 " in times.distribution()
    times.rotate(59.0)
    assert "[<=0ms]:0 " in times.distribution()
    times.rotate(60.0)
    assert times.distribution().startswith("[<=0ms]:5 [0~10ms]:0 [10~50ms]:0 ")
    times.rotate(120.0)
    assert "[<=0ms]:0 " in times.distribution()


@pytest.mark.parametrize(
    ("seconds", "name"),
    [
        (0.001, "[0~10ms]"),
        (0.012, "[10~50ms]"),
        (0.099, "[50~100ms]"),
        (0.150, "[100~200ms]"),
        (0.700, "[500ms~1s]"),
        (4.5, "[4~5s]"),
        (7.0, "[5~10s]"),
        (60.0, "[10s~]"),
    ],
)
def test_slow_ones_fall_into_their_bucket(times, seconds, name):
    times.note(seconds, 3)
    assert f"{name}:3 " in after_a_minute(times).distribution()
    assert after_a_minute(times).distribution().count(":0 ") >= 11


def test_percentiles(times):
    assert times.percentile_ms(0.99) == 0
    times.quick = 990
    times.note(0.150, 10)
    after_a_minute(times)
    assert times.percentile_ms(0.5) == pytest.approx(500 / 990)
    assert times.percentile_ms(0.99) == 1.0
    assert 140 < times.percentile_ms(0.999) <= 150


def test_beyond_the_last_bucket(times):
    times.note(99.0, 1)
    assert after_a_minute(times).percentile_ms(0.99) == 10_000


def test_the_longest_is_kept_for_good(times):
    times.note(0.25, 1)
    times.note(0.1, 1)
    times.rotate(60.0)
    times.rotate(120.0)
    assert times.longest_ms == 250
