"""Several requests as one call."""

import pytest
import trio

from twinlog.cluster.client.tasks import in_parallel


async def test_results_come_in_the_order_of_the_calls(autojump_clock):
    async def after(seconds: float) -> float:
        await trio.sleep(seconds)
        return seconds

    assert await in_parallel((lambda s=s: after(s)) for s in (3, 1, 2)) == [3, 1, 2]
    assert trio.current_time() == 3


async def test_the_first_error_is_raised_as_it_is_and_ends_the_rest(autojump_clock):
    async def fail() -> None:
        await trio.sleep(1)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await in_parallel([trio.sleep_forever, fail])
    assert trio.current_time() == 1


async def test_none_at_all():
    assert await in_parallel([]) == []
