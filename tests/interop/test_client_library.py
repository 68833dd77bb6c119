"""cluster/client against a twinlog broker and against the real 4.9.7: one set of tests, and Java on the other side of some."""

import itertools
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import Tool
from tests.support.clients.remoting import create_topic
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS, BrokerProcess
from twinlog.client import (
    Client,
    Decision,
    From,
    MessageQueue,
    OutgoingMessage,
    PullConsumer,
    PushConsumer,
    Requester,
    SendResult,
    SendStatus,
    Sql,
    TransactionProducer,
    by_key,
    reply,
)
from twinlog.cluster.remoting.errors import RemotingTimeoutError, RequestError

# Every delay is a second: messages come again, and die, within a test's time.
SETTINGS = {
    **TEST_SETTINGS,
    "messageDelayLevel": " ".join(["1s"] * 18),
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "500",
    "enablePropertyFilter": "true",
}


@pytest.fixture(scope="module", params=["twinlog", "rocketmq"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A single ASYNC_MASTER, ours or the real one, behind a name server of its kind."""
    root = tmp_path_factory.mktemp(request.param)
    kind = twinlog if request.param == "twinlog" else rocketmq
    with (
        kind.NameServer(root / "namesrv") as namesrv,
        kind.Broker(root / "broker", namesrv.address, settings=SETTINGS) as started,
    ):
        yield started


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """One of four queues, used by no other test; groups get its name, too."""
    name = f"T-{uuid.uuid4().hex[:12]}"
    create_topic(broker.address, name)
    return name


@pytest.fixture
async def client(broker: BrokerProcess):
    async with Client(broker.namesrv) as running:
        yield running


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    home = tmp_path_factory.mktemp("java")
    rocketmq.make_home(home)
    with JavaClient(home, jvm_options=[f"-Drocketmq.home.dir={home}"]) as client:
        yield client


def message(topic: str, number: int, **more) -> OutgoingMessage:
    return OutgoingMessage(topic=topic, body=b"%d" % number, **more)


async def collect(consumer: PushConsumer, count: int, *, seconds: float = 40) -> list:
    """So many messages, each settled."""
    found: list = []
    with trio.fail_after(seconds):
        async for batch in consumer:
            found += batch
            await batch.done()
            if len(found) >= count:
                return found
    raise AssertionError("a consumer does not end by itself")


def numbers(messages) -> list[int]:
    return [int(each.body) for each in messages]


async def test_every_way_to_send(client: Client, topic: str) -> None:
    """One by one, in batches, at once, oneway, to a queue: all arrive whole, with all that they carry."""
    producer = client.producer(topic)
    large = bytes(range(256)) * 64
    first = await producer.send(
        OutgoingMessage(topic=topic, body=large, tags="a", keys="k1 k2", properties={"city": "Köln"}, flag=7)
    )
    assert (first.status, first.queue.topic) == (SendStatus.SEND_OK, topic)
    batch = [message(topic, number, tags="b") for number in range(100)]
    assert len(await producer.send_batch(batch, size_max=4096)) > 1
    many = await producer.send_all(message(topic, number) for number in range(100, 1100))
    assert all(isinstance(each, SendResult) and each.status is SendStatus.SEND_OK for each in many)
    assert len({each.message_id for each in many if isinstance(each, SendResult)}) == 1000
    await producer.send_oneway(message(topic, 1100))
    chosen = MessageQueue(topic, first.queue.broker_name, 3)
    assert (await producer.send(message(topic, 1101), queue=chosen)).queue == chosen
    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST, batch_max=32) as consumer:
        found = await collect(consumer, 1103)
    by_body = {each.body: each for each in found}
    whole = by_body.pop(large)
    assert (whole.tags, whole.keys, whole.properties["city"], whole.flag) == ("a", "k1 k2", "Köln", 7)
    assert (whole.message_id, whole.body_problem) == (first.message_id, None)
    assert sorted(map(int, by_body)) == list(range(1102))


async def test_filters(client: Client, topic: str) -> None:
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


async def test_two_consumers_share_the_queues(broker: BrokerProcess, client: Client, topic: str) -> None:
    """When a second one joins, the queues are split; when it leaves, the first has all of them again."""
    producer = client.producer(topic)
    got: dict[str, list] = {"one": [], "two": []}

    async def read(name: str, consumer: PushConsumer) -> None:
        async for batch in consumer:
            got[name] += batch

    async with (
        Client(broker.namesrv) as other,
        trio.open_nursery() as nursery,
        PushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as one,
    ):
        nursery.start_soon(read, "one", one)
        async with PushConsumer(other, topic, {topic: "*"}, start=From.FIRST) as two:
            nursery.start_soon(read, "two", two)
            await until(lambda: [len(_queues(each, topic)) for each in (one, two)] == [2, 2])
            assert not _queues(one, topic) & _queues(two, topic)
            await producer.send_all(message(topic, number) for number in range(200))
            await until(lambda: {int(each.body) for each in got["one"] + got["two"]} == set(range(200)))
            assert all(got.values())
        await until(lambda: len(_queues(one, topic)) == 4)
        await producer.send_all(message(topic, number) for number in range(200, 240))
        await until(lambda: {int(each.body) for each in got["one"]} >= set(range(200, 240)))
        nursery.cancel_scope.cancel()


def _queues(consumer: PushConsumer, topic: str) -> set[MessageQueue]:
    return {queue for queue in consumer.assignment.readers if queue.topic == topic}


async def until(condition, seconds: float = 40) -> None:
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(0.05)


async def test_a_group_goes_on_where_it_left(client: Client, topic: str) -> None:
    producer = client.producer(topic)
    await producer.send_all(message(topic, number) for number in range(40))
    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
        await collect(consumer, 40)
    await producer.send_all(message(topic, number) for number in range(40, 60))
    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
        assert sorted(numbers(await collect(consumer, 20))) == list(range(40, 60))


async def test_ordered(client: Client, topic: str) -> None:
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
        await trio.sleep(0.001)
        seen.append(int(each.body))

    options = {"ordered": True, "handler": handle, "start": From.FIRST, "suspend_seconds": 0.1}
    async with PushConsumer(client, topic, {topic: "*"}, **options):
        await until(lambda: len(seen) == 80)
    for key in range(5):
        mine = [number for number in seen if number % 5 == key]
        assert mine == sorted(mine)
    assert next(failures) == 3


async def test_broadcasting(broker: BrokerProcess, client: Client, topic: str, tmp_path: Path) -> None:
    """Both get everything, and each goes on where its own file says."""
    producer = client.producer(topic)
    await producer.send_all(message(topic, number) for number in range(20))

    def reader(client: Client, name: str) -> PushConsumer:
        file = tmp_path / name / "offsets.json"
        return PushConsumer(client, topic, {topic: "*"}, start=From.FIRST, broadcasting=True, offset_file=file)

    async with Client(broker.namesrv) as other:
        async with reader(client, "one") as one, reader(other, "two") as two:
            for each in (one, two):
                assert sorted(numbers(await collect(each, 20))) == list(range(20))
        await producer.send_all(message(topic, number) for number in range(20, 24))
        async with reader(client, "one") as one:
            assert sorted(numbers(await collect(one, 4))) == list(range(20, 24))


async def test_failures_come_again_and_end_as_dead_letters(client: Client, topic: str) -> None:
    sent = await client.producer(topic).send(message(topic, 1, keys="k"))
    tries: list[tuple[str, str, int]] = []

    async def handle(batch) -> None:
        tries.extend((each.topic, each.message_id, each.reconsume_times) for each in batch)
        raise ValueError("never")

    options = {"handler": handle, "start": From.FIRST, "reconsume_times_max": 2}
    async with PushConsumer(client, topic, {topic: "*"}, **options):
        await until(lambda: len(tries) == 3, 60)
        assert tries == [(topic, sent.message_id, times) for times in range(3)]
        dead = f"%DLQ%{topic}"
        async with PullConsumer(client, f"{topic}-dead", start=From.FIRST) as undertaker:
            with trio.fail_after(20):
                while await client.routes.find(dead) is None:
                    await trio.sleep(0.1)
                await undertaker.assign(await undertaker.queues(dead))
                (found,) = await undertaker.poll(timeout_seconds=10)
    assert (found.body, found.keys, found.message_id) == (b"1", "k", sent.message_id)


async def test_delay(client: Client, topic: str) -> None:
    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
        await client.producer(topic).send(message(topic, 1, delay_level=3))
        (found,) = await collect(consumer, 1)
    assert found.store_timestamp - found.born_timestamp >= 900


async def test_transactions(client: Client, topic: str) -> None:
    """Committed, rolled back by an error, and left open: then the broker asks, and the answer counts."""
    asked: list[int] = []

    async def check(half) -> Decision:
        asked.append(int(half.body))
        return Decision.COMMIT if int(half.body) == 3 else Decision.ROLLBACK

    producer = TransactionProducer(client, f"{topic}-producers", check)
    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST) as consumer:
        async with producer.begin(message(topic, 1)):
            pass
        with pytest.raises(ZeroDivisionError):
            async with producer.begin(message(topic, 2)):
                raise ZeroDivisionError
        for number in (3, 4):
            async with producer.begin(message(topic, number)) as transaction:
                transaction.leave_open()
        assert sorted(numbers(await collect(consumer, 2))) == [1, 3]
        await until(lambda: set(asked) == {3, 4})
    assert set(asked) == {3, 4}


async def test_pulling(client: Client, topic: str) -> None:
    """Positions are the program's own: committed, sought, and found again."""
    producer = client.producer(topic)
    queue = (await producer.queues(topic))[1]
    for number in range(50):
        await producer.send(message(topic, number), queue=queue)

    async def read(consumer: PullConsumer, count: int) -> list[int]:
        found: list[int] = []
        with trio.fail_after(20):
            while len(found) < count:
                found += numbers(await consumer.poll(count_max=10))
        return found

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


async def test_questions_and_replies(broker: BrokerProcess, client: Client, topic: str) -> None:
    answering = client.producer(f"{topic}-answers")

    async def answer(batch) -> None:
        for each in batch:
            await reply(answering, each, b"re: " + each.body, colour="blue")

    async with Client(broker.namesrv) as other:
        requester = Requester(other, f"{topic}-questions")
        with pytest.raises(RemotingTimeoutError):
            await requester.request(message(topic, 0), timeout_ms=200)
        async with PushConsumer(client, topic, {topic: "*"}, handler=answer):
            got = await requester.request(message(topic, 1), timeout_ms=20_000)
    assert (got.body, got.properties["colour"]) == (b"re: 1", "blue")


async def test_java_answers_and_asks(broker: BrokerProcess, client: Client, java: JavaClient, topic: str) -> None:
    options = {"group": f"{topic}-java", "namesrv": broker.namesrv, "topic": topic, "answer": "true"}
    handle = await trio.to_thread.run_sync(partial(java.new, "Questions", options))
    requester = Requester(client, f"{topic}-questions")
    got = await requester.request(message(topic, 7), timeout_ms=30_000)
    assert got.body == b"re: 7"
    await trio.to_thread.run_sync(partial(java.call, handle, "shutdown"))

    answering = client.producer(f"{topic}-answers")

    async def answer(batch) -> None:
        for each in batch:
            await reply(answering, each, b"python: " + each.body)

    asker = {"group": f"{topic}-asker", "namesrv": broker.namesrv, "answer": "false"}
    handle = await trio.to_thread.run_sync(partial(java.new, "Questions", asker))
    async with PushConsumer(client, topic, {topic: "*"}, handler=answer):
        text = await trio.to_thread.run_sync(partial(java.call, handle, "ask", topic=topic, text="8"))
    assert text == "python: 8"


async def test_java_and_we_share_a_group(broker: BrokerProcess, client: Client, java: JavaClient, topic: str) -> None:
    """Both compute the same shares; together they get everything that Java sends, packed bodies too."""
    ours: list[str] = []

    async def handle(batch) -> None:
        ours.extend(each.message_id for each in batch)

    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST, handler=handle) as consumer:
        theirs = await trio.to_thread.run_sync(partial(java.consumer, topic, broker.namesrv, topic))
        await until(lambda: len(_queues(consumer, topic)) == 2)
        producer = await trio.to_thread.run_sync(partial(java.producer, f"{topic}-java", broker.namesrv))
        sent = await trio.to_thread.run_sync(partial(producer.send, topic, 100, body_size=6000))

        async def all_arrived() -> set[str]:
            got = await trio.to_thread.run_sync(partial(theirs.consumed, 0))
            return {each.msg_id for each in got} | set(ours)

        with trio.fail_after(30):
            while await all_arrived() < {each.msg_id for each in sent}:
                await trio.sleep(0.1)
        assert ours
        await trio.to_thread.run_sync(theirs.shutdown)
        await trio.to_thread.run_sync(producer.shutdown)


async def _committed(consumer: PushConsumer, address: str, topic: str) -> int:
    """What the broker keeps of a group in all queues of a topic together."""
    api, queues = consumer.client.api, _queues(consumer, topic)
    return sum([await api.committed_offset(address, queue, consumer.group) or 0 for queue in queues])


async def test_mqadmin_sees_and_resets_our_consumer(
    broker: BrokerProcess, client: Client, java: JavaClient, topic: str
) -> None:
    """The real tools understand what it tells of itself, and what they order it does."""
    await client.producer(topic).send_all(message(topic, number) for number in range(10))
    seen: list[int] = []

    async def handle(batch) -> None:
        seen.extend(numbers(batch))

    tool = await trio.to_thread.run_sync(Tool, java, broker.namesrv)

    async def mqadmin(*arguments: str) -> str:
        printed, error = await trio.to_thread.run_sync(partial(tool.both, *arguments))
        assert printed, error  # It tells of failures on stderr alone.
        return printed

    async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST, handler=handle) as consumer:
        await until(lambda: sum(consumer.offsets.table.offsets.values()) == 10)
        # RocketMQ resets no group without an offset in each queue, and may handle a oneway commit of before after a later one.
        with trio.fail_after(10):
            while await _committed(consumer, broker.address, topic) != 10:
                consumer.offsets.table.store_all_again()
                await consumer.offsets.store()
        status = await mqadmin("consumerStatus", "-n", broker.namesrv, "-g", topic)
        assert client.client_id in status
        status = await mqadmin("consumerStatus", "-n", broker.namesrv, "-g", topic, "-i", client.client_id)
        assert "#Consumer MQ Detail#" in status
        assert topic in status
        reset = await mqadmin("resetOffsetByTime", "-n", broker.namesrv, "-g", topic, "-t", topic, "-s", "0")
        assert topic in reset or "broker-a" in reset
        await until(lambda: len(seen) == 20)
    assert sorted(seen) == sorted([*range(10), *range(10)])


