"""Our client, and the Go one: each sends to a topic of its own and consumes it, for as long as a test lasts."""

import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import NamedTuple, Self

import trio

from tests.clients import programs
from tests.support.waiting import wait_for
from twinlog.client import Batch, Client, From, OutgoingMessage, PushConsumer, RemotingError, SendStatus

LEAVE_S = 15
Row = tuple[int, int, int, int]  # Queue, offset, begin and end in ms.


class Got(NamedTuple):
    """One message that a consumer got."""

    queue: int
    offset: int
    body: str


class LastingClient:
    """`sent`: what got SEND_OK. `got`: of each of its consumers, which are one after the other in one group."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.sent: list[str] = []
        self.got: list[list[Got]] = [[]]

    def restart(self) -> None:
        """Another consumer of the group takes the place of the one that runs."""
        raise NotImplementedError

    def wait_more(self, count: int, timeout_s: float) -> None:
        """Wait until so many more were sent, and what was sent before that came, too."""
        enough = len(self.sent) + count
        wait_for(lambda: len(self.sent) >= enough, f"{self.topic}: {count} more are sent", timeout_s=timeout_s)
        sent = set(self.sent)
        wait_for(lambda: sent <= self._bodies(), f"{self.topic}: all that was sent comes", timeout_s=timeout_s)

    def wait_restarted(self, timeout_s: float) -> None:
        self.restart()
        wait_for(
            lambda: len(self.got) > 1 and self.got[-1], f"{self.topic}: the next one consumes", timeout_s=timeout_s
        )

    def _bodies(self) -> set[str]:
        return {each.body for one in self.got for each in tuple(one)}


class GoClient(LastingClient):
    """See goOn in tests/clients/go/main.go, and what makes it quick in tests/clients/programs.py."""

    def __init__(self, root: Path, namesrv: str, topic: str) -> None:
        super().__init__(topic)
        self._command, self._log = [str(programs.go(quick=True)), namesrv, topic], root

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, encoding="utf-8"
            )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def restart(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("restart\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match line.split():
                case ["sent", "SEND_OK", body]:
                    self.sent.append(body)
                case ["got", queue, offset, body]:
                    self.got[-1].append(Got(int(queue), int(offset), body))
                case ["restarted"]:
                    self.got.append([])


class OwnClient(LastingClient):
    """A thread of our client. It also consumes in order, slowly, as a member of another group."""

    def __init__(self, namesrv: str, topic: str, *, group: str, ordered: str, slow_ms: int) -> None:
        super().__init__(topic)
        self._namesrv, self._group, self._ordered, self._slow_ms = namesrv, group, ordered, slow_ms
        self._rows: list[Row] = []
        self._failure: BaseException | None = None
        self._leaves = False
        self._left = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._main, daemon=True)
        self._thread.start()
        wait_for(lambda: self._token is not None, "our client has begun")
        return self

    def __exit__(self, *_: object) -> None:
        self._leaves = True
        if self._failure is None:
            self.restart()
        self._thread.join(LEAVE_S)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def rows(self) -> list[Row]:
        """What it consumed in order."""
        return list(self._rows)

    def restart(self) -> None:
        assert self._token is not None
        self._token.run_sync_soon(lambda: self._left.set())

    def _main(self) -> None:
        try:
            trio.run(self._run)
        except BaseException as failure:
            self._failure = failure

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with Client(self._namesrv) as client, trio.open_nursery() as nursery:
            nursery.start_soon(self._produce, client)
            nursery.start_soon(self._consume_in_order, client)
            while not self._leaves:
                self._left = trio.Event()
                async with (
                    Client(self._namesrv) as reader,
                    PushConsumer(reader, "our-readers", {self.topic: "*"}, start=From.FIRST, handler=self._read),
                ):
                    await self._left.wait()
                self.got.append([])
            nursery.cancel_scope.cancel()

    async def _produce(self, client: Client) -> None:
        producer = client.producer("our-producers")
        for number in range(1 << 30):
            body = f"own-{number}"
            try:
                result = await producer.send(OutgoingMessage(topic=self.topic, body=body.encode()))
            except RemotingError:
                await trio.sleep(0.1)
                continue
            if result.status is SendStatus.SEND_OK:
                self.sent.append(body)
            await trio.sleep(0.02)

    async def _read(self, batch: Batch) -> None:
        self.got[-1] += [Got(each.queue.queue_id, each.queue_offset, each.body.decode()) for each in batch]

    async def _consume_in_order(self, client: Client) -> None:
        async def consume(batch: Batch) -> None:
            for each in batch:
                begin = round(time.time() * 1000)
                await trio.sleep(self._slow_ms / 1000)
                self._rows.append((each.queue.queue_id, each.queue_offset, begin, int(time.time() * 1000)))

        topics = {self._ordered: "*"}
        async with PushConsumer(client, self._group, topics, start=From.FIRST, ordered=True, handler=consume):
            await trio.sleep_forever()


def is_gapless(*runs: Sequence[Got]) -> bool:
    """True when consumers that took the place of each other skipped nothing. While messages come, some may be under way."""
    places = {each[:2] for run in runs for each in tuple(run)}
    counts, ends = Counter(queue for queue, _ in places), dict(sorted(places))
    return all(ends[queue] == count - 1 for queue, count in counts.items())
