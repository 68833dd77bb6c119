"""Server side of one client's connection: responses are sent at once, or as soon as the socket takes them.

write() never waits and never fails: the read side notices a peer that has disconnected. A connection carries many requests at
a time; responses are sent in any order. A peer that leaves responses unread is not read from (`is_behind`), and its connection
is closed when it takes nothing for too long or too much is unsent.
"""

import contextlib
import mmap
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

import structlog
import trio
from attrs import define, field

from twinlog.cluster.remoting.command import RemotingCommand, encode
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingProtocolError, RemotingTimeoutError
from twinlog.cluster.remoting.limits import Budget
from twinlog.cluster.remoting.tls.channel import TlsChannel
from twinlog.ha.wire.read_loop import notify_closing
from twinlog.store.record.message import host_bytes

log = structlog.get_logger()

_BUFFERS_MAX = 512  # Of one sendmsg; the kernel takes 1024.
_CORKED_BYTES_MAX = 1 << 20  # Of gathered responses, above which they are sent.
BEHIND_BYTES = 4 << 20  # Unsent responses, above which a peer's requests are not read.


@define(eq=False)
class _Call:
    """A request to the client, and its response."""

    done: trio.Event = field(factory=trio.Event)
    response: RemotingCommand | None = None


@define(eq=False)
class Connection:
    """A connected peer. `remote_address` is `ip:port`, `remote_host` the same as records store it."""

    _socket: socket.socket
    _start_soon: Callable[[Callable[[], Awaitable[None]]], None]  # Starts the task that waits for a full socket.
    _unsent_bytes_max: int
    _budget: Budget
    remote_address: str = field(init=False)
    remote_host: bytes = field(init=False)
    local_ip: str = field(init=False)
    on_close: "list[Callable[[Connection], None]]" = field(factory=list, init=False)
    closed: bool = field(default=False, init=False)
    last_active: float = field(factory=trio.current_time, init=False)
    last_received: float = field(factory=trio.current_time, init=False)
    half_since: float = field(default=0.0, init=False)  # When its partial frame began; valid while there is one.
    unsent_bytes: int = field(default=0, init=False)
    stuck_since: float = field(default=0.0, init=False)  # When the socket last took bytes; valid with unsent bytes.
    kept_bytes: int = field(default=0, init=False)  # Memory in use, counted by the budget.
    secure: TlsChannel | None = field(default=None, init=False)
    _unsent_kept: int = field(default=0, init=False)  # Unsent bytes in memory of this process.
    _unsent: "deque[bytes | memoryview]" = field(factory=deque, init=False)
    _corked: "list[bytes | memoryview] | None" = field(default=None, init=False)
    _corked_bytes: int = field(default=0, init=False)
    _behind_bytes: int = field(init=False)
    _caught_up: trio.Event = field(factory=trio.Event, init=False)
    _calls: dict[int, _Call] = field(factory=dict, init=False)
    _opaque: int = field(default=0, init=False)
    _reads_ended: bool = field(default=False, init=False)  # Responses to calls are not read any more.

    def __attrs_post_init__(self) -> None:
        host, port = self._socket.getpeername()[:2]
        self.remote_address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.remote_host = host_bytes(self.remote_address)
        self.local_ip = self._socket.getsockname()[0]
        self._behind_bytes = min(BEHIND_BYTES, self._unsent_bytes_max // 2)

    def cork(self) -> None:
        """Gather what is written, until uncork()."""
        self._corked, self._corked_bytes = [], 0

    def uncork(self) -> None:
        """Send what was gathered, in one system call."""
        gathered, self._corked = self._corked, None
        if gathered:
            self._write(gathered)

    def write(self, *buffers: bytes | memoryview) -> None:
        """Send these bytes after all that were written before. What is written to a closed connection is dropped."""
        if self._corked is None:
            self._write(buffers)
            return
        self._corked += buffers
        self._corked_bytes += sum(map(len, buffers))
        if self._corked_bytes > _CORKED_BYTES_MAX:
            self.uncork()
            self.cork()

    def _write(self, buffers: "Sequence[bytes | memoryview]") -> None:
        if self.closed:
            return
        queue = deque(buffers) if self.secure is None else self._encrypted(self.secure, buffers)
        if not self._unsent:
            if self._send_now(queue) and queue:
                self._unsent = queue
                self.stuck_since = trio.current_time()
                self._set_unsent(*_sizes(queue))
                if not self.closed:
                    self._start_soon(self._send_rest)
        else:
            self._unsent += queue
            size, kept = _sizes(queue)
            self._set_unsent(self.unsent_bytes + size, self._unsent_kept + kept)

    def _encrypted(self, secure: TlsChannel, buffers: "Sequence[bytes | memoryview]") -> "deque[bytes | memoryview]":
        try:
            return deque(secure.encrypt(buffers))
        except RemotingProtocolError as error:
            log.warning("connection closed: encryption failed", peer=self.remote_address, why=str(error))
            self.close()
            return deque()

    def _set_unsent(self, size: int, kept: int) -> None:
        """Note the bytes that wait for the peer; `kept`: those of them in memory of this process."""
        if self.closed:
            return
        assert 0 <= kept <= size, (kept, size)
        change = kept - self._unsent_kept
        self.unsent_bytes, self._unsent_kept = size, kept
        if size > self._unsent_bytes_max:
            self._cut("too much is unread")
            return
        self._budget.change(self, change)
        if not self.is_behind:
            self._caught_up.set()

    def cut_if_stuck(self, seconds_max: float) -> None:
        """Close the connection when its peer has left responses unread for so long."""
        if self.unsent_bytes and not self.closed and trio.current_time() - self.stuck_since > seconds_max:
            self._cut(f"nothing was read for {seconds_max:g} s")

    def _cut(self, why: str) -> None:
        log.warning(
            "connection closed: the peer does not read its responses",
            peer=self.remote_address,
            why=why,
            unsent_bytes=self.unsent_bytes,
        )
        self.close()

    @property
    def is_behind(self) -> bool:
        """True when the peer has to read responses before more of its requests are read."""
        return self.unsent_bytes > self._behind_bytes

    async def caught_up(self) -> None:
        """Wait until the peer is not behind, or the connection is closed."""
        while self.is_behind and not self.closed:
            self._caught_up = trio.Event()
            await self._caught_up.wait()

    def keep(self, by: int) -> None:
        """Count memory that a request of this peer uses, or gives back."""
        if not self.closed:
            self._budget.change(self, by)

    def send(self, command: RemotingCommand) -> None:
        """Send a command."""
        self.write(encode(command))

    def _send_now(self, queue: "deque[bytes | memoryview]") -> bool:
        """Give the socket as much of the queue as it takes; False when the peer has disconnected."""
        try:
            while queue:
                one = len(queue) == 1
                sent = self._socket.send(queue[0]) if one else self._socket.sendmsg(islice(queue, _BUFFERS_MAX))
                self.last_active = self.stuck_since = trio.current_time()
                while queue and sent >= (size := len(queue[0])):
                    sent -= size
                    queue.popleft()
                if sent:
                    queue[0] = memoryview(queue[0])[sent:]
        except BlockingIOError:
            return True
        except OSError:
            self.close()
            return False
        return True

    async def _send_rest(self) -> None:
        while self._unsent and not self.closed:
            try:
                await trio.lowlevel.wait_writable(self._socket)
            except (trio.ClosedResourceError, OSError):
                return
            if not self._send_now(self._unsent):
                return
            self._set_unsent(*_sizes(self._unsent))

    async def call(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request to the client and wait for its response.

        Raises RemotingTimeoutError, or RemotingConnectError when the connection ends first or is not read any more.
        """
        self._opaque += 1
        command.opaque = self._opaque
        call = self._calls[command.opaque] = _Call()
        try:
            if self.closed or self._reads_ended:
                raise self._no_response()
            self.send(command)
            with trio.move_on_after(timeout_ms / 1000):
                await call.done.wait()
                if call.response is None:
                    raise self._no_response()
                return call.response
            raise RemotingTimeoutError(self.remote_address, command.code, timeout_ms)
        finally:
            del self._calls[command.opaque]

    def _no_response(self) -> RemotingConnectError:
        stops = "this server is stopping and reads no more responses"
        return RemotingConnectError(self.remote_address, "the connection has ended" if self.closed else stops)

    def take_response(self, command: RemotingCommand) -> None:
        """Hand a received response to its call; without one it is dropped."""
        call = self._calls.get(command.opaque)
        if call is not None:
            call.response = command
            call.done.set()

    def end_calls(self) -> None:
        """End all calls with RemotingConnectError, also later ones: nothing is read any more."""
        self._reads_ended = True
        for call in self._calls.values():
            call.done.set()

    def end_sending(self) -> None:
        """Shut down the sending side: the peer learns that nothing more will come."""
        if not self.closed:
            with contextlib.suppress(OSError):  # Disconnected already.
                self._socket.shutdown(socket.SHUT_WR)

    def has_left(self, buffer: memoryview) -> bool:
        """True when the peer has closed its side, too. Reads and drops what it sent meanwhile."""
        try:
            return self.closed or not self._socket.recv_into(buffer)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """End the connection and call the `on_close` callbacks."""
        if self.closed:
            return
        self.closed = True
        self._unsent.clear()
        self.unsent_bytes = 0
        self._budget.forget(self)
        self._caught_up.set()
        notify_closing(self._socket)
        self._socket.close()
        for call in self._calls.values():
            call.done.set()
        _call_on_close(self)


def _sizes(queue: "deque[bytes | memoryview]") -> tuple[int, int]:
    """Bytes, and bytes in memory of this process: records are in the page cache, which the kernel reclaims."""
    size = kept = 0
    for buffer in queue:
        size += len(buffer)
        if isinstance(buffer, bytes) or not isinstance(buffer.obj, mmap.mmap):
            kept += len(buffer)
    return size, kept


_ended: deque[Connection] = deque()  # Closed connections whose callbacks are still to be called.


def _call_on_close(connection: Connection) -> None:
    """Call its callbacks. Connections that a callback closes are queued: hundreds of nested closes would exhaust the stack."""
    _ended.append(connection)
    if len(_ended) > 1:
        return
    try:
        while _ended:
            for callback in _ended[0].on_close:
                callback(_ended[0])
            _ended.popleft()
    finally:
        _ended.clear()  # Empty already, unless a callback has failed.
