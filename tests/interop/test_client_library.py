"""cluster/client with Java on the other side, at a twinlog broker and at the real 4.9.7; tests/python_client has the rest."""

import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.python_client.helpers import collect, message, numbers, queues_of, until
from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import Tool
from tests.support.clients.remoting import create_topic
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import QUICK_SLAVE, TEST_SETTINGS, BrokerProcess
from twinlog.client import (
    Client,
    From,
    PushConsumer,
    Requester,
    SendResult,
    reply,
)
from twinlog.cluster.remoting.errors import RequestError

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
        await until(lambda: len(queues_of(consumer, topic)) == 2)
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
    api, queues = consumer.client.api, queues_of(consumer, topic)
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
        kind.Broker(root / "slave", namesrv.address, role="SLAVE", settings=SETTINGS | QUICK_SLAVE) as slave,
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
