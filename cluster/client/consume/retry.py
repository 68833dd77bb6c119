"""Retries of failed messages: the decision, and its execution at the broker or in this process.

Sources: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService, DefaultMQPushConsumerImpl.sendMessageBack (4.9.8).
"""

from enum import Enum

from attrs import define

from twinlog.cluster.client.client import Client
from twinlog.cluster.client.consume.batch import Batch
from twinlog.cluster.client.consume.offsets import address_of
from twinlog.cluster.client.consume.process_queue import ProcessQueue
from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.client.producer import PreparedSend, Producer
from twinlog.cluster.client.subscription import INNER_PRODUCER
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.names import retry_topic
from twinlog.store.record.properties import format_properties
from twinlog.store.util.late_logger import LateLogger

RECONSUME_TIMES_MAX = 16  # RocketMQ's default for -1, except for ordered consumers, which try for ever.
LOCAL_RETRY_SECONDS = 5.0
FIRST_DELAY_LEVEL = 3  # 10 s; the next ones are 30 s, 1 min, ...
_FOREVER = 2**31 - 1
_OF_THE_FIRST_COPY = frozenset({"TRAN_MSG", "CLUSTER"})

log = LateLogger(__name__)


class Failed(Enum):
    """The next step for a message that failed."""

    SEND_BACK = "send back"  # The broker delivers it again later, or moves it to the group's %DLQ% topic.
    HERE_AGAIN = "here again"  # This consumer tries it again, after a pause.
    DROP = "drop"


def retries(configured: int, *, ordered: bool) -> int:
    """The value of maxReconsumeTimes on the wire; -1 becomes RocketMQ's default."""
    if configured >= 0:
        return configured
    return _FOREVER if ordered else RECONSUME_TIMES_MAX


def after_failure(message: ReceivedMessage, times_max: int, *, ordered: bool, broadcasting: bool) -> Failed:
    """Decide the next step. Broadcast messages belong to no group that could retry them; ordered ones keep their order."""
    assert times_max >= 0, times_max
    if ordered:
        return Failed.SEND_BACK if message.reconsume_times >= times_max and not broadcasting else Failed.HERE_AGAIN
    return Failed.DROP if broadcasting else Failed.SEND_BACK


def retry_properties(message: ReceivedMessage) -> dict[str, str]:
    """The properties of a copy for the retry topic, which is sent when request 36 failed, and by ordered consumers."""
    return {
        **{name: value for name, value in message.properties.items() if name not in _OF_THE_FIRST_COPY},
        "ORIGIN_MESSAGE_ID": message.properties.get("ORIGIN_MESSAGE_ID", message.message_id),
        "RETRY_TOPIC": message.topic,
        "DELAY": str(FIRST_DELAY_LEVEL + message.reconsume_times),  # The broker would choose that, too.
    }


@define(eq=False)
class Retries:
    """Carries out what after_failure() decides, for one consumer of a group."""

    client: Client
    group: str
    ordered: bool
    broadcasting: bool
    reconsume_times_max: int

    async def place_failed(self, batch: Batch, held: ProcessQueue) -> list[ReceivedMessage]:
        """Send each failed message to its next place; returns those that stay here, counted once more.

        One after the other: after a cancellation it may be called again, and finds only messages without a place.
        """
        here = []
        for message in batch.messages:
            if held.is_dropped:  # Its next reader gets the others again.
                return []
            if not held.is_in_hand(message):
                continue
            if await self._place(message, batch.delay_level):
                held.remove([message])
            else:
                here.append(message.again())
        return here

    async def _place(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Send a failed message where it belongs; False: this consumer has to try it again."""
        times_max = retries(self.reconsume_times_max, ordered=self.ordered)
        match after_failure(message, times_max, ordered=self.ordered, broadcasting=self.broadcasting):
            case Failed.HERE_AGAIN:
                return False
            case Failed.DROP:
                log.warning("broadcast message failed; it is dropped", message=message.message_id)
                return True
            case Failed.SEND_BACK:
                return await self._send_back(message, delay_level, times_max)

    async def _send_back(self, message: ReceivedMessage, delay_level: int, times_max: int) -> bool:
        """Give a message back to its broker or, where that fails, send a copy to the retry topic; False: both failed."""
        api, group = self.client.api, self.group
        if not self.ordered:
            try:
                address = address_of(self.client, message.queue)
                await api.send_back(address, message, group=group, delay_level=delay_level, times_max=times_max)
                return True
            except RemotingError as error:
                log.info(
                    "message not taken back by its broker; sending a copy", message=message.message_id, error=str(error)
                )
        try:
            producer = Producer(api, INNER_PRODUCER, routes=self.client.routes, ids=self.client.ids)
            await producer.deliver(retry_copy(message, group, times_max, ordered=self.ordered))
            return True
        except RemotingError as error:
            log.warning(
                "message not sent to its retry topic; trying it again here",
                message=message.message_id,
                error=str(error),
            )
            return False


def retry_copy(message: ReceivedMessage, group: str, times_max: int, *, ordered: bool) -> PreparedSend:
    """The copy for the retry topic; after the last try the broker makes a dead letter of it."""
    return PreparedSend(
        topic=retry_topic(group),
        message_id=message.message_id,
        properties=format_properties(retry_properties(message)),
        body=message.body,
        flag=message.flag,
        reconsume_times=message.reconsume_times + (not ordered),
        reconsume_times_max=times_max,
    )
