"""Master side of one slave. Source: HAConnection, its ReadSocketService and WriteSocketService (RocketMQ 4.9.8).

The first report is the request. From then on one task reads acks, one writes frames, and a third watches the clock for both.
An ack must neither fall nor exceed what was sent on this connection: a peer that breaks this is disconnected.
"""

import os
from collections.abc import Awaitable, Callable, Collection

import structlog
import trio
from attrs import define, field

from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HAConnectionLostError, HALogError, HARefusedError
from twinlog.ha.master.group_transfer import EVERYTHING, GroupTransferService
from twinlog.ha.master.slave_check import FindSlave, slave_fits, trust
from twinlog.ha.master.tickets import NOBODY, Tickets
from twinlog.ha.peer import Peer
from twinlog.ha.policy.in_sync import Slave
from twinlog.ha.policy.pushing import FlowControl, push_start
from twinlog.ha.statistics import ConnectionState, HAConnectionStatistics
from twinlog.ha.wire.protocol import BATCH_HEADER, NO_REQUEST_YET, ReportReader
from twinlog.ha.wire.transport import RECEIVE_SIZE, Transport, open_peer_nursery
from twinlog.store.config import BrokerRole
from twinlog.store.log.commit_log import FileChunk
from twinlog.store.message_store import MessageStore
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger()

CHECK_SECONDS = 5.0  # Between attempts to learn whether a slave's log fits.
FIRST_CHECK_SECONDS_MAX = 10.0  # Before it is served: a RocketMQ slave leaves after 20 s of silence.
FIRST_CHECK_PAUSE_SECONDS = 0.25
HELD_BACK_SECONDS = 2.0  # After these a log line says so.
PUSH_SIZE_MAX = 64 * 1024  # Bytes. Larger batches are better sent by sendfile, which copies nothing.


async def as_it_is(transport: Transport) -> Transport:
    """No TLS."""
    return transport


