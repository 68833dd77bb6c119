"""Consumers: shares, order, filters, retries; and that whoever is cancelled or ends loses nothing."""

import itertools
import time

import anyio
import anyio.lowlevel
import pytest

from tests.python_client.helpers import collect, message, messages, numbers, queues_of, read, until
from twinlog.client import FlowLimits, From, PullConsumer, PushConsumer, RequestError, Sql, by_key


async def test_filters(client, topic):
    producer = client.producer(topic)
    for number in range(40):
        await producer.send(message(topic, number, tags="abcd"[number % 4], properties={"n": str(number)}))
    async with PushConsumer(client, f"{topic}-tags", {topic: "b || d"}, start=From.FIRST) as consumer:
        assert sorted(numbers(await collect(consumer, 20))) == list(range(1, 40, 2))
    async with PushConsumer(client, f"{topic}-sql", {topic: Sql("n >= 10 AND n < 20")}, start=From.FIRST) as consumer:
        assert sorted(numbers(await collect(consumer, 10))) == list(range(10, 20))
    with pytest.raises(RequestError):
        async with PushConsumer(client, f"{topic}-bad", {topic: Sql("n >")}):
            pass


async def test_two_consumers_share_the_queues(client, other, topic):
    """When a second one joins, the queues are split; when it leaves, the first has all of them again."""
    producer = client.producer(topic)
    got: dict[str, list] = {"one": [], "two": []}

    async def take_all(name: str, consumer: PushConsumer) -> None:
        async for batch in consumer:
            got[name] += batch

    async with (
        anyio.create_task_group() as task_group,
        PushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as one,
    ):
        task_group.start_soon(take_all, "one", one)
        async with PushConsumer(other, topic, {topic: "*"}, start=From.FIRST) as two:
            task_group.start_soon(take_all, "two", two)
            await until(lambda: [len(queues_of(each, topic)) for each in (one, two)] == [2, 2])
            assert not queues_of(one, topic) & queues_of(two, topic)
            await producer.send_all(messages(topic, range(200)))
            await until(lambda: {int(each.body) for each in got["one"] + got["two"]} == set(range(200)))
            assert all(got.values())
        await until(lambda: len(queues_of(one, topic)) == 4)
        await producer.send_all(messages(topic, range(200, 240)))
        await until(lambda: {int(each.body) for each in got["one"]} >= set(range(200, 240)))
    # Iterations end with their consumers, so that this line is reached.


async def test_ordered(client, topic):
    """Each key's messages come in order, also after one of them has failed twice."""
    producer = client.producer(topic)
    for number in range(80):
        await producer.send(message(topic, number, keys=str(number % 5)), select=by_key(str(number % 5)))
    seen: list[int] = []
    failures = itertools.count()

    async def handle(batch) -> None:
        (each,) = batch
        if int(each.body) == 20 and next(failures) < 2:
            raise ValueError("not yet")
        await anyio.sleep(0.001)
        seen.append(int(each.body))

    options = {"ordered": True, "handler": handle, "start": From.FIRST, "suspend_seconds": 0.1}
    async with PushConsumer(client, topic, {topic: "*"}, **options):
        await until(lambda: len(seen) == 80)
    for key in range(5):
        mine = [number for number in seen if number % 5 == key]
        assert mine == sorted(mine)
    assert next(failures) == 3


async def test_broadcasting(client, other, topic, tmp_path):
    """Both get everything, and each goes on where its own file says."""
    producer = client.producer(topic)
    await producer.send_all(messages(topic, range(20)))

    def reader(client, name: str) -> PushConsumer:
        file = tmp_path / name / "offsets.json"
        return PushConsumer(client, topic, {topic: "*"}, start=From.FIRST, broadcasting=True, offset_file=file)

    async with reader(client, "one") as one, reader(other, "two") as two:
        for each in (one, two):
            assert sorted(numbers(await collect(each, 20))) == list(range(20))
    await producer.send_all(messages(topic, range(20, 24)))
    async with reader(client, "one") as one:
        assert sorted(numbers(await collect(one, 4))) == list(range(20, 24))


