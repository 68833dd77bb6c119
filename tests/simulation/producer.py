"""Producers of the master: they put, and wait for their answers, as the broker does for a request."""

import random
from typing import TYPE_CHECKING

import trio
from attrs import define

from tests.simulation.disk import MachineDied
from tests.simulation.ledger import Message
from twinlog.cluster.broker.send.acks import wait_until_safe, waits
from twinlog.ha.service import HAService
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.message_store import MessageStore

if TYPE_CHECKING:
    from tests.simulation.member import Member
    from tests.simulation.world import World

HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
OVERHEAD = 250  # Bytes of a record besides its body, at most, and of the blank behind it.


@define(eq=False)
class Sink:
    """Where answers go while the producers' broker lives."""

    world: "World"
    member: "Member"
    store: MessageStore
    messages: list[Message]

    def answer(self, frames: list[bytes]) -> None:
        self._answered(frames, "ok")

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        self._answered(frames, status.value)

    def _answered(self, frames: list[bytes], word: str) -> None:
        if self.member.store is not self.store or self.member.disk.dead or not self.member.up:
            return  # The answer never leaves the machine.
        for _ in frames:
            for message in self.messages:
                self.world.answered(message, word)


@define(eq=False)
class Producer:
    """All producers together."""

    world: "World"
    member: "Member"
    store: MessageStore
    ha: HAService

    async def run(self) -> None:
        """Put until cancelled."""
        rng = self.world.producer_rng
        while True:
            burst = self.world.burst > 0
            if burst:
                self.world.burst -= 1
            await trio.sleep(rng.random() * (0.004 if burst else rng.choice((0.02, 0.3, 1.0))))
            if not self.world.producing:
                await trio.sleep(0.5)
                continue
            try:
                self._put(rng)
            except MachineDied:
                return

    def _put(self, rng: random.Random) -> None:
        synchronous = waits(self.store)
        if synchronous and self.ha.group_transfer.refusal is not None:
            return
        count = rng.choice((1, 1, 1, rng.randint(2, 8)))
        together = count > 1 and rng.random() < 0.5
        puts = [self._message(rng, self.world.numbers + n, count) for n in range(count)]
        self.world.numbers += count
        results = self.store.put(puts, together=together)
        messages = []
        for put, result in zip(puts, results, strict=True):
            if result.status is PutStatus.PUT_OK:
                messages.append(self.world.put(self.member, put, result))
        if not messages:
            return
        groups = [messages] if together else [[message] for message in messages]
        for group in groups:
            sink = Sink(self.world, self.member, self.store, group)
            if synchronous:
                wait_until_safe(self.store, self.ha.group_transfer, group[-1].end, sink, b"")
            else:
                sink.answer([b""])

    def _message(self, rng: random.Random, number: int, count: int) -> PutMessage:
        largest = (self.world.plan.config.file_size // 2 - OVERHEAD) // (count if count > 1 else 1)
        size = rng.choice((0, rng.randint(0, 200), rng.randint(0, 200), rng.randint(0, max(1, largest))))
        body = b"%d:" % number + rng.randbytes(size)
        properties = b"KEYS\x01k%d" % (number % 40)
        queue_id = rng.randrange(3)
        return PutMessage("T", queue_id, body, properties, 0, 0, 1_767_225_600_000, HOST, HOST, 0, 0, 0)
