"""A producer as applications have them, that writes down what it was told; and a reader of all that is there."""

import trio
from attrs import define, field

from twinlog.cluster.cli.demo.ledger import Ledger
from twinlog.cluster.client.api.answers import SendStatus
from twinlog.cluster.client.client import Client
from twinlog.cluster.client.consume.pull_consumer import PullConsumer
from twinlog.cluster.client.messages import OutgoingMessage
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.client.subscription import From
from twinlog.cluster.remoting.errors import RemotingError

TOPIC, GROUP = "Orders", "demo-producer"
SENDERS = 16  # At most so many messages wait for an answer at once.
SILENT_SECONDS_MAX = 5.0
PAUSE_SECONDS = 0.02  # Before a message is tried again.
_FILL = "x" * 200


@define(eq=False)
class Traffic:
    """`rate` messages a second; each is sent until a broker answers SEND_OK."""

    client: Client
    rate: float
    ledger: Ledger = field(factory=Ledger)
    _is_over: bool = field(default=False, init=False)
    _next_at: float = field(default=0.0, init=False)

    def stop(self) -> None:
        """Begin no message more; run() ends when those under way have their answers."""
        self._is_over = True

    async def run(self) -> None:
        """Until stopped."""
        producer = self.client.producer(GROUP)
        self._next_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(SENDERS):
                nursery.start_soon(self._send_some, producer)

    async def _send_some(self, producer: Producer) -> None:
        while not self._is_over:
            self._next_at = max(self._next_at, trio.current_time() - 1) + 1 / self.rate  # A pause is not made up for.
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
    """The number of every message in the topic, copies too. Raises RemotingError, NoRouteError."""
    found: list[int] = []
    async with PullConsumer(client, "demo-auditor", start=From.FIRST, auto_commit=False) as consumer:
        queues = await consumer.queues(TOPIC)
        left = {queue: await client.api.max_offset(_address(client, queue.broker_name), queue) for queue in queues}
        await consumer.assign(queues)
        while any(left.values()):
            messages = await consumer.poll(count_max=1024, timeout_seconds=SILENT_SECONDS_MAX)
            if not messages:
                break  # What is not there will be missing in the account.
            left[messages[0].queue] -= len(messages)
            found += [int(bytes(message.body).split(b" ", 1)[0]) for message in messages]
    return found


def _address(client: Client, broker_name: str) -> str:
    address = client.routes.address(broker_name)
    assert address is not None, "its queue is in a route"
    return address
