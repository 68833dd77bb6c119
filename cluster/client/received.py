"""Messages as a consumer sees them, out of the records that a broker sends. Pure.

Sources: MessageDecoder, PullAPIWrapper, MessageExt (RocketMQ 4.9.8).
"""

from collections.abc import Callable

from attrs import evolve, field, frozen

from twinlog.cluster.client.compression import CompressionError, decompress
from twinlog.cluster.client.outgoing import RETRY_PREFIX
from twinlog.cluster.client.route import MessageQueue
from twinlog.store.record.message import Message, decode_message, host_text


@frozen
class ReceivedMessage:
    """A message as a consumer sees it. Times in ms since 1970.

    `message_id` is the one that its producer gave it; a message that comes twice has it twice.
    """

    queue: MessageQueue
    queue_offset: int
    message_id: str
    offset_message_id: str
    tags: str
    keys: str
    properties: dict[str, str]
    body: bytes = field(repr=lambda body: f"<{len(body)} bytes>")
    born_timestamp: int
    born_host: str
    store_timestamp: int
    reconsume_times: int
    phy_offset: int  # In the commit log of its broker group.
    flag: int = 0
    body_problem: str | None = None  # Why `body` is still packed as it was stored; None: it is as it was sent.

    @property
    def place_in_time(self) -> tuple[int, int]:
        """What messages of several queues are ordered by; of one millisecond, by the log."""
        return self.store_timestamp, self.phy_offset

    @property
    def topic(self) -> str:
        """The topic that it was sent to, also where it comes again by the group's retry topic."""
        if self.queue.topic.startswith(RETRY_PREFIX):
            return self.properties.get("RETRY_TOPIC", self.queue.topic)
        return self.queue.topic

    def again(self) -> "ReceivedMessage":
        """The same, tried once more."""
        return evolve(self, reconsume_times=self.reconsume_times + 1)


def received(
    records: bytes | memoryview, queue: MessageQueue, wanted: Callable[[str], bool] = lambda _tags: True
) -> list[ReceivedMessage]:
    """The messages of a pull whose tags are wanted, oldest first.

    Raises MessageFormatError for what are no records.
    """
    at, messages = 0, []
    while at < len(records):
        record = decode_message(records, at)
        at += record.size
        message = as_received(record, queue)
        if wanted(message.tags):
            messages.append(message)
    return messages


def as_received(message: Message, queue: MessageQueue) -> ReceivedMessage:
    """One record of that queue; records do not name their broker."""
    properties = message.properties
    body, problem = _body(message)
    return ReceivedMessage(
        queue=queue,
        queue_offset=message.queue_offset,
        message_id=properties.get("UNIQ_KEY", message.message_id),
        offset_message_id=message.message_id,
        tags=properties.get("TAGS", ""),
        keys=properties.get("KEYS", ""),
        properties=properties,
        body=body,
        born_timestamp=message.born_timestamp,
        born_host=host_text(message.born_host),
        store_timestamp=message.store_timestamp,
        reconsume_times=message.reconsume_times,
        phy_offset=message.phy_offset,
        flag=message.flag,
        body_problem=problem,
    )


def _body(message: Message) -> tuple[bytes, str | None]:
    """One body that cannot be unpacked must not hold up its queue."""
    try:
        return decompress(message.body, message.sys_flag), None
    except CompressionError as error:
        return message.body, str(error)
