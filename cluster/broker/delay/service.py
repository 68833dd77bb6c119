"""Delivery of delayed messages. Masters only.

Ten times a second each level is checked, and messages that are due are put as new messages. delayOffset.json has the queue offset
of the next message of each level. Source: ScheduleMessageService.java (RocketMQ 4.9.8). Unlike there: the file advances only when
the delivered message is on disk, and the table for slaves (45) only when they hold it, while delivery goes on; levels that are no
longer configured are delivered, too; a level with an error does not stop the others.
"""

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Any

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.delay.records import Progress, delivered
from twinlog.cluster.config.json_file import JsonFile, entries_of
from twinlog.cluster.remoting.names import SCHEDULE_TOPIC
from twinlog.store.errors import MessageFormatError
from twinlog.store.log.commit_log import PutMessage, PutResult
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_ext import is_ext_address
from twinlog.store.record.message import decode_message

log = structlog.get_logger(__name__)

FIRST_CHECK_SECONDS, CHECK_SECONDS, AFTER_ERROR_SECONDS = 1.0, 0.1, 10.0
_BATCH_MAX = 64  # Messages of one level that are read and put together.
_UNKNOWN_LEVEL_MS = 1_000  # RocketMQ's delay for a level that is not configured.
_TRY_AGAIN = frozenset(
    {PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPPED_FILE_FAILED, PutStatus.OS_PAGECACHE_BUSY}
)


