"""Brokers on the measured directory: how long until they serve again, and what memory they take.

Serving means: a send was answered with success. Between the measurements a broker takes some traffic, so that there is something
to recover.
"""

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import orjson

from scripts.benchmarks.machine import cpu_seconds, drop_caches, memory
from scripts.benchmarks.store_directory import BODY_SIZE, TOPIC, Scale, remove_queues_and_index
from scripts.benchmarks.systems import BROKER_HEAP
from tests.support.process_group import rocketmq, twinlog
from tests.support.process_group.member import BrokerProcess
from tests.support.process_group.ports import HOST
from tests.support.process_group.process import Process

SEND_MESSAGE, SUCCESS = 10, 0
POLL_SECONDS, START_SECONDS_MAX = 0.005, 150.0
IN_FLIGHT, BURST = 64, 64 * 300


def measures(
    system: str, root: Path, namesrv: str, scale: Scale, *, repeats: int, cold: bool, may_go_on: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Start and end a broker of this kind over a copy of the directory; yield rows of results."""
    with make_broker(system, root, namesrv, scale) as broker:
        serve(broker)
        burst(broker.port)
        for _ in range(repeats):
            yield {"measure": "stop", "seconds": timed(broker.stop)}
            yield {"measure": "clean restart", **serve(broker)}
            burst(broker.port)
            if not may_go_on():
                return
        for nothing_cached in (False, True)[: 1 + cold]:
            for _ in range(repeats):
                broker.kill()
                if nothing_cached and not drop_caches():
                    break
                name = "restart after kill -9" + (", nothing cached" if nothing_cached else "")
                yield {"measure": name, **serve(broker)}
                burst(broker.port)
                if not may_go_on():
                    return
        if not broker.running:
            serve(broker)
        yield {"measure": "memory", **memory(broker.pid)}
        broker.stop()
        remove_queues_and_index(broker.store)
        yield {"measure": "start without queues and index", **serve(broker)}


class _Started(BrokerProcess):
    """A broker whose start() does not wait."""

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        Process.start(self)


class StartedRocketmq(_Started, rocketmq.Broker):
    """RocketMQ's."""


class StartedTwinlog(_Started, twinlog.Broker):
    """Ours."""


def make_broker(system: str, root: Path, namesrv: str, scale: Scale) -> BrokerProcess:
    """Make a broker, not started, whose store is `root`/store."""
    if system == "twinlog":
        return StartedTwinlog(root, namesrv, settings=scale.settings)
    return StartedRocketmq(root, namesrv, settings=scale.settings, heap=BROKER_HEAP)


def serve(broker: BrokerProcess) -> dict[str, float]:
    """Start it and wait for its first answer to a send; seconds, and CPU seconds up to then."""
    return timed_start(broker, lambda: answers_a_send(broker.port))


def timed_start(broker: BrokerProcess, is_up: Callable[[], bool]) -> dict[str, float]:
    """Start it and wait until it is up; seconds, and CPU seconds up to then."""
    begin = time.perf_counter()
    broker.start()
    while not is_up():
        if not broker.running or time.perf_counter() - begin > START_SECONDS_MAX:
            raise RuntimeError(f"{broker.name} does not serve\n{broker.tail()}")
        time.sleep(POLL_SECONDS)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "cpu_seconds": cpu_seconds(broker.pid)}


def timed(do: Callable[[], None]) -> float:
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


# A client of a few lines: what it sends in a burst has to be cheap.


def answers_a_send(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(send_frame(0))
            return receive_codes(connection, 1) == [SUCCESS]
    except OSError:
        return False


def burst(port: int) -> None:
    """Send BURST messages, IN_FLIGHT at a time. Raises RuntimeError when fewer than half of them are taken."""
    frames = b"".join(send_frame(number) for number in range(IN_FLIGHT))
    taken = 0
    with socket.create_connection((HOST, port), timeout=30) as connection:
        for _ in range(BURST // IN_FLIGHT):
            connection.sendall(frames)
            taken += receive_codes(connection, IN_FLIGHT).count(SUCCESS)
    if taken < BURST // 2:
        raise RuntimeError(f"only {taken} of {BURST} messages were taken")


def frame(code: int, opaque: int, fields: dict[str, str], body: bytes, flag: int = 0) -> bytes:
    """A request."""
    header = orjson.dumps(
        {"code": code, "language": "JAVA", "version": 407, "opaque": opaque, "flag": flag, "extFields": fields}
    )
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def send_frame(number: int, flag: int = 0) -> bytes:
    fields = {
        "producerGroup": "bench",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "8",
        "queueId": str(number % 8),
        "sysFlag": "0",
        "bornTimestamp": str(time.time_ns() // 1_000_000),
        "flag": "0",
        "properties": f"KEYS\x01key-{number}\x02UNIQ_KEY\x017F000001{number:024X}\x02WAIT\x01true",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }
    return frame(SEND_MESSAGE, number, fields, bytes(BODY_SIZE), flag)


def receive_codes(connection: socket.socket, count: int) -> list[int]:
    """Read so many answers; return their codes."""
    codes: list[int] = []
    data = b""
    while len(codes) < count:
        piece = connection.recv(1 << 18)
        if not piece:
            raise ConnectionError("closed in the middle of an answer")
        data += piece
        while len(data) >= 8:
            size, header_size = struct.unpack_from(">ii", data)
            if len(data) < 4 + size:
                break
            codes.append(json.loads(data[8 : 8 + (header_size & 0xFFFFFF)])["code"])
            data = data[4 + size :]
    return codes
