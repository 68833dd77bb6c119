"""What a promoted slave must have: messages sent one after the other while masters die, and all that can be consumed."""

from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.client.api import SendStatus
from twinlog.cluster.client.messages import OutgoingMessage
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.remoting.errors import RemotingError

TOPIC = "promoted"
NEVER = str(1 << 30)  # ms between flushes.


async def send_until_refused(namesrv: str, count: int, acknowledged: dict[bytes, int], prefix: bytes) -> None:
    """Note the queue offset of each body that is answered with SEND_OK."""
    async with open_admin((namesrv,), timeout_ms=5000) as admin:
        producer = Producer(admin.api, tries_max=1)
        for number in range(count):
            body = b"%s-%d" % (prefix, number)
            try:
                sent = await producer.send(OutgoingMessage(topic=TOPIC, body=body))
            except RemotingError:
                return  # The master is gone.
            if sent.status is SendStatus.SEND_OK:
                acknowledged[body] = sent.queue_offset


async def consume_all(namesrv: str) -> list[bytes]:
    """The body of every message that a consumer gets now."""
    found: list[bytes] = []
    async with open_admin((namesrv,)) as admin:
        await admin.consume(TOPIC, lambda message: found.append(message.body) or True)  # type: ignore[func-returns-value]
    return found
