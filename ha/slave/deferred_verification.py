"""Deferred verification of a slave far behind: bytes go straight into the log file, behind the log's end, and are verified later.

Bytes that are not verified are not part of the log (store/log/unverified_tail.py): they are neither acknowledged nor read.
ha/policy/deferred_plan.py decides on each step.
"""

import importlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from twinlog.ha.errors import HABadRecordError, HAConnectionLostError, HAError, HALogError, HAProtocolError
from twinlog.ha.policy import deferred_plan as deferred_plan
from twinlog.ha.policy.deferred_plan import DeferredPlan, Leave, Receive, Stream, Verify
from twinlog.ha.wire.protocol import BatchReader
from twinlog.ha.wire.transport import Transport
from twinlog.store.errors import StoreError
from twinlog.store.log.unverified_tail import LogTail
from twinlog.store.message_store import MessageStore
from twinlog.store.record.scan import Scan

if TYPE_CHECKING:
    from twinlog.store.record.column_scan import ColumnScan

BUFFER_BYTES = 512 * 1024  # A write takes no more, see store/log/mapped_file.py.
# Of data, offset, file_size and delays_ms; see twinlog.store.record.scan.
ScanRecords = Callable[[memoryview, int, int, tuple[int, ...]], "Scan | ColumnScan"]

columns_loaded = False


async def load_columns() -> None:
    """Load the scan by columns in a thread, once: numpy comes with it, and its import would block the event loop."""
    global columns_loaded
    if not columns_loaded:
        await trio.to_thread.run_sync(importlib.import_module, "twinlog.store.record.column_scan")
        columns_loaded = True


@define(eq=False)
class DeferredVerification:
    """Runs while a slave is far behind, until it has caught up. `appended` is called with the size of each stretch."""

    transport: Transport
    reader: BatchReader
    store: MessageStore
    size_max: int
    scan: ScanRecords
    appended: Callable[[int], Awaitable[None]]
    read_at: Callable[[], None]  # Called when something arrived.
    is_far: Callable[[], bool]  # True if the master is known to have much more.
    _tail: LogTail = field(init=False)
    _plan: DeferredPlan = field(factory=DeferredPlan, init=False)
    _needed: int = field(default=1, init=False)  # Bytes behind the log's end that a whole record takes, at least.
    _buffer: memoryview = field(init=False)
    _stretch: bytearray = field(factory=bytearray, init=False)
    _is_sound: bool = field(default=True, init=False)  # Only the beginning of a record is left.
    _lost: HAError | None = field(default=None, init=False)

    async def run(self) -> None:
        """Return when only the beginning of a record is left, which is staged in the reader then.

        Raises the error that ends the stream, once all that came before is verified: HAConnectionLostError, HAProtocolError;
        HABadRecordError, HALogError.
        """
        await load_columns()
        if self.reader.staged_offset != self.store.max_offset:
            raise HALogError(f"this log ends at {self.store.max_offset}, not at {self.reader.staged_offset} as it did")
        try:
            self._tail = self.store.begin_tail()
        except StoreError as error:
            raise HALogError(f"this log takes no bytes: {error}") from error
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._is_sound = False
        try:
            self._write(memoryview(self.reader.begin_passing()))
            await self._run_steps()
            self._is_sound = True
            rest = self._rest()
        finally:
            await self.store.close_tail(self._tail, durably=not self._is_sound)
        self.reader.end_passing(rest)
        if self._lost is not None:
            raise self._lost

    async def _run_steps(self) -> None:
        while True:
            self._check_wanted()
            match self._plan.next(room=self._tail.room(self.size_max), verifiable=self._tail.size >= self._needed):
                case Receive() as step:
                    await self._receive(step)
                case Verify():
                    await self._verify()
                case Leave():
                    return

    def _check_wanted(self) -> None:
        if self.store.flags.why_not_appendable:
            raise HALogError(f"this log takes no bytes: {self.store.flags.why_not_appendable}")
        if self._tail.is_unwanted:
            raise HALogError("another operation is about to change this log")

    async def _receive(self, step: Receive) -> None:
        frames, end, begin = self.reader.frames, self._tail.end, trio.current_time()
        stream: Stream = "ended"
        try:
            stream = await self.transport.receive_bulk(self._buffer, self._take, step)
            if stream == "ended":
                self._lost = HAConnectionLostError("the master closed the connection")
        except (HAProtocolError, HAConnectionLostError) as error:
            self._lost = error
        except OSError as error:  # Bytes that were not written are lost, and requested again.
            self._lost = HALogError(f"writing at offset {self._tail.end} failed: {error}")
        if self._tail.end > end or self.reader.frames > frames:
            self.read_at()
        self._plan.received(self._tail.end - end, trio.current_time() - begin, stream, is_far=self.is_far())

    def _take(self, data: memoryview) -> None:
        for piece in self.reader.pieces(data):
            self._tail.write(piece)

    def _write(self, data: memoryview) -> None:
        try:
            if data:
                self._tail.write(data)
        except OSError as error:
            raise HALogError(f"writing at offset {self._tail.end} failed: {error}") from error

    async def _verify(self) -> None:
        store, begin = self.store, trio.current_time()
        offset, file_size = store.max_offset, store.commit_log.file_size
        size = min(max(deferred_plan.STRETCH_BYTES, self._needed), self._tail.size, file_size - offset % file_size)
        try:
            stretch = await trio.to_thread.run_sync(self._read, size)
        except OSError as error:
            raise HALogError(f"reading back {size} bytes at offset {offset} failed: {error}") from error
        scan = self.scan(stretch, offset, file_size, store.delays_ms)
        if scan.consumed:
            try:
                store.take_of_tail(scan.consumed, scan.entries)
            except StoreError as error:
                raise HALogError(f"appending {scan.consumed} bytes at offset {offset} failed: {error}") from error
        self._needed = scan.needed or (1 if scan.consumed else size + 1)
        if scan.consumed:
            await self.appended(scan.consumed)
        self._plan.verified(scan.consumed, trio.current_time() - begin)  # Dispatch and all.
        if scan.error is not None:
            raise HABadRecordError(offset + scan.consumed, scan.error)

    def _read(self, size: int) -> memoryview:
        if len(self._stretch) < size:
            self._stretch = bytearray(size)
        stretch = memoryview(self._stretch)[:size]
        self._tail.read_into(stretch)
        return stretch

    def _rest(self) -> bytes:
        size = self._tail.size
        try:
            return bytes(self._read(size)) if size else b""
        except OSError as error:
            raise HALogError(f"reading back {size} bytes failed: {error}") from error
