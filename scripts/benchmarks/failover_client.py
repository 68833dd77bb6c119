"""The producers that watch a failover: ours and Java's, each in a process that prints one line of JSON for every answer.

Run as a program, this is ours: java/FailoverLoad.java with twinlog.client.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import trio
from attrs import define, field, frozen

from scripts.benchmarks.load import SILENT, SOURCES
from scripts.benchmarks.machine import ROOT
from tests.support.process_group import jars
from tests.support.process_group.rocketmq import QUICK_START
from tests.support.waiting import wait_for
from twinlog.client import Client, OutgoingMessage, Producer, RemotingError

OK, STARTED, BUSY = "SEND_OK", "STARTED", "NO_FREE_THREAD"
EVERY_MS, THREADS = 50, 64
CLIENT_HEAP = ("-Xms64m", "-Xmx256m", *QUICK_START)


@frozen(kw_only=True)
class ProducerKind:
    """`poll_ms`: pollNameServerInterval, 0: as the client has it. Each of `count` starts `stagger_ms` after the one before."""

    name: str
    is_java: bool = True
    poll_ms: int = 0
    every_ms: int = EVERY_MS
    threads: int = THREADS
    count: int = 1
    stagger_ms: int = 0

    @property
    def names(self) -> list[str]:
        return [f"{self.name}-{number}" for number in range(self.count)]

    @property
    def argument(self) -> str:
        numbers = (self.poll_ms, self.every_ms, self.threads, self.count, self.stagger_ms)
        return ",".join([self.name, *map(str, numbers)])


OURS = ProducerKind(name="ours", is_java=False, threads=256)  # A send tries three times, for 3 s each; a task is cheap.
QUICK = ProducerKind(name="quick", poll_ms=1000)
# Thirty clients whose polls are spread over the 30 s of one.
SPREAD_SECONDS = 30.0
DEFAULT = ProducerKind(name="default", every_ms=500, threads=12, count=30, stagger_ms=1000)


@frozen
class Answer:
    """Answer to a message. Times in ns of CLOCK_MONOTONIC, which Java and Python read alike.

    `port`: of the member that stored it.
    """

    producer: str
    id: str
    sent: int
    came: int
    status: str
    port: int | None


def parse(line: str) -> Answer:
    """A line that a client printed. An offset's id: 4 bytes of address, 4 of port, 8 of offset, in hexadecimal."""
    told = json.loads(line)
    port = int(told["offset_id"][8:16], 16) if told["offset_id"] else None
    return Answer(told["producer"], told["id"], told["sent"], told["came"], told["status"], port)


@define
class Watch:
    """All answers so far, in the order in which they came."""

    producers: Sequence[str]
    answers: list[Answer] = field(factory=list)

    def firsts(self, since: int, *, begin: int, old_port: int) -> dict[str, Answer]:
        """Of each producer the first SEND_OK that came after `begin` and was stored by another member than the old master."""
        found: dict[str, Answer] = {}
        for answer in self.answers[since:]:
            if answer.status == OK and answer.came > begin and answer.port != old_port:
                found.setdefault(answer.producer, answer)
        return found

    def outcomes(self, since: int, *, begin: int) -> dict[str, int]:
        """Answers after the fault, of whatever was sent."""
        return dict(Counter(answer.status for answer in self.answers[since:] if answer.came > begin))

    def acked(self, since: int = 0) -> set[str]:
        return {answer.id for answer in self.answers[since:] if answer.status == OK}

    def wait_flowing(self, count: int = 10, timeout_s: float = 60.0) -> None:
        """Until each producer has so many more SEND_OKs."""
        since = len(self.answers)

        def flows() -> bool:
            told = Counter(answer.producer for answer in self.answers[since:] if answer.status == OK)
            return all(told[producer] >= count for producer in self.producers)

        wait_for(flows, "all producers are told SEND_OK", timeout_s=timeout_s)


@contextmanager
def watching(namesrv: str, topic: str, kinds: Sequence[ProducerKind], home: Path) -> Iterator[Watch]:
    """Producers of these kinds, until the end of the block."""
    home.mkdir()
    watch = Watch([name for kind in kinds for name in kind.names])
    commands = [
        command(namesrv, topic, chosen, home, is_java=is_java)
        for is_java in (False, True)
        if (chosen := [kind for kind in kinds if kind.is_java == is_java])
    ]
    started, readers = [], []
    try:
        for each in commands:
            process = subprocess.Popen(each, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            started.append(process)
            readers.append(threading.Thread(target=_read, args=(process, watch)))
            readers[-1].start()
        yield watch
    finally:
        for process in started:
            process.kill()
            process.wait()
        for reader in readers:
            reader.join()
        for process in started:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def command(namesrv: str, topic: str, kinds: Sequence[ProducerKind], home: Path, *, is_java: bool) -> list[str]:
    arguments = [namesrv, topic, *(kind.argument for kind in kinds)]
    if not is_java:
        return [sys.executable, "-m", "scripts.benchmarks.failover_client", *arguments]
    logback = home / "logback.xml"
    logback.write_text(SILENT)
    options = [f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}", f"-Dlogback.configurationFile={logback}"]
    class_path = os.pathsep.join(jars.class_path(sources=SOURCES))
    return ["java", *CLIENT_HEAP, *options, "-cp", class_path, "twinlog.bench.FailoverLoad", *arguments]


def _read(process: subprocess.Popen[str], watch: Watch) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("}\n"):  # The last one of a client that is killed may be cut.
            watch.answers.append(parse(line))


# ---- Our client, as a program


def main() -> None:
    namesrv, topic, *kinds = sys.argv[1:]
    trio.run(_send_all, namesrv, topic, [kind.split(",") for kind in kinds])


async def _send_all(namesrv: str, topic: str, kinds: Sequence[Sequence[str]]) -> None:
    async with trio.open_nursery() as nursery:
        for name, _, every_ms, threads, count, stagger_ms in kinds:
            for number in range(int(count)):
                own = f"{name}-{number}", int(every_ms) / 1000, int(threads), number * int(stagger_ms) / 1000
                nursery.start_soon(_produce, namesrv, topic, *own)


async def _produce(namesrv: str, topic: str, name: str, every: float, under_way_max: int, delay: float) -> None:
    """Begin a send each `every` seconds, whatever becomes of those before."""
    await trio.sleep(delay)
    async with Client(namesrv) as client, trio.open_nursery() as nursery:
        producer = client.producer(f"bench-{name}")
        _say(name, "", time.monotonic_ns(), STARTED)
        begin, number = trio.current_time(), 0
        while True:
            await trio.sleep_until(begin + number * every)
            number += 1
            if len(nursery.child_tasks) >= under_way_max:
                _say(name, f"{name}-{number}", time.monotonic_ns(), BUSY)
            else:
                nursery.start_soon(_send, producer, topic, name, f"{name}-{number}")


async def _send(producer: Producer, topic: str, name: str, message_id: str) -> None:
    sent, offset_id = time.monotonic_ns(), ""
    try:
        result = await producer.send(OutgoingMessage(topic=topic, body=message_id.encode()))
    except RemotingError as error:
        status = type(error).__name__
    else:
        status, offset_id = result.status.name, result.offset_message_id
    _say(name, message_id, sent, status, offset_id)


def _say(name: str, message_id: str, sent: int, status: str, offset_id: str = "") -> None:
    told = {"producer": name, "id": message_id, "sent": sent, "came": time.monotonic_ns(), "status": status}
    print(json.dumps({**told, "offset_id": offset_id}), flush=True)


if __name__ == "__main__":
    main()
