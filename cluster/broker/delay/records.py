"""Records of delayed messages, and the progress of their delivery. No I/O.

    put        topic and queue become properties REAL_TOPIC and REAL_QID; topic SCHEDULE_TOPIC_XXXX, queue level - 1
    delivery   the same properties, DELAY too, the old store host, and the original topic and queue

Source: ScheduleMessageService.messageTimeup, CommitLog.asyncPutMessage (RocketMQ 4.9.8).
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from attrs import define, field

from twinlog.cluster.remoting.names import HALF_TOPIC, SCHEDULE_TOPIC
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.record.message import Message
from twinlog.store.record.properties import DELAY, TAGS, tags_code, without_dispatch

REAL_TOPIC, REAL_QUEUE_ID = "REAL_TOPIC", "REAL_QID"


class Delayed(NamedTuple):
    """Topic, queue and properties of a delayed message."""

    topic: str
    queue_id: int
    properties: dict[str, str]
    tags_code: int  # Due time, ms since 1970, as units of the schedule topic have it.


def delayed(
    topic: str, queue_id: int, properties: Mapping[str, str], levels_ms: tuple[int, ...], now_ms: int
) -> Delayed | None:
    """Return the place of a message in the schedule topic; None without a DELAY level.

    Not for half messages of transactions: they keep their level until the commit. Raises ValueError for a level
    that is not a number.
    """
    text = properties.get(DELAY)
    level = min(int(text), len(levels_ms)) if text else 0
    if level <= 0:
        return None
    changed = {**properties, DELAY: str(level), REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
    return Delayed(SCHEDULE_TOPIC, level - 1, changed, now_ms + levels_ms[level - 1])


def delivered(message: Message) -> PutMessage | None:
    """Return the original message, to be put again; None when it has no target.

    The stored properties stay as they are, with DELAY, REAL_TOPIC and REAL_QID, as RocketMQ's do.
    """
    properties = message.properties
    topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID, "")
    if not topic or topic == HALF_TOPIC or not queue_id.isdecimal():
        return None
    code = tags_code(properties.get(TAGS, ""))
    return put_again(message, topic, int(queue_id), without_dispatch(message.properties_raw), code)


def put_again(message: Message, topic: str, queue_id: int, properties: bytes, code: int) -> PutMessage:
    """Make the copy of a stored message for another place; `code`: its tags code there."""
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        properties=properties,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        tags_code=code,
    )


class _Step(NamedTuple):
    end_offset: int  # Of the delivered message, bytes.
    level: int
    position: int


@define
class Progress:
    """Next queue offset of each level, advanced only once the delivered messages are flushed or replicated."""

    table: dict[int, int] = field(factory=dict)
    steps_max: int = 1024
    _steps: deque[_Step] = field(factory=deque, init=False)

    def add(self, end_offset: int, level: int, position: int) -> None:
        """Note that a level is delivered up to `position`; its last message ends at `end_offset` of the log, 0 without one."""
        if self._steps:  # Earlier deliveries must be safe first, also if later messages were skipped.
            end_offset = max(end_offset, self._steps[-1].end_offset)
        if len(self._steps) >= self.steps_max:  # Nothing was confirmed for long: keep the last step of each level.
            last = {step.level: step for step in self._steps}
            self._steps = deque(sorted(last.values()))
        self._steps.append(_Step(end_offset, level, position))

    def advance(self, safe_offset: int) -> None:
        """Advance the levels whose messages lie below `safe_offset` of the log."""
        while self._steps and self._steps[0].end_offset <= safe_offset:
            _, level, position = self._steps.popleft()
            self.table[level] = position
