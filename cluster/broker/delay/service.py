"""Delivers delayed messages when they are due. Masters only.

Ten times a second each level is looked at, and what is due is put as new messages. delayOffset.json keeps, for each level, the
queue offset of the next one to deliver. Source: ScheduleMessageService.java (RocketMQ 4.9.8). Other than there: the file moves on
only when the delivered message is on disk, and what slaves are told (45) only when they hold it, but delivery goes on; levels
that the table no longer has are delivered as well; a level in trouble holds up no other.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any, Protocol

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.delay.records import Progress, delivered
from twinlog.cluster.config.json_file import JsonFile
from twinlog.cluster.remoting.names import SCHEDULE_TOPIC
from twinlog.store.errors import MessageFormatError
from twinlog.store.log.commit_log import PutMessage, PutResult
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_ext import is_ext_address
from twinlog.store.record.message import decode_message

log = structlog.get_logger(__name__)

FIRST_LOOK_SECONDS, LOOK_SECONDS, AFTER_ERROR_SECONDS = 1.0, 0.1, 10.0
_BATCH_MAX = 64  # Messages of one level that are looked at, and put, together.
_UNKNOWN_LEVEL_MS = 1_000  # RocketMQ's delay for a level that its table does not have.
_TRY_AGAIN = frozenset(
    {PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.CREATE_MAPPED_FILE_FAILED, PutStatus.OS_PAGECACHE_BUSY}
)


class _Store(Protocol):
    @property
    def flushed_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...
    def queue(self, topic: str, queue_id: int) -> ConsumeQueue: ...
    def queues(self) -> Iterator[tuple[str, int, ConsumeQueue]]: ...
    def message_of(self, topic: str, queue_id: int, queue_offset: int) -> memoryview | None: ...
    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int: ...
    def put(self, messages: list[PutMessage]) -> list[PutResult]: ...


@define(kw_only=True, eq=False)
class ScheduleMessageService:
    """`confirmed_offset` is the log offset up to which replicas have what they must have."""

    store: _Store
    file: JsonFile
    levels_ms: tuple[int, ...]
    now_ms: Callable[[], int]
    confirmed_offset: Callable[[], int]
    delivered: Callable[[int, list[PutResult]], None] = lambda _level, _results: None
    flush_interval_ms: int = 10_000
    positions: dict[int, int] = field(factory=dict, init=False)  # By level: the next unit to look at.
    _held: Progress = field(factory=Progress, init=False)  # By replicas.
    _flushed: Progress = field(factory=Progress, init=False)
    _saved: dict[int, int] = field(factory=dict, init=False)
    _levels: int = field(default=0, init=False)  # Of the table, or as many as there are queues.
    _refused: set[int] = field(factory=set, init=False)  # Levels whose next message the store does not take.
    _resting: dict[int, float] = field(factory=dict, init=False)  # Level to when it is looked at again.

    @property
    def table(self) -> dict[int, int]:
        """Progress for slaves; a slave's own is its master's."""
        return self._held.table

    def replace(self, table: dict[int, int]) -> None:
        """A slave's copy of its master's table."""
        self._held = Progress(table)

    def merge(self, value: Mapping[str, Any]) -> None:
        """Take what delayOffset.json says. Raises ValueError."""
        self._set({**self.positions, **read_delay_offsets(value)})

    def take_over(self, positions: Mapping[int, int] | None = None) -> None:
        """Deliver from now on where the master before stopped: it handed this over, or else what it reported last counts."""
        self._set(dict(self.table if positions is None else positions))
        self._saved = {}  # A slave's file is written from its master's table.
        self._refused.clear()
        self._resting.clear()

    def _set(self, positions: dict[int, int]) -> None:
        self.positions = positions
        self._held, self._flushed = Progress(dict(positions)), Progress(dict(positions))

    def plain(self) -> dict[str, Any]:
        """The body of 45."""
        return {"offsetTable": dict(self.table)}

    def correct(self) -> None:
        """Before the first message comes: no level may go on outside of its queue, or it would pass over messages later."""
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
        await trio.sleep(FIRST_LOOK_SECONDS)
        next_flush = trio.current_time()
        while True:
            await self.deliver_due()
            self.confirm()
            if trio.current_time() >= next_flush:
                next_flush = trio.current_time() + self.flush_interval_ms / 1000
                await self.flush()
            await trio.sleep(LOOK_SECONDS)

    @property
    def file_table(self) -> dict[str, Any]:
        """The table for the file."""
        return {"offsetTable": dict(self._flushed.table)}

    async def flush(self) -> None:
        """Write the file if it would be another one."""
        table = dict(self._flushed.table)
        if table == self._saved:
            return
        try:
            await trio.to_thread.run_sync(self.file.save_table, {"offsetTable": table})
            self._saved = table
        except OSError as error:
            log.error("delayOffset.json could not be written", error=str(error))

    async def deliver_due(self) -> None:
        """One look at all levels, a batch of each in turn until nothing more is due."""
        now = trio.current_time()
        busy = [
            level
            for level in range(1, max(self._levels, len(self.levels_ms)) + 1)
            if self._resting.get(level, now) <= now
        ]
        while busy:
            busy = [level for level in busy if self._try(level)]
            if busy:
                await trio.lowlevel.checkpoint()

    def _try(self, level: int) -> bool:
        """Put up to a batch of what is due; whether there may be more."""
        try:
            return self._deliver_some(level)
        except Exception:  # A bug or a broken disk must not end delivery for ever.
            log.exception("delayed messages could not be delivered", delay_level=level)
            self._resting[level] = trio.current_time() + AFTER_ERROR_SECONDS
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
            self._refused.add(level)  # One by one then: what lies before it comes only once.
            self._resting[level] = trio.current_time() + AFTER_ERROR_SECONDS
            log.error(
                "a delayed message is not taken", delay_level=level, position=places[stored], status=refused.value
            )
        return False

    def _due(self, queue: ConsumeQueue, level: int, position: int, tags_code: int, now: int) -> int:
        """Due time, ms. A time farther ahead than its level allows is due now: the clock was set back."""
        delay_ms = self.levels_ms[level - 1] if level <= len(self.levels_ms) else None
        due: int | None = tags_code
        if is_ext_address(tags_code):
            due = queue.ext.tags_code(tags_code) if queue.ext is not None else None
        if due is None:
            stored = self.store.store_timestamp(SCHEDULE_TOPIC, level - 1, position)
            due = stored + (delay_ms if delay_ms is not None else _UNKNOWN_LEVEL_MS)
        return due if delay_ms is None or due <= now + delay_ms else now

    def _read(self, queue: ConsumeQueue, position: int) -> PutMessage | None:
        record = self.store.message_of(queue.topic, queue.queue_id, position)  # Only if it is sound.
        message = None
        if record is not None:
            try:
                message = delivered(decode_message(record, check_crc=False))
            except MessageFormatError as error:
                log.warning("a delayed message cannot be read", position=position, error=str(error))
                return None
        if message is None:
            why = "it is gone or damaged" if record is None else "it does not say where it belongs"
            log.warning("a delayed message is passed over", position=position, why=why)
        return message

    def _move(self, level: int, position: int, results: list[PutResult]) -> None:
        if self.positions.get(level, 0) != position:
            end_offset = results[-1].end_offset if results else 0
            self._held.add(end_offset, level, position)
            self._flushed.add(end_offset, level, position)
            self.positions[level] = position

    def confirm(self) -> None:
        """Let the file follow to what is on disk, and what slaves receive to what they hold."""
        self._flushed.advance(self.store.flushed_offset)
        self._held.advance(self.confirmed_offset())


def read_delay_offsets(value: Mapping[str, Any]) -> dict[int, int]:
    """Raises ValueError for what is no such table."""
    table = value.get("offsetTable") or {}
    if not isinstance(table, dict):
        raise ValueError("offsetTable is no table")
    return {int(level): int(offset) for level, offset in table.items()}
