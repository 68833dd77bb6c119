"""Helpers of these tests, on any loop."""

from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable

import anyio
import pytest

from twinlog.client import (
    Client,
    Credentials,
    MessageQueue,
    OutgoingMessage,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
)
from twinlog.cluster.remoting.headers.broker_admin import UpdateAndCreateTopic

ACCOUNT = Credentials("operator", "operator-secret")


async def create_topic(client: Client, address: str, topic: str, *, queues: int = 4) -> None:
    header = UpdateAndCreateTopic(topic, "TBW102", queues, queues, 6, "SINGLE_TAG", False)
    await client.api.call(address, header, timeout_ms=10_000)


def message(topic: str, number: int, **more) -> OutgoingMessage:
    return OutgoingMessage(topic=topic, body=b"%d" % number, **more)


def messages(topic: str, numbers: Iterable[int]) -> list[OutgoingMessage]:
    return [message(topic, number) for number in numbers]


def numbers(found: Iterable[ReceivedMessage]) -> list[int]:
    return [int(each.body) for each in found]


async def collect(consumer: PushConsumer, count: int, *, seconds: float = 40) -> list[ReceivedMessage]:
    """So many messages, each settled."""
    found: list[ReceivedMessage] = []
    with anyio.fail_after(seconds):
        async for batch in consumer:
            found += batch
            await batch.done()
            if len(found) >= count:
                return found
    raise AssertionError("a consumer does not end by itself")


async def read(consumer: PullConsumer, count: int, *, seconds: float = 20) -> list[int]:
    """So many messages of assigned queues."""
    found: list[int] = []
    with anyio.fail_after(seconds):
        while len(found) < count:
            found += numbers(await consumer.poll(count_max=10))
    return found


async def until(condition: Callable[[], object | Awaitable[object]], seconds: float = 40) -> None:
    with anyio.fail_after(seconds):
        while True:
            found = condition()
            if await found if isawaitable(found) else found:
                return
            await anyio.sleep(0.02)


def queues_of(consumer: PushConsumer, topic: str) -> set[MessageQueue]:
    return {queue for queue in consumer.assignment.readers if queue.topic == topic}


# For tests of the client alone, whatever the broker is.
with_ours = pytest.mark.parametrize("broker", ["twinlog"], indirect=True)
