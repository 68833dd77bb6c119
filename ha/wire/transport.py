"""Transport of the HA stream over a socket, without copies in Python. tls.py has one with TLS, simulations one over any stream.

On a socket each call is tried first and waited for only when the kernel says that it would block; a master's log bytes
go from file to socket by sendfile.
"""

import errno
import fcntl
import os
import select
import socket
import termios
import time
from array import array
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import trio
from attrs import define, field

from twinlog.ha.errors import HAConnectionLostError, HAError, HALogError
from twinlog.ha.policy.deferred_plan import Receive, Stream
from twinlog.ha.wire.read_loop import notify_closing, read_each
from twinlog.store.log.commit_log import CommitLog, FileChunk

RECEIVE_SIZE = 4096  # Bytes; reports are 8 each.
COLD_SIZE_MIN = 256 * 1024  # Bytes. What a slave that keeps up is sent was written just now.


class Transport(Protocol):
    """One connection between master and slave. Everything async raises HAConnectionLostError when the peer is gone."""

    @property
    def local_address(self) -> str | None:
        """IP:PORT of this end."""

    is_tls: bool
    sent_offset: int  # Master: end of the log bytes handed over. Set it to where the stream begins.

    async def send_batch(self, header: bytes, chunk: FileChunk | None, log: CommitLog) -> None:
        """Send a frame: `header` and, unless it is a heartbeat, the chunk that lies at sent_offset. Raises HALogError,
        too.
        """

    def send_batch_now(self, header: bytes, body: memoryview) -> bool:
        """Send a whole frame without waiting; False when it is not begun, or not finished: then flush() is due."""

    async def flush(self) -> None:
        """Send the rest of a frame that send_batch_now() could not finish."""

    def unsent_bytes(self) -> int:
        """Number of bytes, headers included, that were handed over here and not confirmed by the peer's kernel."""

    async def send(self, data: bytes) -> None:
        """Send a report."""

    def send_now(self, data: bytes) -> bool:
        """Send a report without waiting; False when it is not sent, or not whole: then flush() is due, and another report."""

    async def receive(self) -> bytes:
        """Return what has arrived, b"" when the peer has closed."""

    async def receive_into(self, buffer: memoryview) -> int:
        """The same into a buffer; returns how many bytes, 0 when the peer has closed."""

    async def receive_each(self, buffer: Callable[[], memoryview], take: Callable[[int], bool]) -> None:
        """Put what arrives into `buffer()` and call `take` with its size, 0 when the peer has closed, until that is False.

        What `take` raises is raised here. It must not wait, and returns False for size 0.
        """

    async def receive_bulk(self, buffer: memoryview, take: Callable[[memoryview], None], step: Receive) -> Stream:
        """Give `take` what arrives, in pieces that lie in `buffer`, until the step ends; it may be called in a thread."""

    async def aclose(self) -> None:
        """Close, without waiting for anything."""


def gone(log: CommitLog, offset: int) -> HALogError:
    """The error of a log that has lost what comes next."""
    return HALogError(
        f"the bytes at offset {offset} are no longer in the log: it has {log.min_offset} to {log.max_offset}"
    )


