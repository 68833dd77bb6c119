"""Masters that die in the middle, and masters that change: what was acknowledged is there, and everything goes on."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.python_client.helpers import create_topic, message, messages, until
from tests.support.process_group import twinlog
from tests.support.process_group.member import BrokerProcess
from tests.support.process_group.role_changes import change_role
from tests.support.process_group.roles import Group, running
from twinlog.client import Client, From, PushConsumer, RemotingError, SendResult


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that the test kills."""
    with (
        twinlog.NameServer(tmp_path / "namesrv") as namesrv,
        twinlog.Broker(tmp_path / "broker", namesrv.address) as started,
    ):
        yield started


async def test_a_broker_that_dies_in_the_middle_of_batches(mortal):
    """Sends that were under way fail, in time; acknowledged messages come to the consumer, which waits for the broker."""
    acknowledged: set[str] = set()
    failed: list[RemotingError] = []
    seen: set[str] = set()

    async def handle(batch) -> None:
        seen.update(each.message_id for each in batch)

    async with Client(mortal.namesrv, timeout_ms=1000) as client:
        await create_topic(client, mortal.address, "T")
        producer = client.producer("P")

        async def send_batches() -> None:
            while not failed:
                try:
                    for each in await producer.send_batch(messages("T", range(50)), size_max=2000):
                        acknowledged.update(each.message_id.split(","))
                except RemotingError as error:
                    failed.append(error)

        async def send_all() -> None:
            while not failed:
                for each in await producer.send_all(messages("T", range(400))):
                    if isinstance(each, SendResult):
                        acknowledged.add(each.message_id)
                    else:
                        failed.append(each)

        async with PushConsumer(client, "G", {"T": "*"}, start=From.FIRST, batch_max=8, handler=handle):
            with anyio.fail_after(15):
                async with anyio.create_task_group() as task_group:
                    task_group.start_soon(send_batches)
                    task_group.start_soon(send_all)
                    await until(lambda: len(acknowledged) > 2000)
                    mortal.kill()
            assert failed
            await anyio.to_thread.run_sync(mortal.start)
            await until(lambda: seen >= acknowledged)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """A master and its slave, which change places with each test."""
    with running(tmp_path_factory.mktemp("group")) as started:
        yield started


@pytest.mark.loops("asyncio", "trio")
async def test_routes_follow_a_switchover(group, tmp_path):
    """A producer and a consumer go on at the new master: each send ends well, and all messages come."""
    master = await anyio.to_thread.run_sync(group.master)
    (slave,) = [each for each in group.members if each is not master]
    topic = tmp_path.name
    acknowledged: set[str] = set()
    seen: set[str] = set()
    over = anyio.Event()

    async def handle(batch) -> None:
        seen.update(each.message_id for each in batch)

    async with Client(group.namesrv.address) as client:
        await create_topic(client, master.address, topic)
        producer = client.producer("P")

        async def send() -> None:
            while not over.is_set():
                acknowledged.add((await producer.send(message(topic, len(acknowledged)))).message_id)

        async with PushConsumer(client, topic, {topic: "*"}, start=From.FIRST, handler=handle):
            async with anyio.create_task_group() as task_group:
                task_group.start_soon(send)
                await until(lambda: len(seen) > 20)
                await anyio.to_thread.run_sync(change_role, "switchover", slave)
                count = len(acknowledged)
                await until(lambda: len(acknowledged) > count + 20)
                over.set()
            await until(lambda: seen >= acknowledged)
        # The one before passes on what is sent to it, until the new one has registered and the client has asked for its routes.
        while client.routes.address("broker-a", or_another=False) != slave.address:
            await anyio.sleep(0.1)
            await client.routes.refresh()
        await producer.send(message(topic, 0))
