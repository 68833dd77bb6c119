"""How old is what a slave lacks?"""

from hypothesis import given, settings
from hypothesis import strategies as st

from twinlog.ha.master.log_limit import LogLimit
from twinlog.ha.policy.lag import AppendStamps


def test_ages():
    stamps = AppendStamps()
    for offset, now in (100, 10.0), (200, 20.0), (200, 25.0), (300, 30.0):
        stamps.note(offset, now)
    assert stamps.age(300, 300, 40.0) == 0.0  # Lacks nothing.
    assert stamps.age(299, 300, 40.0) == 10.0
    assert stamps.age(200, 300, 40.0) == 10.0
    assert stamps.age(150, 300, 40.0) == 20.0
    assert stamps.age(99, 300, 40.0) is None  # From before the first stamp.
    assert stamps.age(300, 350, 40.0) == 0.0  # Appended just now, not stamped yet.


@settings(max_examples=30)
@given(st.integers(1, 50_000), st.floats(0, 1))
def test_old_stamps_get_thinner_and_stay_near_the_truth(count, where):
    """One byte each 0.1 s, up to more than an hour."""
    stamps = AppendStamps()
    for number in range(count):
        stamps.note(number, number * 0.1)
    ack = int(where * count)
    age = stamps.age(ack, count + 1, count * 0.1)
    assert age is not None
    assert (count - ack - 1) * 0.1 * 0.99 - 0.2 <= age <= (count - ack) * 0.1


def test_log_lines_are_limited_and_counted():
    limit = LogLimit(burst=3, per_second=0.5)
    assert [limit.allows(1.0) for _ in range(5)] == [True, True, True, False, False]
    assert limit.suppressed == 2
    assert not limit.allows(2.9)
    assert limit.allows(3.1)
