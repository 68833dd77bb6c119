"""Tasks that wait for batches: one at a time is woken, and no message waits beside a task that sleeps."""

import asyncio

import trio
import trio.testing

from twinlog.cluster.client.consume.waiting import WaitingTasks


class Work:
    """Things to do, and the tasks that wait for them."""

    def __init__(self, nursery, tasks: int) -> None:
        self.waiting, self.there, self.done, self.woken = WaitingTasks(), 0, 0, 0
        self.scopes = [trio.CancelScope() for _ in range(tasks)]
        for scope in self.scopes:
            nursery.start_soon(self._task, scope)

    async def _task(self, scope) -> None:
        with scope:
            while True:
                while not self.there:
                    await self.waiting.wait(trio.Event)
                    self.woken += 1
                self.there -= 1
                if self.there:
                    self.waiting.wake_one()
                self.done += 1
                await trio.sleep(1)

    def arrive(self, count: int) -> None:
        self.there += count
        self.waiting.wake_one()


async def test_one_task_comes_for_one_arrival(nursery, autojump_clock):
    work = Work(nursery, 3)
    await trio.sleep(1)
    work.arrive(1)
    work.arrive(0)
    await trio.sleep(0.5)
    assert (work.done, work.woken) == (1, 1)
    nursery.cancel_scope.cancel()


async def test_as_many_come_as_there_is_work(nursery, autojump_clock):
    work = Work(nursery, 3)
    await trio.sleep(1)
    work.arrive(5)
    await trio.sleep(0.5)
    assert work.done == 3
    await trio.sleep(1)
    assert work.done == 5
    nursery.cancel_scope.cancel()


async def test_one_that_is_cancelled_leaves_the_line(nursery, autojump_clock):
    work = Work(nursery, 2)
    await trio.sleep(1)
    work.scopes[0].cancel()
    await trio.sleep(1)
    work.arrive(1)
    await trio.sleep(0.5)
    assert work.done == 1
    nursery.cancel_scope.cancel()


def test_one_that_is_cancelled_on_its_way_wakes_another():
    """asyncio cancels a task also between its event and its next step."""

    async def main() -> None:
        waiting = WaitingTasks()
        first, second = (asyncio.create_task(waiting.wait(asyncio.Event)) for _ in range(2))
        await asyncio.sleep(0)
        waiting.wake_one()
        first.cancel()
        await asyncio.wait_for(second, 1)
        assert first.cancelled()

    asyncio.run(main())


async def test_all_are_told_the_end(nursery):
    waiting, ended = WaitingTasks(), []

    async def wait() -> None:
        await waiting.wait(trio.Event)
        ended.append(1)

    async with trio.open_nursery() as inner:
        for _ in range(3):
            inner.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        waiting.wake_all()
    assert len(ended) == 3
