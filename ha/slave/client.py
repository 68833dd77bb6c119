"""Slave side: keeps a connection to the master, however often it breaks. Source: HAService.HAClient (4.9.8)."""

import math
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import structlog
import trio
from attrs import define, field
from structlog.contextvars import bound_contextvars

from twinlog.ha.compare import finding
from twinlog.ha.compare.finding import Finding, FindingKind
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HAConnectionLostError, HAError, HALogError, HAUnfitError
from twinlog.ha.peer import NO_ROLE, OwnRole, Peer, PeerHistory
from twinlog.ha.policy.auto_resync import Resync
from twinlog.ha.slave.following import Following, MasterMemory
from twinlog.ha.slave.replica import Replica
from twinlog.ha.statistics import ClientState, HAClientStatistics
from twinlog.ha.wire.tls import HATls
from twinlog.ha.wire.transport import SocketTransport, Transport
from twinlog.store.message_store import MessageStore
from twinlog.store.util.wakeup import Wakeup

if TYPE_CHECKING:
    import tenacity

log = structlog.get_logger()

SLOW_SECONDS = 5.0  # Between attempts where retrying at once cannot help: an operator has to act first.
WAIT_SECONDS = 0.5  # Between attempts with a master that cannot be followed yet.
PAUSE_SECONDS = 1.0  # While our own disk takes no bytes.
REFUSALS = 2  # So many in a row are no accident.
STICKY: tuple[ClientState, ...] = ("stalled", "ahead", "diverged", "below min")  # Until it is known to be over.
STATES: dict[FindingKind, ClientState] = {
    "diverged": "diverged",
    "ahead": "ahead",
    "below min": "below min",
    "file size": "failed",
    "damaged": "stalled",
    "stalled": "stalled",
    "bad record": "stalled",
    "given up": "diverged",
    "older epoch": "fenced",
    "not a member": "waiting",
}


async def connect_socket(address: str) -> Transport:
    """Connect to HOST:PORT. Raises HAConnectionLostError."""
    host, _, port = address.rpartition(":")
    try:
        stream = await trio.open_tcp_stream(host.strip("[]"), int(port))
    except (OSError, ValueError) as error:
        raise HAConnectionLostError(f"cannot connect: {error}") from error
    return SocketTransport(socket.socket(fileno=stream.socket.detach()))


def _reconnects(wait_max: float, state_of: Callable[[], ClientState]) -> "tenacity.AsyncRetrying":
    """Retry policy: once immediately, then exponential backoff with jitter; fixed pauses where an immediate retry cannot help."""
    import tenacity  # A master's start does without.

    slow: tuple[ClientState, ...] = (*STICKY, "failed")
    fixed: dict[ClientState, float] = {
        **dict.fromkeys(slow, SLOW_SECONDS),
        "paused": PAUSE_SECONDS,
        "fenced": WAIT_SECONDS,
        "waiting": WAIT_SECONDS,
    }
    quick = tenacity.wait_chain(
        tenacity.wait_none(), tenacity.wait_random_exponential(multiplier=0.2, min=0.05, max=wait_max)
    )
    return tenacity.AsyncRetrying(
        sleep=trio.sleep,
        retry=tenacity.retry_if_exception_type(HAError),
        wait=lambda attempt: fixed.get(state_of()) or quick(attempt),
    )


