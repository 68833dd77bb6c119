"""Dispatches new records to consume queues, index and held pulls.

New units are readable in memory at once and written a little later: all that came to a queue in one system call, instead of one
for each turn of the event loop. Units lost in a crash are rebuilt from the log, like records that were not dispatched yet.

Source: DefaultMessageStore.ReputMessageService, RocketMQ 4.9.8. The appender hands the entries over, so that the log is not read
again; after a start, recovery dispatches what the queues lack.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import cast

import trio
from attrs import define, field

from twinlog.store.index.service import IndexService
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.queue.layout import late_seconds
from twinlog.store.record.multi_dispatch import MoreQueues, is_light, with_more_queues
from twinlog.store.record.scan import DispatchEntry, Entries, EntryColumns
from twinlog.store.recovery.points import RecoveryPoints
from twinlog.store.services.flush import FlushConsumeQueueService, write_late
from twinlog.store.util.wakeup import Wakeup

_BATCH = 4096

# Of the calls of dispatch_deferred(), one of so many leaves it to the task, which sees how many come in a turn of the event loop.
_LEFT_TO_TASK = 64

ArrivalListener = Callable[[str, int, int, list[int]], None]


@define(eq=False, kw_only=True)
class ReputMessageService:
    """`on_arrival`, `on_dispatched`: see MessageStore."""

    log: CommitLog
    queues: ConsumeQueueTable
    queue_flusher: FlushConsumeQueueService
    points: RecoveryPoints
    index: IndexService
    refused: Callable[[str, OSError], object]  # Called when the disk refuses a unit.
    on_arrival: list[ArrivalListener] = field(factory=list, init=False)
    on_dispatched: list[Callable[[], None]] = field(factory=list, init=False)
    # Written, not yet in the queues. In columns: many records at once, from a slave that catches up.
    pending: "list[DispatchEntry | EntryColumns | MoreQueues]" = field(factory=list, init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)
    _grown: Wakeup = field(factory=Wakeup, init=False)
    _is_deferred: bool = field(default=False, init=False)
    _calls: int = field(default=0, init=False)  # Of dispatch_deferred().
    _left: int = field(default=0, init=False)  # Calls that left it to the task, in this turn.
    _gathers: bool = field(default=False, init=False)  # Several come in a turn: the task does them together.
    _failure: Exception | None = field(default=None, init=False)

    def add(self, entries: "Entries | MoreQueues") -> None:
        """Take the entries of records that are in the log now, in its order."""
        if isinstance(entries, list):
            self.pending += entries
        elif len(entries):
            self.pending.append(entries)
        if not self._is_deferred:
            self._wakeup.set()

    def defer(self) -> None:
        """Leave what is added from now on to dispatch_deferred()."""
        self._is_deferred = True

    def dispatch_deferred(self) -> None:
        """Dispatch what was added, at once: a switch of tasks takes longer. Where much is added in a turn of the event loop, by
        several connections, the task does it together.
        """
        self._is_deferred = False
        # A blank at a file's end has no entries, and has to be passed all the same.
        if not self.pending and self.log.dispatched_offset >= self.log.max_offset:
            return
        self._calls += 1
        if self._gathers or self._calls % _LEFT_TO_TASK == 0:
            self._left += 1
            if self._left == 1:  # Each call while the task is on its way would wake it once more.
                self._wakeup.set()
            return
        try:
            self._dispatch_and_tell()
        except Exception as error:  # Not for the caller: run() raises it.
            self._failure = error
            self._wakeup.set()

    def dispatch(self) -> None:
        """Bring the queues up to the end of the log and call the listeners."""
        while self.pending:
            batch, size = self._next_batch()
            try:
                grown = self._put(batch)
            except OSError as error:  # The batch stays: nothing is ever passed over.
                self.refused("writing a consume queue", error)
                return
            del self.pending[:size]
            batch = batch.entries if isinstance(batch, MoreQueues) else batch
            last = batch[-1]
            self.log.dispatched_offset = last.phy_offset + last.size
            self.queue_flusher.last_dispatched_timestamp = last.store_timestamp
            self.points.note(last.phy_offset, last.size, last.store_timestamp)
            self.index.feed(batch)
            if self.queues.late_count:
                self._grown.set()
            for queue, codes in grown.items():
                for listener in self.on_arrival:
                    listener(queue.topic, queue.queue_id, queue.max_offset, codes)
        self.log.dispatched_offset = self.log.max_offset

    def _put(self, batch: "Entries | MoreQueues") -> dict[ConsumeQueue, list[int]]:
        if isinstance(batch, list):
            return self.queues.put(batch)
        if isinstance(batch, MoreQueues):
            return self.queues.put(with_more_queues(batch.entries, self._takes))
        return self.queues.put_columns(batch)

    def _takes(self, entry: DispatchEntry) -> bool:
        return is_light(entry.topic) and self.queues.admits(entry.topic, entry.queue_id)

    def _next_batch(self) -> "tuple[Entries | MoreQueues, int]":
        """The next entries to dispatch together, and the number of pending items that they are."""
        first, some = self.pending[0], self.pending[:_BATCH]
        if not isinstance(first, DispatchEntry):
            return first, 1
        if set(map(type, some)) != {DispatchEntry}:  # Rarely.
            some = list(takewhile(lambda item: isinstance(item, DispatchEntry), some))
        return cast(list[DispatchEntry], some), len(some)

    async def run(self) -> None:
        """Dispatch until cancelled."""
        self.queues.writes_late = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_late)
                while True:
                    await self._wakeup.wait()
                    if self._failure is not None:
                        raise self._failure
                    if self._left:
                        self._gathers, self._left = self._left > 1, 0
                    self._dispatch_and_tell()
        finally:
            self.queues.writes_late = False

    def _dispatch_and_tell(self) -> None:
        self.dispatch()
        for listener in self.on_dispatched:
            listener()

    async def _write_late(self) -> None:
        seconds = late_seconds(0)
        while True:
            await self._grown.wait()
            await trio.sleep(seconds)
            seconds = late_seconds(self.queues.late_count)
            try:
                await write_late(self.queues)
            except OSError as error:
                self.refused("writing a consume queue", error)