@define(eq=False)
class SocketTransport:
    """Over a connected, non-blocking TCP socket, which it owns."""

    sock: socket.socket
    local_address: str | None = field(init=False)
    is_tls: bool = field(default=False, init=False)
    sent_offset: int = field(default=0, init=False)
    _rest: bytes = field(default=b"", init=False)  # Of a frame that the socket did not take whole.

    def __attrs_post_init__(self) -> None:
        self.sock.setblocking(False)
        with suppress(OSError):  # The peer may be gone already; the first use of the socket will tell.
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ip, port = self.sock.getsockname()[:2]
        self.local_address = f"{ip.removeprefix('::ffff:')}:{port}"

    async def send_batch(self, header: bytes, chunk: FileChunk | None, log: CommitLog) -> None:
        """See Transport. `sent_offset` counts what the socket has taken, which is what a slave may have."""
        await self.flush()
        if chunk is not None:
            chunk = await warmed(chunk, log, self.sent_offset)
        await self.send(header, socket.MSG_MORE if chunk is not None else 0)
        if chunk is None:
            return
        end = self.sent_offset + chunk.size
        sock_fd = self.sock.fileno()
        while True:
            try:
                self.sent_offset += _sendfile(sock_fd, chunk, log, self.sent_offset)
            except BlockingIOError:
                await self._wait_writable()
            if self.sent_offset >= end:
                return
            # The file may have been closed while we waited, and its descriptor may stand for another one by now.
            left = log.chunk(self.sent_offset, end - self.sent_offset)
            if left is None:
                raise gone(log, self.sent_offset)
            chunk = left

    def send_batch_now(self, header: bytes, body: memoryview) -> bool:
        """See Transport."""
        try:
            sent = self.sock.sendmsg((header, body))
        except OSError:  # Full, or broken: that is for those to say who may wait.
            return False
        self.sent_offset += len(body)
        if sent == len(header) + len(body):
            return True
        self._rest = (header + body)[sent:]
        return False

    async def flush(self) -> None:
        """See Transport."""
        if self._rest:
            rest, self._rest = self._rest, b""
            await self.send(rest)

    def unsent_bytes(self) -> int:
        """See Transport."""
        queued = array("i", [0])
        with suppress(OSError):  # Closed, which others notice.
            fcntl.ioctl(self.sock.fileno(), termios.TIOCOUTQ, queued)
        return queued[0]

    async def send(self, data: bytes | memoryview, flags: int = 0) -> None:
        """See Transport. `flags`: of the socket."""
        while True:
            try:
                sent = self.sock.send(data, flags)
            except BlockingIOError:
                await self._wait_writable()
            except OSError as error:
                raise HAConnectionLostError(f"sending failed: {error}") from error
            else:
                if sent == len(data):
                    return
                data = data[sent:]

    def send_now(self, data: bytes) -> bool:
        """See Transport."""
        if self._rest:
            return False
        try:
            sent = self.sock.send(data)
        except OSError:  # Full, or broken: that is for those to say who may wait.
            return False
        self._rest = data[sent:]
        return not self._rest

    async def _wait_writable(self) -> None:
        try:
            await trio.lowlevel.wait_writable(self.sock)
        except trio.ClosedResourceError as error:
            raise HAConnectionLostError("closed here") from error

    async def receive(self) -> bytes:
        """See Transport."""
        while True:
            try:
                await trio.lowlevel.wait_readable(self.sock)
                return self.sock.recv(RECEIVE_SIZE)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError) as error:
                raise HAConnectionLostError(f"receiving failed: {error}") from error

    async def receive_into(self, buffer: memoryview) -> int:
        """See Transport."""
        while True:
            try:
                await trio.lowlevel.wait_readable(self.sock)
                return self.sock.recv_into(buffer)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError) as error:
                raise HAConnectionLostError(f"receiving failed: {error}") from error

    async def receive_each(self, buffer: Callable[[], memoryview], take: Callable[[int], bool]) -> None:
        """See Transport."""
        sock = self.sock

        def step() -> bool:
            try:
                size = sock.recv_into(buffer())
            except BlockingIOError:
                return True
            except OSError as error:
                raise HAConnectionLostError(f"receiving failed: {error}") from error
            return take(size)

        try:
            await read_each(sock, step)
        except trio.ClosedResourceError as error:
            raise HAConnectionLostError(f"receiving failed: {error}") from error

    async def receive_bulk(self, buffer: memoryview, take: Callable[[memoryview], None], step: Receive) -> Stream:
        """See Transport. It is not cancelled: a step is short."""
        return await trio.to_thread.run_sync(receive_bulk, self.sock, buffer, take, step)

    async def aclose(self) -> None:
        """See Transport."""
        if self.sock.fileno() >= 0:
            notify_closing(self.sock)
            self.sock.close()
        await trio.lowlevel.cancel_shielded_checkpoint()