@define(eq=False)
class HAClient:
    """Follows the master that was set last. `peer_of`: the member, to be asked about its log, at an HA address."""

    store: MessageStore
    config: HAConfig
    connect: Callable[[str], Awaitable[Transport]] = connect_socket
    peer_of: Callable[[str], Peer | None] = lambda _address: None
    role: OwnRole = NO_ROLE
    tls: HATls | None = None
    lost: Wakeup = field(factory=Wakeup, init=False)  # Set when a connection has ended.
    master_address: str | None = field(default=None, init=False)
    _state: ClientState = field(default="idle", init=False)
    last_error: str | None = field(default=None, init=False)
    _finding: Finding | None = field(default=None, init=False)  # Why it does not follow.
    _logged: object = field(default=None, init=False)  # The subject of the last log line.
    _address_changed: Wakeup = field(factory=Wakeup, init=False)
    _scope: trio.CancelScope | None = field(default=None, init=False)  # While it follows.
    _left: trio.Event = field(factory=trio.Event, init=False)  # Set when that has ended.
    _memory: MasterMemory = field(init=False)
    _handed_over: PeerHistory | None = field(default=None, init=False)  # By a switchover, to the next master.
    _following: Following | None = field(default=None, init=False)  # The present attempt, or the last one.
    _replica: Replica | None = field(default=None, init=False)  # The present connection, or the last one.
    # One for all connections: why one ended refers to what it arrived in until a full garbage collection.
    _buffer: bytearray | None = field(default=None, init=False)
    _connections: int = field(default=0, init=False)
    _received_before: int = field(default=0, init=False)  # Over earlier connections.
    _refused_at: list[int] = field(factory=list, init=False)  # The log's end at each refusal in a row.
    _bytes_per_second: float = field(default=0.0, init=False)
    _rated_bytes: int = field(default=0, init=False)
    ends: Counter[ClientState] = field(factory=Counter, init=False)  # Ended connections, by the state after them.
    divergences: int = field(default=0, init=False)  # How often the log was found to differ, since the start.

    def __attrs_post_init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._memory = MasterMemory(Resync(self.config.auto_resync, self.config.auto_resync_bytes_max))
        self._refused_at.clear()
        self._finding = self._following = None

    def set_master(self, address: str | None) -> None:
        """Follow HOST:PORT from now on; None: no master. Another address ends the present connection."""
        address = address or None
        if address == self.master_address:
            return
        self.master_address = address
        self._forget()
        self._address_changed.set()
        if self._scope is not None:
            self._scope.cancel()

    def hand_over(self, master: PeerHistory) -> None:
        """Follow this master next without comparing the logs: it became master when this member resigned for it, and its epoch
        begins exactly where this log ends. Valid for one attempt; call it before set_master().
        """
        self._handed_over = master

    async def leave(self) -> None:
        """Stop following, and wait until the connection is closed and nothing is appended for it any more."""
        self._handed_over = None
        self.set_master(None)
        if self._scope is not None:
            await self._left.wait()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            self._state = "idle"
            if self.master_address is None:
                await self._address_changed.wait()
                continue
            self._left = trio.Event()
            try:
                with trio.CancelScope() as self._scope:
                    await self._follow_for_ever(self.master_address)
            finally:
                self._scope = None
                self._left.set()

    async def _follow_for_ever(self, address: str) -> None:
        wait_max = self.config.reconnect_wait_max_ms / 1000
        while True:  # Each connection that got something starts the count of failures anew.
            async for attempt in _reconnects(wait_max, lambda: self._state):
                with attempt, bound_contextvars(peer=address):
                    await self._follow(address)

    async def _follow(self, address: str) -> None:
        """Follow over one connection. Returns at its end if an immediate retry helps; raises HAError otherwise."""
        before = self.store.max_offset
        peer, memory = self.peer_of(address), self._memory
        handover, self._handed_over = self._handed_over, None
        self._buffer = self._buffer or bytearray(self.config.receive_buffer_size)
        following = Following(
            address,
            self.store,
            self.config,
            self.connect,
            peer,
            memory,
            lambda state: self._entered(following, state),
            self.role,
            handover if handover is not None and handover.ha_address == address else None,
            self._buffer,
            self.tls,
        )
        try:
            await following.run()
        except HAError as error:
            self._note_end(address, following, error)
            progressed = self.store.max_offset != before or following.asks_for_less
            if not progressed or isinstance(error, HAUnfitError):
                raise

    def _entered(self, following: Following, state: ClientState) -> None:
        """Note the state of an attempt. An earlier problem remains the state until it is known to be over."""
        self._following = following
        if following.replica is not None and following.replica is not self._replica:
            self._connections += 1
            self._received_before, self._replica = self._received_bytes, following.replica
        if self._state in STICKY:
            if state != "resyncing" and not following.has_got_over(self._state):
                return
            if state == "streaming":
                log.info("replication resumed", peer=following.address, max_offset=self.store.max_offset)
                self._logged = None
        if state == "streaming":
            self._finding = None
        self._state = state

    def _note_end(self, address: str, following: Following, error: HAError) -> None:
        """Log once why it ended, and set the state that follows from it."""
        max_offset = self.store.max_offset
        self._following, text, about = following, str(error), object()
        if following.looks_refused(error):
            self._refused_at = [offset for offset in self._refused_at if offset == max_offset] + [max_offset]
        else:
            self._refused_at.clear()
        if isinstance(error, HAUnfitError):
            self._finding, about = error.finding, _subject(error.finding)
            self._state = STATES[error.finding.kind]
        elif len(self._refused_at) >= REFUSALS:
            self._finding = finding.ahead_by_refusals(max_offset)
            self._state, text, about = "ahead", self._finding.text, "ahead"
        else:
            self._finding, about = None, text
            passes = self.store.flags.is_passing and self.store.flags.why_not_appendable
            self._state = "retrying" if not isinstance(error, HALogError) else "paused" if passes else "failed"
        self.ends[self._state] += 1
        self.lost.set()
        if about != self._logged:
            self.divergences += self._state in ("ahead", "diverged")
            log.warning("replication interrupted", peer=address, max_offset=max_offset, why=text, state=self._state)
        self.last_error, self._logged = text, about

    @property
    def state(self) -> ClientState:
        """See HAClientStatistics."""
        following = self._following
        is_over = self._state in STICKY and following is not None and following.has_got_over(self._state)
        return "streaming" if is_over else self._state

    @property
    def fresh_address(self) -> str | None:
        """Our end of a new connection to the master on which nothing was sent yet."""
        transport = self._following.fresh_transport if self._following is not None else None
        return transport.local_address if transport is not None else None

    @property
    def heard_at(self) -> float:
        """Time at which bytes or a heartbeat of the master came last, in trio's time. An open connection alone says nothing: the
        kernel of a process that stands still takes it.
        """
        replica = self._replica
        is_heard = replica is not None and (replica.frames or replica.received_bytes)
        return replica.last_read if replica is not None and is_heard else -math.inf

    @property
    def finding(self) -> Finding | None:
        """The finding on how this log fits its master's."""
        if self.state == "streaming" and self._following is not None:
            return self._following.finding
        return self._finding

    @property
    def _received_bytes(self) -> int:
        return self._received_before + (self._replica.received_bytes if self._replica is not None else 0)

    def rate(self, seconds: float) -> None:
        """Note how fast the stream ran since the last call, `seconds` ago."""
        self._bytes_per_second = (self._received_bytes - self._rated_bytes) / seconds
        self._rated_bytes = self._received_bytes

    def statistics(self) -> HAClientStatistics:
        """Snapshot of this side."""
        peer_log, proven = self._memory.peer_log, self._memory.proven
        return HAClientStatistics(
            master_address=self.master_address,
            tls=self._replica is not None and self._replica.transport.is_tls,
            local_address=self._replica.transport.local_address if self._replica is not None else None,
            state=self.state,
            max_offset=self.store.max_offset,
            transferred_bytes=self._received_bytes,
            transferred_bytes_per_second=self._bytes_per_second,
            last_read_ms=_wall_ms(self._replica.last_read) if self._replica is not None else 0,
            last_write_ms=_wall_ms(self._replica.reported_at) if self._replica is not None else 0,
            connections=self._connections,
            last_error=self.last_error,
            finding=self.finding,
            master_max_offset=peer_log.max_offset if peer_log is not None else None,
            proven_offset=proven.offset if proven is not None else None,
            unverified_bytes=self.store.unverified_bytes,
        )


def _subject(found: Finding) -> object:
    """Subject of a log line; a new line is written when it changes. A master's growth does not change it."""
    return found.kind if found.kind == "ahead" else (found.kind, found.offset)


def _wall_ms(monotonic: float) -> int:
    """A monotonic time as wall clock time."""
    return int((time.time() - (trio.current_time() - monotonic)) * 1000) if monotonic else 0
