"""Valid and invalid units, in any number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.store.queue.layout import BLANK, UNIT, sound_units

SIZES = (1, 15, 16, 17, 255, 256, 300, 4095, 4096, 4097, 9000)


def units(count, first=0):
    return [UNIT.pack(first + n * 100, 100 - n % 2, -n) for n in range(count)]


@pytest.mark.parametrize("count", SIZES)
def test_sound_units(count):
    data = b"".join(units(count, first=50))
    end = 50 + (count - 1) * 100 + 100 - (count - 1) % 2
    assert sound_units(data, 50, end) == (count, end)
    assert sound_units(data + b"part", 0, end) == (count, end)
    assert sound_units(data, 50, end - 1)[0] == count - 1
    assert sound_units(data, 51, end) == (0, 51)


@given(
    count=st.sampled_from(SIZES),
    at=st.floats(0, 0.999),
    bad=st.sampled_from(
        [
            bytes(20),
            UNIT.pack(-1, 5, 0),
            UNIT.pack(5, 0, 0),
            UNIT.pack(5, -5, 9),
            UNIT.pack(1 << 60, 9, 0),
            b"\xff" * 20,
        ]
    ),
)
def test_the_first_bad_unit_ends_them(count, at, bad):
    good = units(count, first=1000)
    bad_at = int(at * count)
    data = b"".join((*good[:bad_at], bad, *good[bad_at + 1 :]))
    assert sound_units(data, 1000, 1 << 50)[0] == bad_at


@given(st.lists(st.booleans(), max_size=600))
def test_blanks_may_lie_anywhere(blanks):
    data = b"".join(BLANK if blank else unit for blank, unit in zip(blanks, units(len(blanks)), strict=True))
    last = max((n for n, blank in enumerate(blanks) if not blank), default=None)
    end = 0 if last is None else last * 100 + 100 - last % 2
    assert sound_units(data, 0, 1 << 50) == (len(blanks), end)


def test_a_message_inside_the_one_before_is_none():
    data = b"".join([*units(20), UNIT.pack(1950, 100, 0)])
    assert sound_units(data, 0, 1 << 50) == (20, 1999)
