"""What becomes of a message whose handler failed. Pure.

Sources: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService, DefaultMQPushConsumerImpl.sendMessageBack
(RocketMQ 4.9.8). Delay levels: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h.
"""

from enum import Enum

from twinlog.cluster.client.received import ReceivedMessage

RECONSUME_TIMES_MAX = 16  # RocketMQ's for -1, except for ordered consumers, who try for ever.
TO_DEAD_LETTERS = -1  # As a delay level: no retry.
LOCAL_RETRY_SECONDS = 5.0
FIRST_DELAY_LEVEL = 3
_FOREVER = 2**31 - 1
_OF_THE_FIRST_COPY = frozenset({"TRAN_MSG", "CLUSTER"})


class Failed(Enum):
    """What a consumer does with a message that failed."""

    SEND_BACK = "send back"  # The broker delivers it again later, or lays it down in the group's %DLQ% topic.
    HERE_AGAIN = "here again"  # This consumer tries it again, after a pause.
    DROP = "drop"


def retries(configured: int, *, ordered: bool) -> int:
    """maxReconsumeTimes as it goes on the wire; -1 takes RocketMQ's default."""
    if configured >= 0:
        return configured
    return _FOREVER if ordered else RECONSUME_TIMES_MAX


def after_failure(message: ReceivedMessage, times_max: int, *, ordered: bool, broadcasting: bool) -> Failed:
    """Broadcast messages belong to no group that could get them again; ordered ones may not be overtaken."""
    if ordered:
        return Failed.SEND_BACK if message.reconsume_times >= times_max and not broadcasting else Failed.HERE_AGAIN
    return Failed.DROP if broadcasting else Failed.SEND_BACK


def retry_topic(group: str) -> str:
    """Where messages of a group come again."""
    return f"%RETRY%{group}"


def retry_delay_level(message: ReceivedMessage) -> int:
    """The level that the broker would choose for the next try: 10 s, 30 s, 1 min, ..."""
    return FIRST_DELAY_LEVEL + message.reconsume_times


def retry_properties(message: ReceivedMessage) -> dict[str, str]:
    """The properties of a copy that is sent to the retry topic when request 36 failed, and always in order."""
    return {
        **{name: value for name, value in message.properties.items() if name not in _OF_THE_FIRST_COPY},
        "ORIGIN_MESSAGE_ID": message.properties.get("ORIGIN_MESSAGE_ID", message.message_id),
        "RETRY_TOPIC": message.topic,
        "DELAY": str(retry_delay_level(message)),
    }
