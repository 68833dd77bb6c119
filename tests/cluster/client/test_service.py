"""Services of the client in `async with` blocks, and on asyncio apart from one."""

import asyncio

import anyio
import pytest
import trio
from attrs import define, field

from twinlog.cluster.client.service import Service

SECONDS_MAX = 5.0
LOOPS = {"asyncio": asyncio.run, "trio": lambda coroutine: trio.run(lambda: coroutine)}
on_both = pytest.mark.parametrize("run", LOOPS.values(), ids=LOOPS)


@define(eq=False)
class Example(Service):
    """Notes what happens to it; fails when `failure` is set, or at once."""

    fails_at_once: bool = False
    seen: list[str] = field(factory=list)
    failure: anyio.Event = field(factory=anyio.Event)

    async def run(self, *, task_status=anyio.TASK_STATUS_IGNORED):
        if self.fails_at_once:
            raise ValueError("not ready")
        self.seen.append("ready")
        try:
            task_status.started()
            await self.failure.wait()
            raise ValueError("failed later")
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.01)
                self.seen.append("left")


def bounded(main):
    """The coroutine with a time limit."""

    async def run():
        with anyio.fail_after(SECONDS_MAX):
            return await main()

    return run()


@on_both
def test_it_runs_as_long_as_the_block(run):
    async def main():
        async with Example() as example:
            assert example.seen == ["ready"]
        assert example.seen == ["ready", "left"]

    run(bounded(main))


@on_both
def test_an_error_of_the_block_is_raised_itself_after_it_has_left(run):
    example = None

    async def main():
        nonlocal example
        example = Example()
        async with example:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(bounded(main))
    assert example.seen == ["ready", "left"]


@on_both
def test_its_error_before_it_is_ready_is_raised_itself(run):
    async def main():
        async with Example(fails_at_once=True):
            pytest.fail("the block does not begin")

    with pytest.raises(ValueError, match="not ready"):
        run(bounded(main))


@on_both
def test_its_error_ends_the_block(run):
    async def main():
        async with Example() as example:
            example.failure.set()
            await anyio.sleep_forever()

    with pytest.raises(ValueError, match="failed later"):
        run(bounded(main))


@on_both
def test_a_time_limit_around_the_block_lets_it_leave(run):
    async def main():
        with anyio.move_on_after(0.05):
            async with Example() as example:
                await anyio.sleep_forever()
        assert example.seen == ["ready", "left"]

    run(bounded(main))


@on_both
def test_a_second_start_is_refused(run):
    async def main():
        async with Example() as example:
            pass
        with pytest.raises(RuntimeError, match="make another one"):
            await example.__aenter__()

    run(bounded(main))


def test_a_limit_of_asyncio_lets_it_leave():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), Example() as example:
                await asyncio.sleep(SECONDS_MAX)
        assert example.seen == ["ready", "left"]

    asyncio.run(bounded(main))


def test_one_task_opens_it_and_another_closes_it():
    async def main():
        example = await asyncio.create_task(Example().open())
        assert example.seen == ["ready"]
        await asyncio.create_task(example.aclose())
        assert example.seen == ["ready", "left"]

    asyncio.run(bounded(main))


def test_a_block_is_left_by_another_task_than_entered_it():
    async def main():
        example = await asyncio.create_task(Example().__aenter__())
        await asyncio.create_task(example.__aexit__(None, None, None))
        assert example.seen == ["ready", "left"]

    asyncio.run(bounded(main))


def test_its_error_after_open_is_raised_by_aclose():
    async def main():
        example = await Example().open()
        example.failure.set()
        await asyncio.sleep(0.05)
        with pytest.raises(ValueError, match="failed later"):
            await example.aclose()

    asyncio.run(bounded(main))


def test_within_itself_aclose_does_not_wait():
    @define(eq=False)
    class Closing(Example):
        async def run(self, *, task_status=anyio.TASK_STATUS_IGNORED):
            task_status.started()
            await self.aclose()
            self.seen.append("went on")
            await anyio.sleep_forever()

    async def main():
        example = await Closing().open()
        await asyncio.sleep(0.05)
        assert example.seen == ["went on"]
        await example.aclose()

    asyncio.run(bounded(main))


def test_a_loop_that_ends_ends_it():
    example = Example()

    async def main():
        await example.open()

    asyncio.run(main())
    assert example.seen == ["ready", "left"]


def test_trio_opens_nothing_without_a_nursery():
    async def main():
        with pytest.raises(RuntimeError, match="async with"):
            await Example().open()

    trio.run(main)