@define(eq=False)
class HAConnection:
    """Pushes log bytes, takes acks. Lives as long as its transport."""

    transport: Transport
    address: str  # IP:PORT of the peer.
    ip: str
    store: MessageStore
    transfer: GroupTransferService
    config: HAConfig
    on_request: Callable[["HAConnection"], None] = lambda _: None  # Called once, with the slave's first request.
    holdable: Callable[[], int] = lambda: EVERYTHING  # The end of what any slave can hold.
    find_slave: FindSlave = trust  # Finds the peer that knows whether its log is ours.
    tickets: Tickets = field(factory=Tickets)
    # Why it may not follow, once it has shown its ticket, if it has one; "" when it may.
    why_not_admitted: Callable[["HAConnection"], str] = lambda _: ""
    first: bytes = b""  # What was received before.
    secure: Callable[[Transport], Awaitable[Transport]] = as_it_is  # Begins TLS, once the peer's first byte is there.
    member: str = field(default="", init=False)  # The id of the member at the other end; "": it had no ticket.
    proof: str = field(default="", init=False)  # The id of the secret that it proved this with; "": with none.
    connected_since: float = field(factory=trio.current_time, init=False)
    request_offset: int = field(default=NO_REQUEST_YET, init=False)
    ack_offset: int = field(default=NO_REQUEST_YET, init=False)
    caught_up: bool = field(default=False, init=False)  # It was sent everything, once at least.
    bytes_per_second: float = field(default=0.0, init=False)
    is_over: bool = field(default=False, init=False)  # Its reports do not count any more.
    _reports: ReportReader = field(factory=ReportReader, init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)
    _last_read: float = field(init=False)
    _last_write: float = field(init=False)
    _is_proven: bool = field(default=False, init=False)  # It can hold the bytes that it claims.
    _compares: bool = field(default=False, init=False)  # The slave compares its log with ours by itself, now or soon.
    _idle: bool = field(default=False, init=False)  # The write task waits for bytes to send.
    _rated_offset: int = field(default=0, init=False)
    _flow: FlowControl | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        if self.config.flow_control_enable:
            self._flow = FlowControl(self.config.max_transfer_byte_in_second)
        self._last_read = self._last_write = self.connected_since

    async def run(self) -> None:
        """Serve until the peer leaves. A probe that leaves without a byte, and a slave that leaves, end it normally.

        Raises HARefusedError for a bad request or ack, HAConnectionLostError for a peer that is gone, silent or stuck,
        HALogError when our log has lost the bytes that come next.
        """
        try:
            reports = await self._first_reports()
            if not reports:
                return
            if why := self.why_not_admitted(self):
                raise HARefusedError("stranger", why)
            log = self.store.commit_log
            # What is not here is refused at once.
            push_start(reports[0], log.min_offset, log.max_offset, log.file_size)
            fits = await self._first_check(reports[0])
            self._begin(reports, fits=fits)
            async with open_peer_nursery() as nursery:
                if not fits:
                    nursery.start_soon(self._check_task)
                nursery.start_soon(self._watch_task)
                nursery.start_soon(self._write_task)
                await self._read_task()
        finally:
            if self._push in self.store.appended:
                self.store.appended.remove(self._push)
            self.transfer.leave(self)
            await self.transport.aclose()

    def retire(self) -> None:
        """Ignore its reports from now on: its task, which is being cancelled, may be handling one."""
        self.is_over = True
        self.transfer.leave(self)

    @property
    def sent_offset(self) -> int:
        """End of what was sent; -1 before the request."""
        return self.transport.sent_offset if self.request_offset != NO_REQUEST_YET else NO_REQUEST_YET

    @property
    def proven_offset(self) -> int:
        """Upper bound of what this slave holds, as far as this master knows: not what it merely claims."""
        return self.sent_offset if self._is_proven or self.sent_offset > self.request_offset else 0

    def rate(self, seconds: float) -> None:
        """Note how fast the stream ran since the last call, `seconds` ago."""
        if self.request_offset != NO_REQUEST_YET:
            self.bytes_per_second = (self.transport.sent_offset - self._rated_offset) / seconds
            self._rated_offset = self.transport.sent_offset

    def statistics(
        self, slave: Slave | None, *, is_admitted: bool, lag_seconds: float | None
    ) -> HAConnectionStatistics:
        """Snapshot of this connection. `slave`: None before its request."""
        state: ConnectionState = "streaming" if self.caught_up else "catchup"
        if self.request_offset == NO_REQUEST_YET:
            state = "connected"
        held = max(self.ack_offset, 0)
        return HAConnectionStatistics(
            address=self.address,
            member=self.member,
            tls=self.transport.is_tls,
            state=state,
            request_offset=self.request_offset,
            sent_offset=self.sent_offset,
            ack_offset=self.ack_offset,
            admitted=is_admitted,
            counted=slave is not None and slave.counted,
            in_sync=slave is not None and slave.in_sync,
            suspended=slave is not None and slave.suspended,
            stalled=slave is not None and slave.stalled,
            reason=slave.reason if slave is not None else "has made no request yet",
            transferred_bytes_per_second=self.bytes_per_second,
            connected_since=self.connected_since,
            lag_bytes=max(self.store.max_offset - held, 0),
            lag_seconds=lag_seconds,
        )

    async def _first_reports(self) -> list[int]:
        """Wait for the request; returns it and what came with it, nothing when the peer left without a byte."""
        silence = self.config.housekeeping_interval_ms / 1000
        anything = False
        with trio.move_on_after(silence):
            if not self.first:
                self.transport = await self.secure(self.transport)
            while data := self.first or await self.transport.receive():
                self.first, anything = b"", True
                reports = self._reports.feed(data)
                while reports and reports[0] < 0:
                    self._take_before_request(reports.pop(0))
                if reports:
                    self._last_read = trio.current_time()
                    return reports
            if anything:
                raise HAConnectionLostError("left without a request")
            return []
        raise HAConnectionLostError(f"made no request within {silence:g} s")

    def _take_before_request(self, report: int) -> None:
        """Take a ticket, or a sign of life. Raises HARefusedError."""
        if report == NO_REQUEST_YET:
            return
        holder = self.tickets.take(report) if not self.member else NOBODY
        if not holder.member:
            raise HARefusedError("bad_request", f"a first report of {report}, which is no offset")
        self.member, self.proof, self._compares = holder.member, holder.proof, True

    async def _check(self, requested: int) -> bool:
        """Compare the slave's log with ours; True when it is known to fit. Raises HARefusedError, HALogError."""
        return (
            requested == 0
            or bool(self.member)
            or await slave_fits(self.store, self.address, requested, self._find) is True
        )

    async def _first_check(self, requested: int) -> bool:
        """Check until there is an answer, for as long as the slave waits for its first byte: its remoting port is up, and
        registered, later than its HA client, and its log may not fit. True when it is known to fit.
        """
        began, logged = trio.current_time(), False
        with trio.move_on_after(min(FIRST_CHECK_SECONDS_MAX, self.config.housekeeping_interval_ms / 2000)):
            while not await self._check(requested):
                if not logged and trio.current_time() >= began + HELD_BACK_SECONDS:
                    logged = True
                    log.warning(
                        "slave not served yet: no member tells whether its log is ours", request_offset=requested
                    )
                await trio.sleep(FIRST_CHECK_PAUSE_SECONDS)
            return True
        return False

    async def _find(self, address: str, requested: int) -> Collection[Peer] | None:
        peers = await self.find_slave(address, requested)
        self._compares = peers is None
        return peers

    async def _check_task(self) -> None:
        """Repeat the check while the slave is served."""
        fits = False
        while not fits:
            await trio.sleep(CHECK_SECONDS)
            fits = await self._check(self.request_offset)

    def _begin(self, reports: list[int], *, fits: bool) -> None:
        """Accept the request, and the reports that came in one read with it: unless all are valid, none counts."""
        if self.is_over:
            raise HAConnectionLostError("was ended before it was served")
        log, requested = self.store.commit_log, reports[0]
        start = push_start(requested, log.min_offset, log.max_offset, log.file_size)
        check_reports(reports[1:], acked=requested, sent=requested)
        was_compared = fits and not self._compares
        self._is_proven = was_compared or requested <= self.holdable()
        if not (fits or self._is_proven):
            raise HARefusedError(
                "unproven",
                f"a request for offset {requested}, behind all that was sent to any slave since this master started, of a "
                "slave that gives no answer on its remoting port: its log may be of another history",
            )
        self.transport.sent_offset = start
        self._rated_offset = self.transport.sent_offset
        self.request_offset = self.ack_offset = requested
        self.store.appended.append(self._push)
        # A slave that claims more than was ever sent has bytes of another history, or of a copy made by hand: it is served, but
        # its claim proves nothing.
        self.transfer.join(self, requested if self._is_proven else 0)
        self.on_request(self)

    async def _read_task(self) -> None:
        received = memoryview(bytearray(RECEIVE_SIZE))

        def take(size: int) -> bool:
            reports = self._reports.feed(bytes(received[:size]))
            if reports:  # Parts of a report are no sign of life.
                self._last_read = trio.current_time()
                self._acknowledge(reports)
            return size > 0

        await self.transport.receive_each(lambda: received, take)

    def _acknowledge(self, reports: list[int]) -> None:
        """Take the reports of one read; unless all of them are valid, none counts."""
        check_reports(reports, acked=self.ack_offset, sent=self.transport.sent_offset)
        if reports[-1] != self.ack_offset and not self.is_over:
            assert self.ack_offset < reports[-1] <= self.transport.sent_offset
            self.ack_offset = reports[-1]
            self.transfer.acknowledge(self, self.ack_offset)

    async def _write_task(self) -> None:
        log, transport = self.store.commit_log, self.transport
        size_max = max(self.config.transfer_batch_size, self.config.transfer_batch_size_max)
        heartbeat_interval = self.config.send_heartbeat_interval_ms / 1000
        gather_seconds = 0 if self._is_synchronous else self.config.transfer_gather_ms / 1000
        while True:
            room = size_max if self._flow is None else await self._room(self._flow, size_max)
            offset = transport.sent_offset
            chunk = log.chunk(offset, room)
            if chunk is not None:
                full = chunk.size == size_max  # There is more.
                if full:
                    _read_ahead(chunk)
                if self._flow is not None:
                    self._flow.sent(BATCH_HEADER.size + chunk.size)
                await transport.send_batch(BATCH_HEADER.pack(offset, chunk.size), chunk, log)
                self._last_write = trio.current_time()
                if full:  # Be fair to the other tasks: sending may not have waited once.
                    await trio.lowlevel.checkpoint()
                elif gather_seconds:
                    await trio.sleep(gather_seconds)
            elif not log.min_offset <= offset <= log.max_offset:
                raise HALogError(
                    f"this log lost offset {offset}, the next to send: it has {log.min_offset} to {log.max_offset}"
                )
            elif trio.current_time() >= self._last_write + heartbeat_interval:
                await transport.send_batch(BATCH_HEADER.pack(offset, 0), None, log)
                self._last_write = trio.current_time()
                if self._flow is not None:
                    self._flow.sent(BATCH_HEADER.size)
            else:
                self.caught_up = self._idle = True
                await self._wakeup.wait()
                self._idle = False
                await transport.flush()

    async def _room(self, flow: FlowControl, size_max: int) -> int:
        """Size of the body that may be sent now. Waits while there are bytes to send: a frame is never empty."""
        while pending := max(self.store.max_offset - self.transport.sent_offset, 0):
            room = flow.allowed(trio.current_time()) - BATCH_HEADER.size
            if room >= min(pending, flow.frame_min):
                return min(room, size_max)
            await trio.sleep(flow.seconds_until_burst())
        return size_max

    @property
    def _is_synchronous(self) -> bool:
        """True where producers wait for this slave."""
        return self.store.config.broker_role is BrokerRole.SYNC_MASTER

    def _push(self) -> None:
        """Send what was just appended at once, from the producer's own task, if that waits for a slave to have it.

        A switch of tasks takes longer than sending a small batch; what is larger, or not taken by the socket, is left to
        the write task.
        """
        offset = self.transport.sent_offset
        size = self.store.max_offset - offset
        if self.is_over:
            return
        if self._idle and 0 < size <= PUSH_SIZE_MAX and self._is_synchronous and self._may_send(size):
            try:
                body = self.store.commit_log.read(offset, size)
            except OSError:  # No memory or descriptor for a map: sendfile needs none.
                body = None
            is_whole = body is not None and self.transport.send_batch_now(BATCH_HEADER.pack(offset, size), body)
            if self._flow is not None and self.transport.sent_offset > offset:
                self._flow.sent(BATCH_HEADER.size + size)
            if is_whole:
                self._last_write = trio.current_time()
                return
        self._idle = False  # Nothing may come between the halves of a frame.
        self._wakeup.set()

    def _may_send(self, size: int) -> bool:
        return self._flow is None or self._flow.allowed(trio.current_time()) >= BATCH_HEADER.size + size

    async def _watch_task(self) -> None:
        """Wake the write task for heartbeats, and end the connection of a peer that is silent, or takes no bytes."""
        heartbeat_interval = self.config.send_heartbeat_interval_ms / 1000
        silence = self.config.housekeeping_interval_ms / 1000
        drain = Drain(trio.current_time())
        while True:
            now = trio.current_time()
            stuck = drain.stuck_seconds(self.transport.sent_offset, self.transport.unsent_bytes(), now)
            if stuck >= silence:
                raise HAConnectionLostError(
                    f"took none of {self.transport.unsent_bytes()} bytes for {stuck:g} s, although it reports"
                )
            silent_at, heartbeat_at = self._last_read + silence, self._last_write + heartbeat_interval
            if now >= silent_at:
                raise HAConnectionLostError(f"was silent for {silence:g} s")
            if now >= heartbeat_at:
                self._wakeup.set()
                heartbeat_at = now + heartbeat_interval
            await trio.sleep_until(min(silent_at, heartbeat_at))


