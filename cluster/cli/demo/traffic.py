"""The producer of `twinlog demo`, its ledger of acknowledged messages, and the reader that checks them. Times in seconds."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import trio
from attrs import define, field, frozen

from twinlog.cluster.client.api import SendStatus
from twinlog.cluster.client.client import Client
from twinlog.cluster.client.consume.pull_consumer import PullConsumer
from twinlog.cluster.client.messages import OutgoingMessage
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.client.subscription import From
from twinlog.cluster.remoting.errors import RemotingError

TOPIC, GROUP = "Orders", "demo-producer"
SENDERS = 16  # Maximum number of messages that wait for a response.
SILENT_SECONDS_MAX = 5.0
PAUSE_SECONDS = 0.02  # Before a message is sent again.
_FILL = "x" * 200


@frozen(kw_only=True)
class LedgerAccount:
    """The comparison with the ledger. `surplus`: further copies of messages whose first try got no response."""

    acknowledged: int
    found: int
    missing: tuple[int, ...]
    surplus: int
    unclear: int  # Found, but never acknowledged.
    unknown: int  # Found, but never sent.

    @property
    def is_good(self) -> bool:
        """True if every acknowledged message was found, and no unknown one."""
        return not self.missing and not self.unknown


@define
class Ledger:
    """The messages of the producer by number."""

    begun: int = field(default=0, init=False)
    acknowledged: dict[int, float] = field(factory=dict, init=False)  # Their times, in the order of the responses.
    failed_tries: int = field(default=0, init=False)
    last_failure: str = field(default="", init=False)

    def begin(self) -> int:
        """Return the number of the next message."""
        self.begun += 1
        return self.begun

    def acknowledge(self, number: int, now: float) -> None:
        """Note the SEND_OK for a message."""
        self.acknowledged[number] = now

    def fail(self, why: str) -> None:
        """Note a try without SEND_OK; the message may be stored all the same."""
        self.failed_tries += 1
        self.last_failure = why

    def longest_pause(self, since: float, until: float) -> float:
        """Return the longest time without an acknowledgement in this period, or overlapping it."""
        times = list(self.acknowledged.values())
        before = max((each for each in times if each <= since), default=since)
        inside = [each for each in times if since < each <= until]
        return max((b - a for a, b in pairwise([before, *inside, until])), default=0.0)

    def counts(self, start: float, step: float, number: int) -> list[int]:
        """Count the acknowledgements in each of `number` steps from `start`."""
        found = [0] * number
        for at in self.acknowledged.values():
            if 0 <= (index := int((at - start) // step)) < number:
                found[index] += 1
        return found

    def account(self, found: Iterable[int]) -> LedgerAccount:
        """Compare with the numbers of all messages that a consumer found."""
        copies = Counter(found)
        sent = {number for number in copies if 1 <= number <= self.begun}
        return LedgerAccount(
            acknowledged=len(self.acknowledged),
            found=len(self.acknowledged.keys() & copies.keys()),
            missing=tuple(sorted(self.acknowledged.keys() - copies.keys())),
            surplus=sum(count - 1 for count in copies.values()),
            unclear=len(sent - self.acknowledged.keys()),
            unknown=len(copies.keys() - sent),
        )


@define(eq=False)
class Traffic:
    """`rate` messages a second; each is sent until a broker answers SEND_OK."""

    client: Client
    rate: float
    ledger: Ledger = field(factory=Ledger)
    _is_over: bool = field(default=False, init=False)
    _next_at: float = field(default=0.0, init=False)

    def stop(self) -> None:
        """Send no new messages; run() returns when the others have their responses."""
        self._is_over = True

    async def run(self) -> None:
        """Send until stopped."""
        producer = self.client.producer(GROUP)
        self._next_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(SENDERS):
                nursery.start_soon(self._send_some, producer)

    async def _send_some(self, producer: Producer) -> None:
        while not self._is_over:
            # Messages of a pause are not sent later.
            self._next_at = max(self._next_at, trio.current_time() - 1) + 1 / self.rate
            await trio.sleep_until(self._next_at)
            await self._send(producer, self.ledger.begin())

    async def _send(self, producer: Producer, number: int) -> None:
        message = OutgoingMessage(topic=TOPIC, body=f"{number} {_FILL}".encode(), keys=str(number))
        while True:
            try:
                sent = await producer.send(message)
            except RemotingError as error:
                self.ledger.fail(str(error))
            else:
                if sent.status is SendStatus.SEND_OK:
                    return self.ledger.acknowledge(number, trio.current_time())
                self.ledger.fail(f"{sent.status.name}: {sent.remark}")
            await trio.sleep(PAUSE_SECONDS)


async def numbers_found(client: Client) -> list[int]:
    """Return the number of every message in the topic, including copies. Raises RemotingError, NoRouteError."""
    found: list[int] = []
    async with PullConsumer(client, "demo-auditor", start=From.FIRST, auto_commit=False) as consumer:
        queues = await consumer.queues(TOPIC)
        left = {queue: await client.api.max_offset(_address(client, queue.broker_name), queue) for queue in queues}
        await consumer.assign(queues)
        while any(left.values()):
            messages = await consumer.poll(count_max=1024, timeout_seconds=SILENT_SECONDS_MAX)
            if not messages:
                break  # The account will show what is missing.
            left[messages[0].queue] -= len(messages)
            found += [int(bytes(message.body).split(b" ", 1)[0]) for message in messages]
    return found


def _address(client: Client, broker_name: str) -> str:
    address = client.routes.address(broker_name)
    assert address is not None, "its queue is in a route"
    return address
