"""A thousand consumers that wait: what they cost a broker, and how quickly it wakes them.

Consumers are plain connections with heartbeats and held pulls, so that one process can be a thousand of them.

    python -m scripts.benchmarks.idle HOST:PORT CONSUMERS PRODUCERS    connections beside another benchmark, until it is ended

Topic bench-0 has to be there, with 8 queues.
"""

import subprocess
import sys
import time
from statistics import median

import orjson
import trio
from attrs import define, field, frozen

from scripts.benchmarks.machine import cpu_seconds, memory
from scripts.benchmarks.report import Row
from scripts.benchmarks.store_directory import TOPIC
from scripts.benchmarks.store_restarts import frame, send_frame, serve
from tests.support.clients.remoting import request
from tests.support.process_group.member import BrokerProcess
from tests.support.process_group.process import PROGRAM

PULL_MESSAGE, GET_MAX_OFFSET, HEART_BEAT = 11, 30, 34
FOUND, NOT_FOUND = 0, 19
SUSPEND, SUBSCRIPTION = 2, 4
QUEUES, HELD_MS, HEARTBEAT_SECONDS, SETTLE_SECONDS = 8, 15_000, 30, 5
WAKE_UPS, WAKE_SECONDS_MAX = 9, 30
LISTS = 5


@frozen(kw_only=True)
class IdleLoad:
    """So many consumers, each with its share of the pulls."""

    consumers: int = 1000
    pulls: int = 2000
    groups: int = 100
    seconds: float = 20

    def measure(self, broker: BrokerProcess) -> Row:
        """Start the broker, which is not running yet, and let consumers wait there."""
        started = serve(broker)
        time.sleep(SETTLE_SECONDS)
        alone = memory(broker.pid)
        return {
            "start_seconds": started["seconds"],
            "anon_mib_alone": alone["anon_mib"],
            "list_seconds": median(_list_seconds(broker.namesrv) for _ in range(LISTS)),
            **trio.run(_Crowd(self, broker.address).run, broker.pid),
        }


def _list_seconds(namesrv: str) -> float:
    """The time that `twinlog list` takes for the cluster of this name server."""
    began = time.perf_counter()
    subprocess.run([PROGRAM, "list", "-n", namesrv], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


@define(eq=False)
class _Crowd:
    load: IdleLoad
    address: str
    _found: int = field(default=0, init=False)
    _all_found: trio.Event = field(factory=trio.Event, init=False)

    async def run(self, pid: int) -> Row:
        """Measure the broker that has this process."""
        async with trio.open_nursery() as nursery:
            await self._connect(nursery)
            await trio.sleep(SETTLE_SECONDS)
            before, begin = cpu_seconds(pid), trio.current_time()
            await trio.sleep(self.load.seconds)
            used = (cpu_seconds(pid) - before) / (trio.current_time() - begin)
            anon_mib = memory(pid)["anon_mib"]
            wake_ms = [await self._wake() for _ in range(WAKE_UPS)]
            nursery.cancel_scope.cancel()
        return {
            "idle_cpu_percent": round(100 * used, 2),
            "anon_mib": anon_mib,
            "wake_ms": median(wake_ms),
            "wake_max_ms": max(wake_ms),
        }

    async def stay(self, producers: int) -> None:
        """Wait on all connections, with so many idle producers besides; say when they are there."""
        async with trio.open_nursery() as nursery:
            await self._connect(nursery)
            for number in range(producers):
                nursery.start_soon(self._idle_producer, await self._open(), number)
            print(f"ready consumers={self.load.consumers} producers={producers}", flush=True)

    async def _open(self) -> trio.SocketStream:
        host, _, port = self.address.rpartition(":")
        return await trio.open_tcp_stream(host, int(port))

    async def _connect(self, nursery: trio.Nursery) -> None:
        offsets = [self._max_offset(queue) for queue in range(QUEUES)]
        for number in range(self.load.consumers):
            nursery.start_soon(self._consume, await self._open(), number, offsets)

    def _max_offset(self, queue: int) -> int:
        header, _ = request(self.address, GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue)})
        return int(header["extFields"]["offset"])

    async def _wake(self) -> float:
        """Send one message to each queue; ms until every held pull was answered with it."""
        await trio.sleep(1)
        self._found, self._all_found = 0, trio.Event()
        async with await self._open() as stream:
            begin = trio.current_time()
            await stream.send_all(b"".join(send_frame(number) for number in range(QUEUES)))
            with trio.fail_after(WAKE_SECONDS_MAX):
                await self._all_found.wait()
            return (trio.current_time() - begin) * 1000

    async def _consume(self, stream: trio.SocketStream, number: int, offsets: list[int]) -> None:
        group, share = f"idle-{number % self.load.groups}", self.load.pulls // self.load.consumers
        queues = [(number * share + i) % QUEUES for i in range(share)]
        at = {queue: offsets[queue] for queue in queues}
        sending = trio.Lock()
        async with stream, trio.open_nursery() as nursery:
            await stream.send_all(b"".join(_pull(group, queue, at[queue]) for queue in queues))
            nursery.start_soon(self._beat, stream, sending, number, group)
            data = bytearray()
            async for piece in stream:
                data += piece
                again = b""
                while len(data) >= 4 and len(data) >= (size := 4 + int.from_bytes(data[:4], "big")):
                    header = orjson.loads(data[8 : 8 + int.from_bytes(data[5:8], "big")])
                    del data[:size]
                    queue = header["opaque"]
                    if header["flag"] & 1 and queue in at and header["code"] in (FOUND, NOT_FOUND):
                        at[queue] = int(header["extFields"]["nextBeginOffset"])
                        self._count(header["code"] == FOUND)
                        again += _pull(group, queue, at[queue])
                if again:
                    async with sending:
                        await stream.send_all(again)

    def _count(self, is_found: bool) -> None:
        self._found += is_found
        if self._found >= self.load.pulls:
            self._all_found.set()

    async def _idle_producer(self, stream: trio.SocketStream, number: int) -> None:
        beat = {
            "clientID": f"idle-producer@{number}",
            "consumerDataSet": [],
            "producerDataSet": [{"groupName": "idle"}],
        }
        async with stream, trio.open_nursery() as nursery:
            nursery.start_soon(_beats, stream, trio.Lock(), beat)
            async for _ in stream:
                pass

    async def _beat(self, stream: trio.SocketStream, sending: trio.Lock, number: int, group: str) -> None:
        subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{**subscription, "classFilterMode": False, "tagsSet": [], "codeSet": []}],
            "unitMode": False,
        }
        await _beats(
            stream, sending, {"clientID": f"idle@{number}", "consumerDataSet": [consumer], "producerDataSet": []}
        )


async def _beats(stream: trio.SocketStream, sending: trio.Lock, beat: Row) -> None:
    while True:
        async with sending:
            await stream.send_all(frame(HEART_BEAT, QUEUES, {}, orjson.dumps(beat)))
        await trio.sleep(HEARTBEAT_SECONDS)


def _pull(group: str, queue: int, offset: int) -> bytes:
    fields = {
        "consumerGroup": group,
        "topic": TOPIC,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": str(SUSPEND | SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(HELD_MS),
        "subscription": "*",
        "subVersion": "1",
        "expressionType": "TAG",
    }
    return frame(PULL_MESSAGE, queue, fields, b"")


if __name__ == "__main__":
    _address, _consumers, _producers = sys.argv[1:]
    _load = IdleLoad(consumers=int(_consumers), pulls=int(_consumers))
    trio.run(_Crowd(_load, _address).stay, int(_producers))
