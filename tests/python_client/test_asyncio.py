"""What only asyncio has: tasks that are cancelled by themselves, loops that close, loops that run already."""

import ast
import asyncio
import inspect
import threading
from contextlib import suppress
from types import CodeType
from typing import Any

import pytest

from tests.python_client.helpers import ACCOUNT, collect, message, messages, numbers, read, until, with_ours
from twinlog.client import Client, From, PullConsumer, PushConsumer, SendResult, make_signer

pytestmark = with_ours


@pytest.mark.loops("asyncio", "uvloop")
async def test_a_cancelled_task_in_a_batch_loses_nothing(client, topic):
    """Task.cancel(), in a loop over batches and in a handler's task."""
    await client.producer(topic).send_batch(messages(topic, range(40)))
    done: list[int] = []

    async def work() -> None:
        async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST, batch_max=4) as consumer:
            async for batch in consumer:
                if len(done) >= 12:
                    await asyncio.sleep(60)
                await batch.done()
                done.extend(numbers(batch))

    task = asyncio.create_task(work())
    await until(lambda: len(done) >= 12)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with PushConsumer(client, topic, {topic: "*"}) as consumer:
        rest = numbers(await collect(consumer, 40 - len(done)))
    assert sorted(done + rest) == list(range(40))


@pytest.mark.loops("asyncio", "uvloop")
async def test_limits_of_time_lose_nothing(client, topic):
    """asyncio.timeout and wait_for, around waiting for messages, and around the blocks of consumers."""
    producer = client.producer(topic)
    queue = (await producer.queues(topic))[0]
    async with PullConsumer(client, topic, start=From.FIRST) as consumer:
        await consumer.assign([queue])
        for number in range(10):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(), 0.01)
            await producer.send(message(topic, number), queue=queue)
            assert await read(consumer, 1) == [number]

    async def hang_in_a_batch() -> None:
        async with asyncio.timeout(0.1), PushConsumer(client, f"{topic}-push", {topic: "*"}, start=From.FIRST) as push:
            async for _batch in push:
                await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await hang_in_a_batch()
    async with PushConsumer(client, f"{topic}-push", {topic: "*"}, start=From.FIRST) as push:
        assert sorted(numbers(await collect(push, 10))) == list(range(10))


@pytest.mark.loops("asyncio", "uvloop")
async def test_cancelled_sends_leave_the_connection_whole(broker, client, topic):
    """Tasks that are cancelled at any moment of a send; what others sent is there, and what was acknowledged, too."""
    producer = client.producer(topic)
    await producer.send(message(topic, 0))
    acknowledged: list[str] = []

    async def send(number: int) -> None:
        acknowledged.append((await producer.send(message(topic, number, keys="x" * 5000))).message_id)

    tasks = [asyncio.create_task(send(number)) for number in range(1, 300)]
    for number, task in enumerate(tasks):
        if number % 3 == 0:
            if number % 2:
                await asyncio.sleep(0)
            task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in ends} == {type(None), asyncio.CancelledError}
    assert len(acknowledged) >= 199
    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
        found: set[str] = set()
        async for batch in consumer:
            found.update(each.message_id for each in batch)
            if found >= set(acknowledged):
                break
    assert client.remoting.connected_seconds(broker.address) > 0


def made(broker) -> Client:
    return Client(broker.namesrv, sign=make_signer(ACCOUNT))


def stored(broker, topic: str) -> set[str]:
    """The ids of all messages of a topic, by a client of its own."""

    async def main() -> set[str]:
        async with made(broker) as client:
            stats = await client.api.topic_stats(broker.address, topic)
            count = sum(each.max_offset for each in stats.values())
            async with PushConsumer(client, f"{topic}-all", {topic: "*"}, start=From.FIRST, batch_max=32) as consumer:
                return {each.message_id for each in await collect(consumer, count)}

    return asyncio.run(main())


@pytest.mark.parametrize("ends", ["returns", "fails", "stops"])
def test_a_loop_that_ends_with_messages_under_way(broker, topic, ends):
    """asyncio.run() returns soon, also when nobody leaves the client; all that was acknowledged is stored."""
    client = made(broker)
    acknowledged: list[str] = []

    async def send_for_ever(number: int) -> None:
        producer = client.producer(topic)
        while True:
            acknowledged.append((await producer.send(message(topic, number))).message_id)

    async def main() -> None:
        await client.open()
        consumer = PushConsumer(client, topic, {topic: "*"}, start=From.FIRST)
        tasks = [asyncio.create_task(send_for_ever(number)) for number in range(20)]
        while len(acknowledged) < 100:
            await asyncio.sleep(0.01)
        await consumer.open()
        tasks.append(asyncio.create_task(consumer.take()))
        if ends == "fails":
            raise ZeroDivisionError
        if ends == "stops":
            asyncio.get_running_loop().stop()
            await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    why = {"returns": (), "fails": ZeroDivisionError, "stops": RuntimeError}[ends]  # "Event loop stopped before ..."
    with suppress(why), asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert loop.is_closed()
    assert set(acknowledged) <= stored(broker, topic)


def test_a_client_of_another_loop_is_refused(broker, topic):
    """Of one that is over, and of one that runs in another thread: told, not waited for."""
    client = made(broker)

    async def use() -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await client.producer(topic).send(message(topic, 1))
        with pytest.raises(RuntimeError, match="another event loop"):
            await client.producer(topic).send_all([message(topic, 1)])
        with pytest.raises(RuntimeError, match="started before"):
            await client.open()

    async def main() -> None:
        async with client:
            await client.producer(topic).send(message(topic, 1))
            await asyncio.to_thread(asyncio.run, use())
            assert isinstance(await client.producer(topic).send(message(topic, 2)), SendResult)

    asyncio.run(main())
    asyncio.run(use())


def test_a_loop_that_is_closed_as_it_stands(broker, topic):
    """run_until_complete() and close(), as in old programs, with nobody to cancel what runs."""
    client = made(broker)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # It tells of tasks that it destroys.

    async def main() -> SendResult:
        await client.open()
        return await client.producer(topic).send(message(topic, 1))

    sent = loop.run_until_complete(main())
    loop.close()
    assert stored(broker, topic) == {sent.message_id}
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(client.producer(topic).send(message(topic, 2)))


CELLS = [
    "from twinlog.client import *",
    "client = await Client(namesrv, sign=make_signer(account)).open()",
    "sent = [await client.producer('P').send(OutgoingMessage(topic=topic, body=b'%d' % n)) for n in range(3)]",
    "consumer = await PushConsumer(client, topic, {topic: '*'}, start=From.FIRST).open()",
    """
found = []
async for batch in consumer:
    found += batch
    if len(found) == 3:
        break
""",
    "await consumer.aclose()",
    "await client.aclose()",
    """
async with Client(namesrv, sign=make_signer(account)) as other:
    sent.append(await other.producer('P').send(OutgoingMessage(topic=topic, body=b'3')))
""",
]


def test_cells_of_a_notebook(broker, topic):
    """The loop runs already, and each cell is a task of its own, as IPython's are (`await` at the top of a cell)."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    names: dict[str, Any] = {"namesrv": broker.namesrv, "account": ACCOUNT, "topic": topic}

    async def run_cell(code: CodeType) -> None:
        result = eval(code, names)
        if inspect.iscoroutine(result):
            await result

    try:
        for cell in CELLS:
            code = compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            asyncio.run_coroutine_threadsafe(run_cell(code), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
    assert sorted(int(each.body) for each in names["found"]) == [0, 1, 2]
    assert {each.message_id for each in names["sent"]} == stored(broker, topic)
