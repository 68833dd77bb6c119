"""The writers that watch `scripts/bench failover-etcd`: one client that writes numbers one after the other.

Each is a process that prints a line of JSON for every number. Run as a program, this is the one of brokers, with
twinlog.client; failover_etcd_rows.py is the one of PostgreSQL.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import inf
from typing import Any

import trio
from attrs import define, field, frozen

from scripts.benchmarks.machine import ROOT
from tests.support.waiting import wait_for
from twinlog.client import Client, OutgoingMessage, RemotingError

OK = "SEND_OK"
EVERY_MS = 50  # A number is not begun sooner after the one before.
TRY_MS = 1000  # Given up without an answer, and the next number is tried.


@frozen
class Answer:
    """Outcome of one number. Times in ns of CLOCK_MONOTONIC."""

    number: int
    sent: int
    came: int
    status: str


@define
class Writer:
    """All answers so far, in the order in which they came, which is that of the numbers."""

    answers: list[Answer] = field(factory=list)

    def acked(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status == OK]

    def numbers(self) -> set[int]:
        """Those that were acknowledged."""
        return {answer.number for answer in self.acked()}

    def first(self, since: int) -> Answer | None:
        """The first acknowledgement of a number that was begun from `since` on."""
        return next((answer for answer in self.acked() if answer.sent >= since), None)

    def wait_flowing(self, count: int = 10, timeout_s: float = 60.0) -> None:
        """Until so many more are acknowledged."""
        goal = len(self.acked()) + count
        wait_for(lambda: len(self.acked()) >= goal, "numbers are acknowledged", timeout_s=timeout_s)

    def within(self, begin: int, end: int) -> int:
        """Number of acknowledgements that came between two times."""
        return sum(begin <= answer.came <= end for answer in self.acked())

    def longest_gap(self, begin: int, end: int) -> float:
        """Seconds between two acknowledgements, of those that lie in the time from `begin` to `end`, even in part.

        Infinite when none came since.
        """
        came = [answer.came for answer in self.acked()]
        before = [time for time in came if time < begin][-1:] or [begin]
        after = [time for time in came if time > end][:1]
        inside = [time for time in came if begin <= time <= end]
        marks = [*before, *inside, *after]
        gaps = [(later - earlier) / 1e9 for earlier, later in pairwise(marks)]
        return max(gaps, default=inf) if after else inf


@contextmanager
def writing(command: Sequence[str]) -> Iterator[Writer]:
    """A writer, until the end of the block."""
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    writer = Writer()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("}\n"):  # The last one of a process that is killed may be cut.
                writer.answers.append(Answer(**json.loads(line)))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield writer
    finally:
        process.kill()
        process.wait()
        reader.join()
        assert process.stdout is not None
        process.stdout.close()


def command(namesrv: str, topic: str) -> list[str]:
    """The writer of a group of brokers."""
    return [sys.executable, "-m", "scripts.benchmarks.failover_etcd_client", namesrv, topic]


# ---- The writer of brokers, as a program


async def _write(namesrv: str, topic: str) -> None:
    async with Client(namesrv, timeout_ms=TRY_MS) as client:
        producer = client.producer("bench", tries_max=1)
        number, due = 0, trio.current_time()
        while True:
            await trio.sleep_until(due)
            due = max(due + EVERY_MS / 1000, trio.current_time())
            number += 1
            sent = time.monotonic_ns()
            try:
                message = OutgoingMessage(topic=topic, body=str(number).encode())
                # Not with a time limit of its own: a client that is cut short learns nothing of a master that is silent.
                status = (await producer.send(message)).status.name
            except RemotingError as error:
                status = type(error).__name__
            _say(number=number, sent=sent, came=time.monotonic_ns(), status=status)


def _say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    trio.run(_write, *sys.argv[1:])
