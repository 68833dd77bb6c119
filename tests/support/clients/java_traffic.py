"""A Java producer that sends all the time while something happens, and a Java consumer that looks for what it was promised."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import trio

from tests.support.clients.java_client import JavaClient, SendJob, body

COUNT_MAX, SIZE = 5_000, 100
in_thread = trio.to_thread.run_sync


class JavaTraffic:
    """Messages of one topic. `acknowledged`: the numbers of those that were SEND_OK."""

    def __init__(self, java: JavaClient, namesrv: str, topic: str, *, pause_ms: int = 20) -> None:
        self.java, self.namesrv, self.topic, self.pause_ms = java, namesrv, topic, pause_ms
        self.acknowledged: set[int] = set()
        self._job: SendJob | None = None
        self._next = 0

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Send as long as the block lasts, one message after the other."""
        producer = await in_thread(
            partial(self.java.producer, f"producers-of-{self.topic}-{self._next}", self.namesrv, retries=3)
        )
        begin = partial(
            producer.start_sending, self.topic, COUNT_MAX, first=self._next, seed=self.topic, pause_ms=self.pause_ms
        )
        self._job = await in_thread(begin)
        try:
            yield
        finally:
            with trio.CancelScope(shield=True):
                report = await in_thread(partial(self._job.finish, stop=True))
                self.acknowledged |= {each.number for each in report.sent if each.ok}
                self._next += COUNT_MAX
                await in_thread(producer.shutdown)

    async def more(self, count: int) -> None:
        """Wait until so many more messages have an answer."""
        assert self._job is not None
        await in_thread(partial(self._job.wait_answered, await in_thread(self._job.answered) + count))

    async def check(self) -> None:
        """Consume the topic: each message that was acknowledged is there."""
        consumer = await in_thread(self.java.consumer, f"readers-of-{self.topic}", self.namesrv, self.topic)
        awaited = {hashlib.sha1(body(self.topic, number, SIZE)).hexdigest() for number in self.acknowledged}
        got = await in_thread(consumer.bodies, awaited)
        print(f"Java, {self.topic}: acknowledged {len(awaited)}, found {len(awaited & got)}")
        assert awaited <= got
        await in_thread(consumer.shutdown)
