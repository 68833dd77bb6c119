"""Producers and consumers that write down what they do; a process of its own, so that it may run in another network.

    python -m scripts.fault_matrix.workload run --namesrv A:P --out FILE --level L2 ...   until SIGTERM, or for --seconds
    python -m scripts.fault_matrix.workload final --namesrv A:P --out FILE                everything that is there

Each value is sent once, with one request, whatever becomes of it. A body follows from its value, so that any other is corrupt.
"""

import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import BinaryIO

import click
import structlog
import trio
from attrs import define, field
from xxhash import xxh3_64_intdigest

from scripts.fault_matrix.history import Event, encode
from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.client.api import ClientApi, PullStatus, SendStatus
from twinlog.cluster.client.messages import OutgoingMessage, received
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RemotingError, RequestError
from twinlog.cluster.remoting.route import MessageQueue
from twinlog.store.errors import StoreError

TOPIC = "faults"
BODY_MAX = 2000
PAUSE_S = 0.02
ROUTE_S_MAX = 15.0  # A name server learns of a master by its next registration.
NOT_STORED = "in-sync replicas not enough"


def body_of(value: str) -> bytes:
    """The value, and what follows from it."""
    seed = xxh3_64_intdigest(value.encode())
    return value.encode() + b"|" + random.Random(seed).randbytes(seed % BODY_MAX)


def value_of(body: bytes) -> str | None:
    """The value of a body that somebody may have sent; None: nobody can have."""
    value = body.partition(b"|")[0].decode(errors="replace")
    return value if body == body_of(value) else None


@define
class Writer:
    """Lines of one process of the history. Each is out before the next thing happens: who is killed has told all."""

    file: BinaryIO
    level: str
    ids: Iterator[int] = field(factory=count)

    def write(self, kind: str, op: str, process: str, number: int, **more: object) -> None:
        event = Event(ns=time.monotonic_ns(), kind=kind, op=op, process=process, id=number, level=self.level, **more)  # type: ignore[arg-type]
        self.file.write(encode(event))


@contextmanager
def writer(path: Path, level: str) -> Iterator[Writer]:
    with path.open("ab", buffering=0) as file:
        yield Writer(file, level)


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


async def produce(api: ClientApi, out: Writer, name: str, seed: int, pace_s: float) -> None:
    """One message after the other, to random queues, with a pause behind each."""
    rng = random.Random(f"{seed} {name}")
    producer = Producer(api, tries_max=1, compress_from=None)
    for number in count():
        try:
            where = await producer.routes.publish(TOPIC)
            queue = rng.choice(where.queues)
            address = where.master(queue)
        except RemotingError:
            await trio.sleep(PAUSE_S)
            continue
        value = f"{name}-{number}"
        prepared = producer.prepare(OutgoingMessage(topic=TOPIC, body=body_of(value)))
        known = {"queue": _name(queue), "value": value}
        out.write("invoke", "append", name, number, **known)
        try:
            sent = await api.send(address, producer.header(prepared, queue), prepared.body)
        except RemotingError as error:
            out.write(_certainty(error), "append", name, number, node=address, text=str(error), **known)
            producer.routes.forget(TOPIC)
            await trio.sleep(PAUSE_S)
            continue
        if sent.status is SendStatus.SEND_OK:
            stored_by, phy = _place_of(sent.offset_message_id)
            out.write("ok", "append", name, number, node=stored_by, offset=sent.queue_offset, phy=phy, **known)
            await trio.sleep(pace_s)
        else:
            text = f"{sent.status.name}: {sent.remark}"
            out.write("unknown", "append", name, number, node=address, text=text, **known)
            producer.routes.forget(TOPIC)
            await trio.sleep(PAUSE_S)


def _place_of(message_id: str) -> tuple[str, int]:
    """Which broker stored it, and where: not always the one that was asked, as a former master passes requests on."""
    raw = bytes.fromhex(message_id)
    return f"{socket.inet_ntoa(raw[:4])}:{int.from_bytes(raw[4:8], 'big')}", int.from_bytes(raw[8:], "big")


def _certainty(error: RemotingError) -> str:
    """`fail` only where the documentation says that the message is not stored (docs/operating/replication.md)."""
    if isinstance(error, RequestError):
        if error.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            return "fail"
        if error.code == ResponseCode.SYSTEM_ERROR and NOT_STORED in error.remark:
            return "fail"
    return "unknown"


