"""Slave side of one connection: requests what the log lacks, verifies what arrives, appends it, and then acknowledges it.

Source: HAService.HAClient (RocketMQ 4.9.8), which appends and acknowledges without verifying. Here an ack means an
intact copy: whole records, each with its own place in the log and a body that matches its CRC. Bytes of an unfinished
record stay in the reader, so the log always ends at the end of a record. With haAckMode=flushed an ack waits for the
disk, too: one fdatasync is under way at a time, and each answers for all that was appended before it began.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from twinlog.ha.compare.tail_overlap import Overlap
from twinlog.ha.config import AckMode, HAConfig
from twinlog.ha.errors import HABadRecordError, HAConnectionLostError, HALogError, HAProtocolError
from twinlog.ha.policy.deferred_plan import FAR_BYTES, Onset
from twinlog.ha.slave.deferred_verification import DeferredVerification, load_columns
from twinlog.ha.wire.protocol import ACK, BatchReader
from twinlog.ha.wire.transport import Transport, open_peer_nursery
from twinlog.store.errors import StoreError
from twinlog.store.message_store import MessageStore
from twinlog.store.record.scan import Scan, scan_records
from twinlog.store.util.wakeup import Wakeup

if TYPE_CHECKING:
    from twinlog.store.record.column_scan import ColumnScan

# Bytes that arrived together. So many are verified in columns, which takes half the time, and then more of them are waited for.
BULK_SIZE = 256 * 1024
GATHER_SECONDS, GATHER_SECONDS_MAX = 0.001, 0.005


@define(eq=False)
class Replica:
    """Follows a master over one transport, which it owns.

    `overlap`: what is asked for again and compared, before anything new is taken. `begin_at`: what an empty log asks for, a
    file's start; 0 leaves it to the master. `buffer`: of receive_buffer_size, from the connection before.
    """

    transport: Transport
    store: MessageStore
    config: HAConfig
    overlap: Overlap | None = None
    begin_at: int = 0
    master_end: Callable[[], int] = lambda: 0  # End of the master's log when it was asked last; 0: it was not.
    buffer: bytearray | None = None
    received_bytes: int = field(default=0, init=False)  # Of log, appended.
    reported_at: float = field(default=0.0, init=False)  # Monotonic seconds of the last report.
    connected_at: float = field(factory=trio.current_time, init=False)
    last_read: float = field(factory=trio.current_time, init=False)
    _reader: BatchReader = field(init=False)
    _needed: int = field(default=0, init=False)  # Bytes of the record that has begun, once known.
    _requested: bool = field(default=False, init=False)
    _onset: Onset = field(factory=Onset, init=False)
    _is_far: bool = field(default=False, init=False)  # Verification is to be deferred, see _is_far_behind().
    _reporting: bool = field(default=False, init=False)
    _report_due: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._reader = BatchReader(
            # RocketMQ's rule: a log that ends at 0 begins wherever the master does.
            next_offset=(self.overlap.start if self.overlap is not None else self.store.max_offset or self.begin_at)
            or None,
            file_size=self.store.commit_log.file_size,
            body_size_max=self.config.receive_body_size_max,
            buffer=self.buffer if self.buffer is not None else bytearray(self.config.receive_buffer_size),
        )

    @property
    def frames(self) -> int:
        """Number of frames that arrived, heartbeats included."""
        return self._reader.frames

    @property
    def position(self) -> int:
        """The next byte that should arrive."""
        return self._reader.next_offset or 0

    @property
    def is_comparing(self) -> bool:
        """True while arriving bytes are compared with those that are here."""
        return self.overlap is not None and not self.overlap.is_done

    async def run(self) -> None:
        """Follow until the connection ends, which is always an error.

        Raises HAProtocolError, of which HABadRecordError and HADivergedError are two, HAConnectionLostError, HALogError.
        What was verified is in the log then, and nothing else.
        """
        try:
            async with open_peer_nursery() as nursery:
                nursery.start_soon(self._watch_task)
                await self._request()  # At once: RocketMQ's own slave waits 5 s.
                if self._acks_flushed:
                    nursery.start_soon(self._flushed_task)
                await self._receive_task()
        finally:
            await self.transport.aclose()

    async def _receive_task(self) -> None:
        while True:
            await self.transport.receive_each(self._reader.free_space, self._take)
            if self._reader.staged_size >= BULK_SIZE:
                await self._take_bulk()
            elif not self._is_far:
                await self._report()
            if self._is_far:
                await self._defer_verification()

    def _take(self, size: int) -> bool:
        """Append and acknowledge what arrived, at once; False when that may have to wait: see _receive_task()."""
        before, was_comparing = self.received_bytes, self.is_comparing
        try:
            self._received(size)
        except (HAProtocolError, HAConnectionLostError):
            self._append()  # What came in order before is good.
            raise
        if self._reader.staged_size >= BULK_SIZE:
            return False
        at_once = self._reader.staged_size
        self.store.defer_dispatch()
        try:
            self._append()
            is_reported = self._acknowledge_now() if self.received_bytes > before or was_comparing else True
        finally:
            self.store.dispatch_deferred()
        self._is_far = self._is_far_behind(at_once)
        return is_reported and not self._is_far

    async def _take_bulk(self) -> None:
        """The same for much that arrived together."""
        before, was_comparing = self.received_bytes, self.is_comparing
        try:
            await self._gather()
        except (HAProtocolError, HAConnectionLostError):
            self._append()
            raise
        at_once = self._reader.staged_size
        self._append()
        if self.received_bytes > before or was_comparing:
            await self._acknowledge()
        self._is_far = self._is_far_behind(at_once)

    def _is_far_behind(self, at_once: int) -> bool:
        # Behind a record of this connection: an empty log has no file yet.
        may_defer = self.config.verify_trail_max > 0 and self.received_bytes > 0
        return may_defer and self._onset.took(at_once, is_far=self._is_master_far_ahead())

    async def _defer_verification(self) -> None:
        """Receive first and verify later, until this slave has caught up. Raises the error that ends the stream."""
        deferred = DeferredVerification(
            self.transport,
            self._reader,
            self.store,
            self.config.verify_trail_max,
            _scan,
            self._appended,
            self._heard,
            self._is_master_far_ahead,
        )
        await deferred.run()
        self._needed = 0

    def _is_master_far_ahead(self) -> bool:
        return self.master_end() - self.position > FAR_BYTES

    async def _appended(self, size: int) -> None:
        self.received_bytes += size
        await self._acknowledge()
        await trio.lowlevel.checkpoint()  # Be fair to the other tasks.

    def _heard(self) -> None:
        self.last_read = trio.current_time()

    async def _receive(self) -> None:
        """Take what arrives next. Raises HAProtocolError, HAConnectionLostError; what came in order before is staged then."""
        self._received(await self.transport.receive_into(self._reader.free_space()))

    def _received(self, size: int) -> None:
        """Take what arrived, in the reader's free space. Raises as _receive() does."""
        if size == 0:
            raise HAConnectionLostError("the master closed the connection")
        self.last_read = trio.current_time()
        self._reader.received(size)

    async def _gather(self) -> None:
        """Wait for more while much arrives: each stretch to verify has a fixed cost."""
        await load_columns()
        if self._is_gathering:
            with trio.move_on_after(GATHER_SECONDS_MAX):
                while self._is_gathering:
                    await trio.sleep(GATHER_SECONDS)
                    await self._receive()

    @property
    def _is_gathering(self) -> bool:
        enough = self.config.receive_buffer_size * 3 // 4
        return BULK_SIZE <= self._reader.staged_size < enough and not self.is_comparing

    async def _acknowledge(self) -> None:
        """Report the end of the log, once it is flushed where haAckMode asks for that."""
        if not self._acknowledge_now():
            await self._report()

    def _acknowledge_now(self) -> bool:
        """The same without waiting; False when the socket did not take the report: _report() is due."""
        if self._acks_flushed and self.store.flusher.flushed_offset < self.store.max_offset:
            self.store.flusher.request()
            return True
        if self._reporting:  # The call that waits repeats it.
            self._report_due = True
            return True
        self.reported_at = trio.current_time()
        return self.transport.send_now(ACK.pack(self._held))

    def _append(self) -> None:
        """Verify what is staged, and append what of it is sound. Raises HABadRecordError, HALogError, HADivergedError."""
        reader, store = self._reader, self.store
        if reader.staged_size < max(self._needed, 1):
            return
        if self.overlap is not None and not self.overlap.is_done:
            reader.consume(self.overlap.compare(reader.staged))
            if not reader.staged_size:
                return
        offset, staged = reader.staged_offset, reader.staged
        scan = _scan(staged, offset, reader.file_size, store.delays_ms)
        self._needed = scan.needed
        if scan.consumed:
            try:
                if store.max_offset != offset:
                    store.start_at(offset)
                store.append_replicated(staged[: scan.consumed], scan.entries)
            except (OSError, StoreError) as error:
                raise HALogError(f"appending {scan.consumed} bytes at offset {offset} failed: {error}") from error
            self.received_bytes += scan.consumed
            reader.consume(scan.consumed)
        if scan.error is not None:
            raise HABadRecordError(offset + scan.consumed, scan.error)
        reader.reserve(scan.needed)

    @property
    def _acks_flushed(self) -> bool:
        return self.config.ack_mode is AckMode.flushed

    async def _request(self) -> None:
        """Request what follows the log's end. A request is an acknowledgement, too, so its bytes must be flushed.

        Raises HALogError when it is not.
        """
        store = self.store
        if self._acks_flushed:
            await store.flusher.flush()
            if store.flusher.flushed_offset < store.max_offset:
                raise HALogError(f"the log is on disk up to {store.flusher.flushed_offset} only, of {store.max_offset}")
        self._requested = True
        await self._report()

    async def _flushed_task(self) -> None:
        """Report after each flush."""
        flushed, listeners = Wakeup(), self.store.flusher.on_flushed
        listeners.append(flushed.set)
        try:
            while True:
                await flushed.wait()
                await self._report()
        finally:
            listeners.remove(flushed.set)

    @property
    def _held(self) -> int:
        if self.overlap is not None and not self.overlap.is_done:
            return self.overlap.at
        if not self.store.max_offset:
            return self.begin_at
        return self.store.flusher.flushed_offset if self._acks_flushed else self.store.max_offset

    async def _report(self) -> None:
        """Report what is held; a call while another one waits for a full socket is repeated after it."""
        self._report_due = True
        if self._reporting:
            return
        self._reporting = True
        while self._report_due:
            self._report_due = False
            self.reported_at = trio.current_time()
            await self.transport.flush()
            await self.transport.send(ACK.pack(self._held))
        self._reporting = False

    async def _watch_task(self) -> None:
        """Repeat the report as a heartbeat, and leave a master that is silent."""
        interval = self.config.send_heartbeat_interval_ms / 1000
        silence = self.config.housekeeping_interval_ms / 1000
        while True:
            if self.store.flags.why_not_appendable:
                raise HALogError(f"this log takes no bytes: {self.store.flags.why_not_appendable}")
            now = trio.current_time()
            # A report that waits for a full socket is not repeated.
            silent_at, report_at = self.last_read + silence, (now if self._reporting else self.reported_at) + interval
            if now >= silent_at:
                raise HAConnectionLostError(f"the master was silent for {silence:g} s")
            if self._requested and now >= report_at:
                await self._report()
                continue
            # Nothing is reported before the request, which may wait for the disk.
            await trio.sleep_until(min(silent_at, max(report_at, now + (0 if self._requested else interval))))


def _scan(data: memoryview, offset: int, file_size: int, delays_ms: tuple[int, ...]) -> "Scan | ColumnScan":
    if len(data) < BULK_SIZE:
        return scan_records(data, offset, file_size, check_crc=True, delays_ms=delays_ms)
    from twinlog.store.record.column_scan import scan_columns  # Brings numpy along.

    scan = scan_columns(data, offset, file_size, check_crc=True, delays_ms=delays_ms)
    if not scan.has_more_queues:
        return scan
    return scan_records(data, offset, file_size, check_crc=True, delays_ms=delays_ms)
