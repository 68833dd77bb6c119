"""A test that hangs must fail and say where. Nobody would miss this part of tests/conftest.py until it is needed."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import cancelled_when_late


async def waits_in_a_child() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)


async def test_a_late_test_is_cancelled_and_its_tasks_are_shown():
    with pytest.raises(pytest.fail.Exception, match="in waits_in_a_child") as failure:
        await cancelled_when_late(waits_in_a_child, limit_s=0.05)()
    assert "still waiting after" in str(failure.value)


async def test_virtual_time_does_not_count(autojump_clock):
    await cancelled_when_late(trio.sleep, limit_s=5)(3600)
    assert trio.current_time() == 3600


@given(st.integers())
async def test_properties_may_be_async(number):
    await trio.lowlevel.checkpoint()
    assert number == int(str(number))