@define(kw_only=True, eq=False)
class ScheduleMessageService:
    """`confirmed_offset` returns the log offset up to which enough slaves hold the log."""

    store: MessageStore
    file: JsonFile
    levels_ms: tuple[int, ...]
    now_ms: Callable[[], int]
    confirmed_offset: Callable[[], int]
    delivered: Callable[[int, list[PutResult]], None] = lambda _level, _results: None
    flush_interval_ms: int = 10_000
    positions: dict[int, int] = field(factory=dict, init=False)  # By level: the next unit to read.
    _held: Progress = field(factory=Progress, init=False)  # By slaves.
    _flushed: Progress = field(factory=Progress, init=False)
    _saved: dict[int, int] = field(factory=dict, init=False)
    _levels: int = field(default=0, init=False)  # Configured ones, or more if there are more queues.
    _refused: set[int] = field(factory=set, init=False)  # Levels whose next message the store refuses.
    _retry_at: dict[int, float] = field(factory=dict, init=False)  # Level to the time of its next check.

    @property
    def table(self) -> dict[int, int]:
        """Progress that slaves copy; on a slave the copy."""
        return self._held.table

    def replace(self, table: dict[int, int]) -> None:
        """Replace a slave's copy of its master's table."""
        self._held = Progress(table)

    def merge(self, value: Mapping[str, Any]) -> None:
        """Take the positions of delayOffset.json. Raises ValueError."""
        self._set({**self.positions, **read_delay_offsets(value)})

    def take_over(self, positions: Mapping[int, int] | None = None) -> None:
        """Deliver from where the former master stopped: `positions` that it handed over, or those that it reported last."""
        self._set(dict(self.table if positions is None else positions))
        self._saved = {}  # A slave's file has its master's table.
        self._refused.clear()
        self._retry_at.clear()

    def _set(self, positions: dict[int, int]) -> None:
        self.positions = positions
        self._held, self._flushed = Progress(dict(positions)), Progress(dict(positions))

    def to_json(self) -> dict[str, Any]:
        """Return the body of the response to 45."""
        return {"offsetTable": dict(self.table)}

    def correct(self) -> None:
        """Move positions into their queues, before the first message: one behind its queue would skip messages later."""
        queues = {queue_id + 1: queue for topic, queue_id, queue in self.store.queues() if topic == SCHEDULE_TOPIC}
        self._levels = max([len(self.levels_ms), *(level for level, queue in queues.items() if queue.max_offset)])
        corrected = {}
        for level, position in self.positions.items():
            queue = self.store.queue(SCHEDULE_TOPIC, level - 1)
            corrected[level] = max(queue.min_offset, min(position, queue.max_offset))
            if corrected[level] != position:
                log.warning("delayOffset.json was corrected", delay_level=level, before=position, now=corrected[level])
        self._set(corrected)

    async def run(self) -> None:
        """Deliver until cancelled."""
        await trio.sleep(FIRST_CHECK_SECONDS)
        next_flush = trio.current_time()
        while True:
            await self.deliver_due()
            self.confirm()
            if trio.current_time() >= next_flush:
                next_flush = trio.current_time() + self.flush_interval_ms / 1000
                await self.flush()
            await trio.sleep(CHECK_SECONDS)

    @property
    def file_table(self) -> dict[str, Any]:
        """Content of the file."""
        return {"offsetTable": dict(self._flushed.table)}

    async def flush(self) -> None:
        """Write the file if its content has changed."""
        table = dict(self._flushed.table)
        if table == self._saved:
            return
        try:
            await trio.to_thread.run_sync(self.file.save_table, {"offsetTable": table})
            self._saved = table
        except OSError as error:
            log.error("delayOffset.json could not be written", error=str(error))

    async def deliver_due(self) -> None:
        """Deliver what is due of all levels, a batch of each in rotation."""
        now = trio.current_time()
        busy = [
            level
            for level in range(1, max(self._levels, len(self.levels_ms)) + 1)
            if self._retry_at.get(level, now) <= now
        ]
        while busy:
            busy = [level for level in busy if self._try(level)]
            if busy:
                await trio.lowlevel.checkpoint()

    def _try(self, level: int) -> bool:
        """Deliver up to a batch of a level; True when more may be due."""
        try:
            return self._deliver_some(level)
        except Exception:  # A bug or a broken disk must not end delivery for good.
            log.exception("delayed messages could not be delivered", delay_level=level)
            self._retry_at[level] = trio.current_time() + AFTER_ERROR_SECONDS
            return False

    def _deliver_some(self, level: int) -> bool:
        queue = self.store.queue(SCHEDULE_TOPIC, level - 1)
        position = max(queue.min_offset, min(self.positions.get(level, 0), queue.max_offset))
        if position == queue.max_offset:
            return False
        now, count_max = self.now_ms(), 1 if level in self._refused else _BATCH_MAX
        batch: list[PutMessage] = []
        places: list[int] = []
        batch_end = position + count_max
        while position < min(queue.max_offset, batch_end):
            unit = queue.unit(position)
            if unit is not None:
                if self._due(queue, level, position, unit.tags_code, now) > now:
                    break
                if message := self._read(queue, position):
                    batch.append(message)
                    places.append(position)
            position += 1
        results = self.store.put(batch) if batch else []
        stored = sum(1 for _ in takewhile(lambda result: result.status is PutStatus.PUT_OK, results))
        refused = results[stored].status if stored < len(results) else None
        self._move(level, places[stored] if refused else position, results[:stored])
        self.delivered(level, results[:stored])
        if refused is None:
            self._refused.discard(level)
            return position == batch_end
        if refused not in _TRY_AGAIN:
            self._refused.add(level)  # Then one by one, so that the messages before it are put only once.
            self._retry_at[level] = trio.current_time() + AFTER_ERROR_SECONDS
            log.error("a delayed message was refused", delay_level=level, position=places[stored], status=refused.value)
        return False

    def _due(self, queue: ConsumeQueue, level: int, position: int, tags_code: int, now: int) -> int:
        """Return the due time, ms. A time farther ahead than its level's delay is due now: the clock was set back."""
        delay_ms = self.levels_ms[level - 1] if level <= len(self.levels_ms) else None
        due: int | None = tags_code
        if is_ext_address(tags_code):
            due = queue.ext.tags_code(tags_code) if queue.ext is not None else None
        if due is None:
            stored = self.store.store_timestamp(SCHEDULE_TOPIC, level - 1, position)
            due = stored + (delay_ms if delay_ms is not None else _UNKNOWN_LEVEL_MS)
        return due if delay_ms is None or due <= now + delay_ms else now

    def _read(self, queue: ConsumeQueue, position: int) -> PutMessage | None:
        record = self.store.message_of(queue.topic, queue.queue_id, position)
        message = None
        if record is not None:
            try:
                message = delivered(decode_message(record, check_crc=False))
            except MessageFormatError as error:
                log.warning("a delayed message cannot be read", position=position, error=str(error))
                return None
        if message is None:
            why = "it is gone or damaged" if record is None else "it has no target"
            log.warning("a delayed message is skipped", position=position, why=why)
        return message

    def _move(self, level: int, position: int, results: list[PutResult]) -> None:
        if self.positions.get(level, 0) != position:
            assert position > self.positions.get(level, 0) or not results, (level, position)
            end_offset = results[-1].end_offset if results else 0
            self._held.add(end_offset, level, position)
            self._flushed.add(end_offset, level, position)
            self.positions[level] = position

    def confirm(self) -> None:
        """Advance the file to what is on disk, and the table for slaves to what they hold."""
        self._flushed.advance(self.store.flushed_offset)
        self._held.advance(self.confirmed_offset())


def read_delay_offsets(value: Mapping[str, Any]) -> dict[int, int]:
    """Read the table of delayOffset.json. Raises ValueError."""
    return {int(level): int(offset) for level, offset in entries_of(value, "offsetTable").items()}