@pytest.mark.parametrize("kind", [twinlog, rocketmq], ids=["twinlog", "rocketmq"])
async def test_a_dead_masters_messages_come_from_its_slave(kind, root: Path) -> None:
    """Also to a consumer that comes when the master is gone; one that was there before leaves without it."""
    with (
        kind.NameServer(root / "namesrv") as namesrv,
        kind.Broker(root / "master", namesrv.address, role="ASYNC_MASTER", settings=SETTINGS) as master,
        kind.Broker(root / "slave", namesrv.address, role="SLAVE", settings=SETTINGS) as slave,
    ):
        create_topic(master.address, "T")
        async with Client(namesrv.address) as client:
            before: list[int] = []

            async def handle(batch) -> None:
                before.extend(numbers(batch))

            sent = await client.producer("P").send_all(message("T", number) for number in range(40))
            end = max(int(each.offset_message_id[16:], 16) for each in sent if isinstance(each, SendResult))
            async with PushConsumer(client, "before", {"T": "*"}, start=From.FIRST, handler=handle):
                await until(lambda: sorted(set(before)) == list(range(40)))
                with trio.fail_after(30):
                    while not await has_record(client, slave.address, end):
                        await trio.sleep(0.1)
                    while not await knows_topic(client, slave.address):
                        await trio.sleep(0.2)
                await trio.to_thread.run_sync(master.kill)
                with trio.fail_after(40):
                    while (route := await client.api.topic_route("T")) is None or route.brokers["broker-a"].master:
                        await trio.sleep(0.1)
                async with (
                    Client(namesrv.address) as late,
                    PushConsumer(late, "late", {"T": "*"}, start=From.FIRST) as consumer,
                ):
                    found = await collect(consumer, 40, seconds=60)
            assert sorted(set(numbers(found))) == list(range(40))


async def has_record(client: Client, address: str, offset: int) -> bool:
    return await client.api.view_message(address, offset) is not None


async def knows_topic(client: Client, address: str) -> bool:
    try:
        return bool(await client.api.topic_stats(address, "T"))
    except RequestError:
        return False
