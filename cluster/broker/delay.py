"""Messages with a delay level: into the schedule topic when they are put, out of it when they are due.

    put:      topic and queue become properties REAL_TOPIC and REAL_QID; topic SCHEDULE_TOPIC_XXXX, queue level - 1
    delivery: a master looks at each level 10 times a second and puts what is due as new messages; delayOffset.json keeps,
              for each level, the queue offset of the next one to deliver

Source: ScheduleMessageService.java, CommitLog.asyncPutMessage (RocketMQ 4.9.8). Other than there, a message is delivered
once while the broker runs: what the file keeps moves on only when replicas hold the delivered message, but delivery goes on.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import structlog
import trio
from attrs import define, field

from cluster.broker.json_file import JsonFile
from cluster.broker.names import HALF_TOPIC, SCHEDULE_TOPIC
from store.commit_log import PutMessage, PutResult
from store.consume_queue import ConsumeQueue
from store.errors import MessageFormatError
from store.message import Message, decode_message
from store.offset_waiters import PutStatus
from store.properties import DELAY, tags_code

log = structlog.get_logger(__name__)

REAL_TOPIC, REAL_QUEUE_ID = "REAL_TOPIC", "REAL_QID"
FIRST_LOOK_SECONDS, LOOK_SECONDS, AFTER_ERROR_SECONDS = 1.0, 0.1, 10.0
_BATCH_MAX = 64  # Messages of one level that are put together.
_TRY_AGAIN = frozenset(
    {PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPPED_FILE_FAILED, PutStatus.OS_PAGECACHE_BUSY}
)


class Delayed(NamedTuple):
    """Where a message with a delay goes, and with what."""

    topic: str
    queue_id: int
    properties: dict[str, str]
    tags_code: int  # When it is due, ms since 1970: that is what a unit of the schedule topic keeps.


def delayed(
    topic: str, queue_id: int, properties: Mapping[str, str], levels_ms: tuple[int, ...], now_ms: int
) -> Delayed | None:
    """The place of a message with a DELAY level in the schedule topic; None: no level, it is put as it is.

    Not for half messages of transactions: those keep their level until the commit. Raises ValueError for a level
    that is no number.
    """
    wish = properties.get(DELAY)
    level = min(int(wish), len(levels_ms)) if wish else 0
    if level <= 0:
        return None
    changed = {**properties, DELAY: str(level), REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
    return Delayed(SCHEDULE_TOPIC, level - 1, changed, now_ms + levels_ms[level - 1])


def delivered(message: Message) -> PutMessage | None:
    """The message that was meant, to be put anew; None when there is none to deliver.

    The stored properties stay as they are, with DELAY, REAL_TOPIC and REAL_QID, as RocketMQ's do.
    """
    properties = message.properties
    topic, queue_id = properties.get(REAL_TOPIC), properties.get(REAL_QUEUE_ID, "")
    if not topic or topic == HALF_TOPIC or not queue_id.isdecimal():
        return None
    return PutMessage(
        topic=topic,
        queue_id=int(queue_id),
        body=message.body,
        properties=message.properties_raw,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        tags_code=tags_code(properties.get("TAGS", "")),
    )


class _Unconfirmed(NamedTuple):
    end_offset: int  # Of the delivered message, bytes.
    level: int
    position: int


class _Store(Protocol):
    def queue(self, topic: str, queue_id: int) -> ConsumeQueue: ...
    def message_at(self, phy_offset: int) -> memoryview | None: ...
    def put(self, messages: list[PutMessage]) -> list[PutResult]: ...


@define(kw_only=True, eq=False)
class ScheduleMessageService:
    """`confirmed_offset` is the log offset up to which replicas have what they must have."""

    store: _Store
    file: JsonFile
    levels_ms: tuple[int, ...]
    now_ms: Callable[[], int]
    confirmed_offset: Callable[[], int]
    flush_interval_ms: int = 10_000
    table: dict[int, int] = field(factory=dict, init=False)  # By level: what the file keeps.
    positions: dict[int, int] = field(factory=dict, init=False)  # By level: the next unit to look at.
    _unconfirmed: deque[_Unconfirmed] = field(factory=deque, init=False)
    _saved: dict[int, int] = field(factory=dict, init=False)

    def merge(self, value: Mapping[str, Any]) -> None:
        """Take what delayOffset.json says. Raises ValueError."""
        self.table.update(read_delay_offsets(value))
        self.positions = dict(self.table)

    def plain(self) -> dict[str, Any]:
        """delayOffset.json, and the body of 45."""
        return {"offsetTable": dict(self.table)}

    async def run(self) -> None:
        """Deliver until cancelled. Masters only."""
        await trio.sleep(FIRST_LOOK_SECONDS)
        next_flush = trio.current_time()
        while True:
            pause = LOOK_SECONDS
            try:
                await self.deliver_due()
            except Exception:  # A bug or a broken disk must not end delivery for ever.
                log.exception("delayed messages could not be delivered")
                pause = AFTER_ERROR_SECONDS
            self.confirm()
            if trio.current_time() >= next_flush:
                next_flush = trio.current_time() + self.flush_interval_ms / 1000
                await self.flush()
            await trio.sleep(pause)

    async def flush(self) -> None:
        """Write the file if it would be another one."""
        if self.table == self._saved:
            return
        saved = dict(self.table)
        try:
            await trio.to_thread.run_sync(self.file.save_table, self.plain())
            self._saved = saved
        except OSError as error:
            log.error("delayOffset.json could not be written", error=str(error))

    def settle(self) -> None:
        """After the last put: what was delivered is in the log, so the file may say so."""
        self.table.update(self.positions)

    async def deliver_due(self) -> None:
        """One look at all levels. Raises OSError when the log cannot be written."""
        for level, delay_ms in enumerate(self.levels_ms, start=1):
            while self._deliver_some(level, delay_ms):
                await trio.lowlevel.checkpoint()

    def _deliver_some(self, level: int, delay_ms: int) -> bool:
        """Put up to a batch of what is due; whether there may be more."""
        queue = self.store.queue(SCHEDULE_TOPIC, level - 1)
        position = self.positions.get(level, 0)
        clamped = max(queue.min_offset, min(position, queue.max_offset))
        if clamped == queue.max_offset:
            if clamped != position:
                self.positions[level] = clamped
            return False
        now, position = self.now_ms(), clamped
        batch: list[PutMessage] = []
        while position < queue.max_offset and len(batch) < _BATCH_MAX:
            unit = queue.unit(position)
            if unit is not None:
                due = unit.tags_code if unit.tags_code <= now + delay_ms else now  # The clock was set back.
                if due > now:
                    break
                if message := self._read(unit.phy_offset):
                    batch.append(message)
            position += 1
        return self._put(level, position, batch) and len(batch) == _BATCH_MAX

    def _read(self, phy_offset: int) -> PutMessage | None:
        record = self.store.message_at(phy_offset)
        if record is None:
            return None
        try:
            return delivered(decode_message(record, check_crc=False))
        except MessageFormatError as error:
            log.warning("a delayed message cannot be read", phy_offset=phy_offset, error=str(error))
            return None

    def _put(self, level: int, position: int, batch: list[PutMessage]) -> bool:
        """False: try the same again at the next look."""
        results = self.store.put(batch) if batch else []
        if any(result.status in _TRY_AGAIN for result in results):
            return False
        end_offset = max((result.end_offset for result in results), default=0)
        if self.positions.get(level, 0) != position:
            self._unconfirmed.append(_Unconfirmed(end_offset, level, position))
            self.positions[level] = position
        return True

    def confirm(self) -> None:
        """Let the table follow to what replicas have."""
        confirmed = self.confirmed_offset()
        while self._unconfirmed and self._unconfirmed[0].end_offset <= confirmed:
            _, level, position = self._unconfirmed.popleft()
            self.table[level] = position


def read_delay_offsets(value: Mapping[str, Any]) -> dict[int, int]:
    """Raises ValueError for what is no such table."""
    table = value.get("offsetTable") or {}
    if not isinstance(table, dict):
        raise ValueError("offsetTable is no table")
    return {int(level): int(offset) for level, offset in table.items()}