def check_reports(reports: list[int], *, acked: int, sent: int) -> None:
    """Raise HARefusedError unless these acks neither fall, beginning with `acked`, nor exceed what was sent."""
    for offset in reports:
        if offset < acked:
            raise HARefusedError("bad_ack", f"an ack of {offset} after one of {acked}: acks cannot fall")
        if offset > sent:
            raise HARefusedError("bad_ack", f"an ack of {offset}, but only bytes up to {sent} were sent")
        acked = offset


@define
class Drain:
    """Distinguishes a peer that takes no bytes from one that has none to take."""

    _progress_at: float  # When the peer took bytes last, or had none left to take.
    _taken: int = -1

    def stuck_seconds(self, sent_offset: int, unsent_bytes: int, now: float) -> float:
        """Seconds for which the peer has taken none of the bytes that its kernel has not confirmed."""
        taken = sent_offset - unsent_bytes
        if unsent_bytes == 0 or taken > self._taken:
            self._taken = taken
            self._progress_at = now
        return now - self._progress_at


def _read_ahead(chunk: FileChunk) -> None:
    """Let the disk fetch what follows: sendfile would wait for it, and the event loop with it."""
    os.posix_fadvise(chunk.fd, chunk.position + chunk.size, chunk.size, os.POSIX_FADV_WILLNEED)