async def test_failures_come_again_and_end_as_dead_letters(client, topic):
    sent = await client.producer(topic).send(message(topic, 1, keys="k"))
    tries: list[tuple[str, str, int]] = []

    async def handle(batch) -> None:
        tries.extend((each.topic, each.message_id, each.reconsume_times) for each in batch)
        raise ValueError("never")

    options = {"handler": handle, "start": From.FIRST, "reconsume_times_max": 1}
    async with PushConsumer(client, topic, {topic: "*"}, **options):
        await until(lambda: len(tries) == 2)
        assert tries == [(topic, sent.message_id, times) for times in range(2)]
        dead = f"%DLQ%{topic}"
        async with PullConsumer(client, f"{topic}-dead", start=From.FIRST) as undertaker:
            await until(lambda: client.routes.find(dead))
            await undertaker.assign(await undertaker.queues(dead))
            (found,) = await undertaker.poll(timeout_seconds=10)
    assert (found.body, found.keys, found.message_id) == (b"1", "k", sent.message_id)


async def test_pulling(client, topic):
    """Positions are the program's own: committed, sought, and found again."""
    producer = client.producer(topic)
    queue = (await producer.queues(topic))[1]
    await producer.send_batch(messages(topic, range(50)), queue=queue)
    async with PullConsumer(client, topic, start=From.FIRST, auto_commit=False) as consumer:
        await consumer.assign([queue])
        assert await read(consumer, 20) == list(range(20))
        await consumer.commit()
        assert await read(consumer, 30) == list(range(20, 50))
        await consumer.seek(queue, 45)
        assert await read(consumer, 5) == list(range(45, 50))
        assert await consumer.poll(timeout_seconds=0.2) == []
    async with PullConsumer(client, topic, start=From.FIRST) as consumer:
        await consumer.assign([queue])
        assert await read(consumer, 30) == list(range(20, 50))


async def test_cancelled_in_a_batch_nothing_is_lost(client, topic):
    """Handlers and iterations that are cut short get their messages again; what was done before does not come again."""
    await client.producer(topic).send_batch(messages(topic, range(40)))
    done: list[int] = []

    async def handle(batch) -> None:
        if len(done) >= 10:
            await anyio.sleep_forever()
        done.extend(numbers(batch))

    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST, handler=handle, workers=2):
        await until(lambda: len(done) >= 10)
    first = list(done)
    with anyio.move_on_after(0.2) as scope:
        async with PushConsumer(client, topic, {topic: "*"}, batch_max=4) as consumer:
            async for batch in consumer:
                done += numbers(batch)
                await batch.done()
                async for _later in consumer:
                    await anyio.sleep_forever()
    assert scope.cancelled_caught
    async with PushConsumer(client, topic, {topic: "*"}) as consumer:
        rest = numbers(await collect(consumer, 40 - len(done)))
    assert set(first) <= set(done)
    assert sorted(done + rest) == list(range(40))


async def test_a_handler_that_never_waits_leaves_the_loop_to_others(client, topic):
    await client.producer(topic).send_batch([message(topic, number) for number in range(400)])
    seen, turns = 0, [0]

    async def handle(batch) -> None:
        nonlocal seen
        time.sleep(0.001)  # noqa: ASYNC251
        seen += 1

    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST, handler=handle):
        with anyio.fail_after(40):
            while seen < 200:
                await anyio.lowlevel.checkpoint()
                turns.append(seen)
    assert max(later - earlier for earlier, later in itertools.pairwise(turns)) <= 4
    assert seen < 300, "it ends soon, though more messages are there"


async def test_flow_limits_hold_back_what_is_read_ahead(client, topic):
    """A consumer that handles nothing holds some messages, not all; when it goes on, all come."""
    await client.producer(topic).send_batch([message(topic, number) for number in range(2000)])
    seen: list[int] = []
    go_on = anyio.Event()

    async def handle(batch) -> None:
        await go_on.wait()
        seen.extend(numbers(batch))

    limits = FlowLimits(messages_max=100)
    options = {"start": From.FIRST, "handler": handle, "batch_max": 32, "workers": 4, "limits": limits}
    async with PushConsumer(client, topic, {topic: "*"}, **options) as consumer:
        held = lambda: [each.held.count for each in consumer.assignment.readers.values()]  # noqa: E731
        await until(lambda: sum(held()) > 100)
        await anyio.sleep(0.3)
        assert max(held()) <= 100 + 32  # A pull is at most 32 messages.
        go_on.set()
        await until(lambda: len(seen) >= 2000)
    assert sorted(seen) == list(range(2000))
