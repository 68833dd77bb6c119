"""One client's connection, as handlers see it: answers go out at once, or as soon as the socket takes them.

write() never waits and never fails: a peer that is gone is noticed by the read side. One connection carries many requests at a
time; answers go out in any order. A peer that leaves answers unread is not read from any more (`is_behind`), and closed when it
takes nothing for long, or when one answer is too much.
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
from twinlog.store.record.message import host_bytes

log = structlog.get_logger()

_BUFFERS_MAX = 512  # In one sendmsg; the kernel takes 1024.
_CORKED_BYTES_MAX = 1 << 20  # Of gathered answers; the next one sends them.
BEHIND_BYTES = 4 << 20  # Unsent answers of a peer that is to read first.


@define(eq=False)
class _Call:
    """A request of ours that waits for the client's answer."""

    done: trio.Event = field(factory=trio.Event)
    answer: RemotingCommand | None = None


@define(eq=False)
class Connection:
    """A connected peer. `remote_address` is `ip:port`, `remote_host` the same as records keep it."""

    _socket: socket.socket
    _start_soon: Callable[[Callable[[], Awaitable[None]]], None]  # For the task that waits for a full socket.
    _unsent_bytes_max: int
    _budget: Budget
    remote_address: str = field(init=False)
    remote_host: bytes = field(init=False)
    on_close: "list[Callable[[Connection], None]]" = field(factory=list, init=False)
    closed: bool = field(default=False, init=False)
    last_active: float = field(factory=trio.current_time, init=False)
    half_since: float = field(default=0.0, init=False)  # When its frame under way began; counts while there is one.
    unsent_bytes: int = field(default=0, init=False)
    stuck_since: float = field(
        default=0.0, init=False
    )  # When the socket last took something; counts with unsent bytes.
    kept_bytes: int = field(default=0, init=False)  # The budget's.
    secure: TlsChannel | None = field(default=None, init=False)
    _unsent_kept: int = field(default=0, init=False)
    _unsent: "deque[bytes | memoryview]" = field(factory=deque, init=False)
    _corked: "list[bytes | memoryview] | None" = field(default=None, init=False)
    _corked_bytes: int = field(default=0, init=False)
    _behind_bytes: int = field(init=False)
    _caught_up: trio.Event = field(factory=trio.Event, init=False)
    _calls: dict[int, _Call] = field(factory=dict, init=False)
    _opaque: int = field(default=0, init=False)
    _hears_nothing: bool = field(default=False, init=False)  # Answers to calls are not read any more.

    def __attrs_post_init__(self) -> None:
        host, port = self._socket.getpeername()[:2]
        self.remote_address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.remote_host = host_bytes(self.remote_address)
        self._behind_bytes = min(BEHIND_BYTES, self._unsent_bytes_max // 2)

    def cork(self) -> None:
        """Gather what is written from now on."""
        self._corked, self._corked_bytes = [], 0

    def uncork(self) -> None:
        """Send what was gathered, in one system call."""
        gathered, self._corked = self._corked, None
        if gathered:
            self._write(gathered)

    def write(self, *buffers: bytes | memoryview) -> None:
        """Send these bytes, in order, behind all that were written before. What is written to a dead peer is dropped."""
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
            log.warning("connection closed: nothing can be sent over it", peer=self.remote_address, why=str(error))
            self.close()
            return deque()

    def _set_unsent(self, size: int, kept: int) -> None:
        """So many bytes wait for the peer; `kept`: of these in memory that is ours."""
        if self.closed:
            return
        change = kept - self._unsent_kept
        self.unsent_bytes, self._unsent_kept = size, kept
        if size > self._unsent_bytes_max:
            self._cut("it has left too much unread")
            return
        self._budget.change(self, change)
        if not self.is_behind:
            self._caught_up.set()

    def cut_if_stuck(self, seconds_max: float) -> None:
        """Close it when it has left answers unread for so long."""
        if self.unsent_bytes and not self.closed and trio.current_time() - self.stuck_since > seconds_max:
            self._cut(f"it has read nothing for {seconds_max:g} s")

    def _cut(self, why: str) -> None:
        log.warning(
            "connection closed: the peer does not read its answers",
            peer=self.remote_address,
            why=why,
            unsent_bytes=self.unsent_bytes,
        )
        self.close()

    @property
    def is_behind(self) -> bool:
        """It should read its answers before it asks for more."""
        return self.unsent_bytes > self._behind_bytes

    async def caught_up(self) -> None:
        """Wait until it is not behind, or is closed."""
        while self.is_behind and not self.closed:
            self._caught_up = trio.Event()
            await self._caught_up.wait()

    def keep(self, by: int) -> None:
        """A request of this peer makes us keep so many bytes more, or less."""
        if not self.closed:
            self._budget.change(self, by)

    def may_keep(self, size: int) -> bool:
        """Whether so many bytes more may be kept for it."""
        return self._budget.has_room(size)

    def send(self, command: RemotingCommand) -> None:
        """Send a whole command."""
        self.write(encode(command))

    def _send_now(self, queue: "deque[bytes | memoryview]") -> bool:
        """Give the socket as much of the queue as it takes; False when the peer is gone."""
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
        """Ask the client something and wait for its answer.

        Raises RemotingTimeoutError, or RemotingConnectError when the connection ends first, or nothing is read from it any more.
        """
        self._opaque += 1
        command.opaque = self._opaque
        call = self._calls[command.opaque] = _Call()
        try:
            if self.closed or self._hears_nothing:
                raise self._no_answer()
            self.send(command)
            with trio.move_on_after(timeout_ms / 1000):
                await call.done.wait()
                if call.answer is None:
                    raise self._no_answer()
                return call.answer
            raise RemotingTimeoutError(self.remote_address, command.code, timeout_ms)
        finally:
            del self._calls[command.opaque]

    def _no_answer(self) -> RemotingConnectError:
        stops = "this server stops, and reads no answers any more"
        return RemotingConnectError(self.remote_address, "the connection has ended" if self.closed else stops)

    def answered(self, command: RemotingCommand) -> None:
        """Hand over a response that came in; one that nobody waits for is dropped."""
        call = self._calls.get(command.opaque)
        if call is not None:
            call.answer = command
            call.done.set()

    def end_calls(self) -> None:
        """Nothing is read any more: whoever waits for an answer of the client, or will, hears that none comes."""
        self._hears_nothing = True
        for call in self._calls.values():
            call.done.set()

    def end_sending(self) -> None:
        """Let the peer know that nothing more will come."""
        if not self.closed:
            with contextlib.suppress(OSError):  # Gone already.
                self._socket.shutdown(socket.SHUT_WR)

    def has_left(self, buffer: memoryview) -> bool:
        """Whether the peer has closed its side, too. Takes and drops what it sent meanwhile."""
        try:
            return self.closed or not self._socket.recv_into(buffer)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """End the connection and tell those who asked to know."""
        if self.closed:
            return
        self.closed = True
        self._unsent.clear()
        self.unsent_bytes = 0
        self._budget.forget(self)
        self._caught_up.set()
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
        for call in self._calls.values():
            call.done.set()
        _tell_of_end(self)


def _sizes(queue: "deque[bytes | memoryview]") -> tuple[int, int]:
    """Bytes, and bytes of our own memory: records lie in the page cache, which gives way by itself."""
    size = kept = 0
    for buffer in queue:
        size += len(buffer)
        if isinstance(buffer, bytes) or not isinstance(buffer.obj, mmap.mmap):
            kept += len(buffer)
    return size, kept


_ended: deque[Connection] = deque()  # Closed, and their callbacks are still to be called.


def _tell_of_end(connection: Connection) -> None:
    """Call its callbacks. Connections that these close wait for their turn: hundreds that die together, each telling the
    next, would nest too deeply.
    """
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
