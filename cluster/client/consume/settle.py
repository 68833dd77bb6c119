"""What follows when a batch is done. Sources: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService (4.9.8)."""

from typing import TYPE_CHECKING

import structlog

from twinlog.cluster.client.consume.batch import Failed, after_failure, retries, retry_properties
from twinlog.cluster.client.consume.offsets import address_of
from twinlog.cluster.client.heartbeat import INNER_PRODUCER
from twinlog.cluster.client.messages import ReceivedMessage
from twinlog.cluster.client.producer import Prepared, Producer
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.names import retry_topic
from twinlog.store.record.properties import format_properties

if TYPE_CHECKING:
    from twinlog.cluster.client.consume.batch import Batch
    from twinlog.cluster.client.consume.process_queue import ProcessQueue
    from twinlog.cluster.client.consume.push_consumer import PushConsumer

log = structlog.get_logger(__name__)


async def failed_messages(consumer: "PushConsumer", batch: "Batch", held: "ProcessQueue") -> list[ReceivedMessage]:
    """Find each failed message its next place and let go of it; those that have none come again here, counted.

    One after the other: who is cancelled may begin again, and finds only those in hand that have no place yet.
    """
    here = []
    for message in batch.messages:
        if held.is_dropped:  # Its next reader gets the others again.
            return []
        if not held.is_in_hand(message):
            continue
        if await find_place(consumer, message, batch.delay_level):
            held.remove([message])
        else:
            here.append(message.again())
    return here


async def find_place(consumer: "PushConsumer", message: ReceivedMessage, delay_level: int) -> bool:
    """Send a failed message to where it belongs; False: it has to come again here."""
    times_max = retries(consumer.reconsume_times_max, ordered=consumer.ordered)
    match after_failure(message, times_max, ordered=consumer.ordered, broadcasting=consumer.broadcasting):
        case Failed.HERE_AGAIN:
            return False
        case Failed.DROP:
            log.warning("a broadcast message has failed, and comes to nobody again", message=message.message_id)
            return True
        case Failed.SEND_BACK:
            return await send_back(consumer, message, delay_level, times_max)


async def send_back(consumer: "PushConsumer", message: ReceivedMessage, delay_level: int, times_max: int) -> bool:
    """Give a message back to its broker, or send a copy of it to the group's retry topic; whether one of them worked."""
    if not consumer.ordered:
        api = consumer.client.api
        try:
            address = address_of(consumer.client, message.queue)
            await api.send_back(address, message, group=consumer.group, delay_level=delay_level, times_max=times_max)
            return True
        except RemotingError as error:
            log.info("a message was not taken back", message=message.message_id, error=str(error))
    try:
        producer = Producer(consumer.client.api, INNER_PRODUCER, routes=consumer.client.routes, ids=consumer.client.ids)
        await producer.deliver(retry_copy(message, consumer.group, times_max, ordered=consumer.ordered))
        return True
    except RemotingError as error:
        log.warning("a message could not be sent to its retry topic", message=message.message_id, error=str(error))
        return False


def retry_copy(message: ReceivedMessage, group: str, times_max: int, *, ordered: bool) -> Prepared:
    """What goes to %RETRY% when request 36 does not work; the broker makes a dead letter of it when it is time."""
    return Prepared(
        topic=retry_topic(group),
        message_id=message.message_id,
        properties=format_properties(retry_properties(message)),
        body=message.body,
        flag=message.flag,
        reconsume_times=message.reconsume_times + (not ordered),
        reconsume_times_max=times_max,
    )