async def consume(api: ClientApi, out: Writer, name: str) -> None:
    """Read all queues from the master, over and over from where it stopped."""
    places: dict[MessageQueue, int] = {}
    while True:
        try:
            for queue, address in await _queues(api):
                while await pull(api, out, "read", name, queue, address, places, skips_gaps=False):
                    pass
        except RemotingError:
            pass
        await trio.sleep(PAUSE_S * 5)


async def _queues(api: ClientApi) -> list[tuple[MessageQueue, str]]:
    route = await api.topic_route(TOPIC)
    if route is None:
        return []
    masters = {name: broker.master for name, broker in route.brokers.items()}
    return [(queue, master) for queue in route.read_queues() if (master := masters[queue.broker_name])]


async def pull(
    api: ClientApi,
    out: Writer,
    op: str,
    name: str,
    queue: MessageQueue,
    address: str,
    places: dict[MessageQueue, int],
    *,
    skips_gaps: bool = True,
) -> int:
    """One pull; how many messages it gave. `skips_gaps`: what is there is read, even if it begins later."""
    at, number = places.get(queue, 0), next(out.ids)
    out.write("invoke", op, name, number, queue=_name(queue))
    pulled = await api.pull(address, queue, at)
    if pulled.status is not PullStatus.FOUND:
        # That there is a gap is for the checkers to say.
        is_later = skips_gaps and pulled.next_offset > at
        if is_later:
            places[queue] = pulled.next_offset
        return is_later
    known = {"node": address, "queue": _name(queue)}
    try:
        messages = received(pulled.records, queue)
    except StoreError as error:
        out.write("ok", op, name, number, offset=at, text=f"no records: {error}", **known)
        messages = []
    for message in messages:
        value = None if message.body_problem else value_of(message.body)
        phy = message.phy_offset
        out.write("ok", op, name, number, offset=message.queue_offset, value=value, phy=phy, **known)
    places[queue] = pulled.next_offset
    return len(messages) or 1


async def read_all(api: ClientApi, out: Writer) -> None:
    """Every queue to its end. Raises RemotingError when a broker does not answer, or no name server knows a master."""
    places: dict[MessageQueue, int] = {}
    deadline = trio.current_time() + ROUTE_S_MAX
    while not (queues := await _queues(api)):
        if trio.current_time() > deadline:
            raise RemotingError(f"no name server knows a master of {TOPIC}")
        await trio.sleep(PAUSE_S)
    for queue, address in queues:
        end = await api.max_offset(address, queue)
        while places.get(queue, 0) < end:
            if not await pull(api, out, "final", "final", queue, address, places):
                raise RemotingError(f"{queue} ends at {end}, but there is nothing at {places.get(queue, 0)}")


async def run(
    namesrv: tuple[str, ...], path: Path, level: str, name: str, counts: tuple[int, int], seed: int, pace_s: float
) -> None:
    """`counts`: of producers and of consumers. Until cancelled; what is under way then stays unanswered."""
    producers, consumers = counts
    with writer(path, level) as out:
        async with open_admin(namesrv, timeout_ms=4000) as admin, trio.open_nursery() as nursery:
            for number in range(producers):
                nursery.start_soon(produce, admin.api, out, f"{name}p{number}", seed, pace_s)
            for number in range(consumers):
                nursery.start_soon(consume, admin.api, out, f"{name}c{number}")


async def final(namesrv: tuple[str, ...], path: Path) -> None:
    with writer(path, "") as out:
        async with open_admin(namesrv, timeout_ms=10_000) as admin:
            await read_all(admin.api, out)


async def _until_told(do: partial, seconds: float) -> None:
    with trio.move_on_after(seconds), trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(do)
            async for _ in signals:
                nursery.cancel_scope.cancel()
                return


@click.command()
@click.argument("what", type=click.Choice(["run", "final"]))
@click.option("--namesrv", required=True)
@click.option("--out", required=True, type=click.Path(path_type=Path))
@click.option("--level", default="L2")
@click.option("--name", default="")
@click.option("--producers", default=4)
@click.option("--consumers", default=1)
@click.option("--seed", default=1)
@click.option("--seconds", default=600.0)
@click.option("--pace", default=0.004, help="Seconds behind each message: the machine has more to do than to produce.")
def main(
    what: str,
    namesrv: str,
    out: Path,
    level: str,
    name: str,
    producers: int,
    consumers: int,
    seed: int,
    seconds: float,
    pace: float,
) -> None:
    """See above."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=None))
    servers = tuple(namesrv.split(";"))
    if what == "final":
        trio.run(final, servers, out)
    else:
        trio.run(_until_told, partial(run, servers, out, level, name, (producers, consumers), seed, pace), seconds)


if __name__ == "__main__":
    main()
