"""Slave side: keeps a connection to the master, however often it breaks. Source: HAService.HAClient (4.9.8)."""

import socket
import time
from collections.abc import Awaitable, Callable

import structlog
import tenacity
import trio
from attrs import define, field

from ha.config import HAConfig
from ha.errors import HAConnectionLostError, HAError, HALogError
from ha.log import ReplicatedStore
from ha.replica import Replica
from ha.statistics import ClientState, HAClientStatistics
from ha.transport import SocketTransport, Transport
from store.wakeup import Wakeup

log = structlog.get_logger()

REFUSED_WITHIN = 1.0  # Seconds. A master that ends the connection so soon after a report did it because of the report.
SLOW_SECONDS = 5.0  # Between attempts where haste cannot help: a person has to look first.
PAUSE_SECONDS = 1.0  # While our own disk takes no bytes.
REFUSALS = 2  # So many in a row are no accident.


async def connect_socket(address: str) -> Transport:
    """Connect to HOST:PORT. Raises HAConnectionLostError."""
    host, _, port = address.rpartition(":")
    try:
        stream = await trio.open_tcp_stream(host.strip("[]"), int(port))
    except (OSError, ValueError) as error:
        raise HAConnectionLostError(f"cannot connect: {error}") from error
    return SocketTransport(socket.socket(fileno=stream.socket.detach()))


def _reconnects(wait_max: float, state_of: Callable[[], ClientState]) -> tenacity.AsyncRetrying:
    """Try once more at once, then wait longer and longer, never equally long; where haste cannot help, with long
    pauses from the first.
    """
    fixed: dict[ClientState, float] = {"ahead": SLOW_SECONDS, "failed": SLOW_SECONDS, "paused": PAUSE_SECONDS}
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
    """Follows the master that it was told last."""

    store: ReplicatedStore
    config: HAConfig
    connect: Callable[[str], Awaitable[Transport]] = connect_socket
    master_address: str | None = field(default=None, init=False)
    _state: ClientState = field(default="idle", init=False)
    last_error: str | None = field(default=None, init=False)
    _address_changed: Wakeup = field(factory=Wakeup, init=False)
    _following: trio.CancelScope | None = field(default=None, init=False)
    _replica: Replica | None = field(default=None, init=False)  # The present connection, or the last one.
    _connections: int = field(default=0, init=False)
    _received_before: int = field(default=0, init=False)  # Over earlier connections.
    _refused_at: list[int] = field(factory=list, init=False)  # The log's end at each refusal in a row.
    _bytes_per_second: float = field(default=0.0, init=False)
    _rated_bytes: int = field(default=0, init=False)

    def set_master(self, address: str | None) -> None:
        """Follow HOST:PORT from now on, None: nobody. Another address ends the present connection."""
        address = address or None
        if address == self.master_address:
            return
        self.master_address = address
        self._refused_at.clear()
        self._address_changed.set()
        if self._following is not None:
            self._following.cancel()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            self._state = "idle"
            if self.master_address is None:
                await self._address_changed.wait()
                continue
            with trio.CancelScope() as self._following:
                await self._follow_for_ever(self.master_address)

    async def _follow_for_ever(self, address: str) -> None:
        wait_max = self.config.reconnect_wait_max_ms / 1000
        while True:  # Each connection that got something starts the count of failures anew.
            async for attempt in _reconnects(wait_max, lambda: self._state):
                with attempt:
                    await self._follow(address)

    async def _follow(self, address: str) -> None:
        """Follow over one connection; returns at its end if it brought anything, raises HAError if not."""
        replica = None
        before = self.store.max_offset
        try:
            if self._state != "ahead":
                self._state = "connecting"
            replica = await self._open(address)
            await replica.run()
        except HAError as error:
            self._note_end(address, replica, error)
            if self.store.max_offset == before:
                raise

    async def _open(self, address: str) -> Replica:
        if self.store.flags.why_not_appendable:
            raise HALogError(f"this log takes no bytes: {self.store.flags.why_not_appendable}")
        with trio.move_on_after(self.config.connect_timeout_ms / 1000):
            transport = await self.connect(address)
            self._connections += 1
            self._received_before, self._replica = self._received_bytes, Replica(transport, self.store, self.config)
            if self._state != "ahead":
                self._state = "streaming"
            return self._replica
        raise HAConnectionLostError(f"cannot connect: no answer within {self.config.connect_timeout_ms} ms")

    def _note_end(self, address: str, replica: Replica | None, error: HAError) -> None:
        """Say once why it ended, and guess what it means."""
        max_offset = self.store.max_offset
        if replica is not None and self._looks_refused(replica, error):
            self._refused_at = [offset for offset in self._refused_at if offset == max_offset] + [max_offset]
        else:
            self._refused_at.clear()
        was_ahead, text = self._state == "ahead", str(error)
        if len(self._refused_at) >= REFUSALS:
            self._state = "ahead"
            text = (
                f"this slave holds bytes the master lacks, or so it seems: its log ends at {max_offset}, and whenever "
                "the master hears that, it closes the connection. Compare the two logs; if the master is right, let "
                "this slave begin anew with an empty log. Nothing is deleted here"
            )
        else:
            passes = self.store.flags.is_passing and self.store.flags.why_not_appendable
            self._state = "retrying" if not isinstance(error, HALogError) else "paused" if passes else "failed"
        if text != self.last_error or (self._state == "ahead" and not was_ahead):
            log.warning("replication interrupted", master=address, max_offset=max_offset, why=text, state=self._state)
        self.last_error = text

    def _looks_refused(self, replica: Replica, error: HAError) -> bool:
        """A RocketMQ master closes at the second report, after a heartbeat; ours at the first one, without a word."""
        closed_after_report = trio.current_time() - replica.reported_at < REFUSED_WITHIN
        return (
            isinstance(error, HAConnectionLostError)
            and replica.received_bytes == 0
            and self.store.max_offset > 0
            and (closed_after_report or replica.frames == 0)
        )

    @property
    def state(self) -> ClientState:
        """What it is about, in a word; see HAClientStatistics."""
        replica = self._replica
        if self._state == "ahead" and replica is not None:
            # A master that only closes late, at the second report, must not look like one that has forgiven.
            settled = 2 * self.config.send_heartbeat_interval_ms / 1000 + REFUSED_WITHIN
            if replica.received_bytes or replica.last_read > replica.connected_at + settled:
                return "streaming"
        return self._state

    @property
    def _received_bytes(self) -> int:
        return self._received_before + (self._replica.received_bytes if self._replica is not None else 0)

    def rate(self, seconds: float) -> None:
        """Note how fast the stream ran since the last call, `seconds` ago."""
        self._bytes_per_second = (self._received_bytes - self._rated_bytes) / seconds
        self._rated_bytes = self._received_bytes

    def statistics(self) -> HAClientStatistics:
        """Everything as it is now."""
        return HAClientStatistics(
            master_address=self.master_address,
            local_address=self._replica.transport.local_address if self._replica is not None else None,
            state=self.state,
            max_offset=self.store.max_offset,
            transferred_bytes=self._received_bytes,
            transferred_bytes_per_second=self._bytes_per_second,
            last_read_ms=_wall_ms(self._replica.last_read) if self._replica is not None else 0,
            last_write_ms=_wall_ms(self._replica.reported_at) if self._replica is not None else 0,
            connections=self._connections,
            last_error=self.last_error,
        )


def _wall_ms(monotonic: float) -> int:
    """A monotonic time as the wall clock would have shown it."""
    return int((time.time() - (trio.current_time() - monotonic)) * 1000) if monotonic else 0
