"""The load of scripts/bench client on twinlog.client, in a process of its own.

    python -m scripts.benchmarks.client_load LOOP PART NAMESRV TOPIC BODY_BYTES WARM_UP_S SECONDS NUMBER MESSAGES

LOOP: asyncio, uvloop or trio. PART and NUMBER: as in client.py. Prints one line of JSON.
"""

import sys
import time
from collections.abc import Iterator
from functools import partial

import anyio

from scripts.benchmarks.client_meter import Meter
from twinlog.client import Client, From, OutgoingMessage, Producer, PushConsumer, SendResult, SendStatus

CHUNK = 10_000  # Messages of one call of send_all.
DRAIN_SECONDS_MAX = 120


def checked(outcome: object) -> None:
    """Raise what went wrong with a send."""
    if isinstance(outcome, Exception):
        raise outcome
    if not isinstance(outcome, SendResult) or outcome.status is not SendStatus.SEND_OK:
        raise RuntimeError(f"not SEND_OK: {outcome}")


async def one_by_one(producer: Producer, topic: str, body: bytes, meter: Meter) -> None:
    """A send, its answer, the next send."""
    while not meter.is_over:
        began = time.perf_counter()
        checked(await producer.send(OutgoingMessage(topic=topic, body=body)))
        meter.note(1, began)


async def load(part: str, namesrv: str, topic: str, body: bytes, meter: Meter, number: int) -> None:
    """One part. Raises RuntimeError, or a RemotingError, for a message that is not stored."""
    async with Client(namesrv) as client:
        if part == "consume":
            await _consume(client, topic, meter, number)
            return
        producer = client.producer("bench-client", tries_max=1)
        match part:
            case "send":
                async with anyio.create_task_group() as tasks:
                    for _ in range(number):
                        tasks.start_soon(one_by_one, producer, topic, body, meter)
            case "send-all":
                while not meter.is_over:
                    outcomes = await producer.send_all(_messages(CHUNK, topic, body))
                    for outcome in outcomes:
                        checked(outcome)
                    meter.note(len(outcomes))
            case "batch":
                while not meter.is_over:
                    for outcome in await producer.send_batch(list(_messages(number, topic, body))):
                        checked(outcome)
                    meter.note(number)


def _messages(count: int, topic: str, body: bytes) -> Iterator[OutgoingMessage]:
    return (OutgoingMessage(topic=topic, body=body) for _ in range(count))


async def _consume(client: Client, topic: str, meter: Meter, batch_max: int) -> None:
    over = anyio.Event()

    async def handle(batch: object) -> None:
        assert hasattr(batch, "__len__")
        meter.note(len(batch))
        if meter.is_over:
            over.set()

    group = f"bench-{time.time_ns()}"
    with anyio.fail_after(DRAIN_SECONDS_MAX):
        async with PushConsumer(client, group, {topic: "*"}, start=From.FIRST, handler=handle, batch_max=batch_max):
            await over.wait()


def main(loop: str, part: str, namesrv: str, topic: str, *numbers: str) -> None:
    """Run it, and print the result."""
    body_bytes, warm_up_s, seconds, number, messages = map(float, numbers)
    meter = Meter(warm_up_s, seconds, messages)
    backend, options = ("trio", {}) if loop == "trio" else ("asyncio", {"use_uvloop": loop == "uvloop"})
    run = partial(load, part, namesrv, topic, b"x" * int(body_bytes), meter, int(number))
    anyio.run(run, backend=backend, backend_options=options)
    meter.show()


if __name__ == "__main__":
    main(*sys.argv[1:])