def _sendfile(sock_fd: int, chunk: FileChunk, log: CommitLog, offset: int) -> int:
    try:
        sent = os.sendfile(sock_fd, chunk.fd, chunk.position, chunk.size)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno == errno.EIO:
            raise HALogError(f"reading the log at offset {offset} failed: {error}") from error
        raise HAConnectionLostError(f"sending failed: {error}") from error
    if sent == 0:  # The file ends early.
        raise gone(log, offset)
    return sent


# The thread is not woken for less, as long as more comes: each time costs the master's side as much as this one.
LOW_WATER_BYTES = 256 * 1024


def receive_bulk(
    sock: socket.socket,
    buffer: memoryview,
    take: Callable[[memoryview], None],
    step: Receive,
    read_into: Callable[[memoryview, int], int] | None = None,
) -> Stream:
    """Give `take` what arrives, in pieces that lie in `buffer`. `read_into`: None, plaintext, reads from the socket.

    Raises HAConnectionLostError, and what `take` raises.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LOW_WATER_BYTES)
    try:
        return _receive(sock, buffer, take, step, read_into or sock.recv_into)
    finally:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def _receive(
    sock: socket.socket,
    buffer: memoryview,
    take: Callable[[memoryview], None],
    step: Receive,
    read_into: Callable[[memoryview, int], int],
) -> Stream:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    left, until = step.size_max, time.monotonic() + step.seconds_max
    while left > 0 and time.monotonic() < until:
        is_gap = not poll.poll(step.gap_seconds * 1000)
        try:
            size = read_into(buffer, min(len(buffer), left))
        except BlockingIOError:
            if is_gap:
                return "gap"
            continue
        except OSError as error:
            raise HAConnectionLostError(f"receiving failed: {error}") from error
        if size == 0:
            return "ended"
        take(buffer[:size])
        left -= size
    return "more"


SAMPLE_EVERY = 128 * 1024  # Bytes. The kernel reads so many at once by itself.
_PIECE = 1024 * 1024


def is_cold(fd: int, position: int, size: int) -> bool:
    """True if some of these bytes have to be read from the disk, by samples; False where that is unknown."""
    byte = [bytearray(1)]
    for at in (*range(position, position + size, SAMPLE_EVERY), position + size - 1):
        try:
            os.preadv(fd, byte, at, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except (OSError, AttributeError):  # Not supported here; or sendfile will report it.
            return False
    return False


async def warmed(chunk: FileChunk, log: CommitLog, offset: int) -> FileChunk:
    """The chunk at this offset, once what has to come from the disk was read by a thread. Raises HALogError."""
    if chunk.size < COLD_SIZE_MIN or not is_cold(chunk.fd, chunk.position, chunk.size):
        return chunk
    await warm(chunk.fd, chunk.position, chunk.size)
    again = log.chunk(offset, chunk.size)  # The file may be gone by now.
    if again is None or again.size != chunk.size:
        raise gone(log, offset)
    return again


async def warm(fd: int, position: int, size: int) -> None:
    """Read these bytes in a thread, into the page cache; the descriptor may be closed meanwhile."""
    own = os.dup(fd)
    try:
        await trio.to_thread.run_sync(_read, own, position, size)
    finally:
        os.close(own)


def _read(fd: int, position: int, size: int) -> None:
    end = position + size
    with suppress(OSError):  # Sendfile meets it, too, and reports it.
        while position < end and (data := os.pread(fd, min(_PIECE, end - position), position)):
            position += len(data)


@asynccontextmanager
async def open_peer_nursery() -> AsyncGenerator[trio.Nursery, None]:
    """Like trio.open_nursery, but what a task says about the peer comes out as it is, not in a group.

    The body's end ends the other tasks. Anything that is no HAError comes out as trio would have it.
    """
    found: HAError | None = None
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()
    except* HAError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):  # The others are what followed from the first.
            error = error.exceptions[0]
        assert isinstance(error, HAError)
        found = error
    if found is not None:
        raise found
