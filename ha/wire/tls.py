"""TLS on the HA stream.

    first byte from the slave    0x16          a TLS handshake
                                 0x00 to 0x15  an offset of the log, i64, as the request
                                 0xff          -1, a sign of life before it
                                 0x80 to 0xff  a ticket, i64 below -1
                                 else          no request that could be served

An offset whose first byte is 0x16 is 1.3 EiB or more: more than any log has. So one port takes both, and a plaintext connection
is served as if there were no TLS: sendfile, nothing encrypted, nothing copied.

Encrypted bytes pass through this process: pieces of the log are read into one buffer, become records of TLS there, and are sent
with one system call each. The slave decrypts into the buffer in which it verifies. No kernel TLS: design.md says why.
"""

import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio
from attrs import define, field, frozen

from twinlog.ha.errors import HAConnectionLostError, HALogError, HARefusedError, HATlsError
from twinlog.ha.policy.deferred_plan import Receive, Stream
from twinlog.ha.wire.transport import RECEIVE_SIZE, SocketTransport, Transport, gone, receive_bulk, warmed
from twinlog.store.log.commit_log import CommitLog, FileChunk

FIRST_BYTE = b"\x16"
# Bytes of the log that are encrypted and sent at once: these buffers stay in the processor's cache.
PIECE_SIZE = 128 * 1024
READ_SIZE = 256 * 1024  # Bytes of the stream that a slave decrypts at once.
_RECORD_SIZE = 16 * 1024  # Of TLS, at most.

Context = Callable[[], Awaitable[ssl.SSLContext]]


@frozen
class HATls:
    """Current contexts of both ends. `server`: for the HA port, None where tls.server.mode=disabled. Both raise HATlsError."""

    client: Context
    server: Context | None


@define(eq=False)
class TlsTransport:
    """Over a SocketTransport, which it owns. Nothing is sent or received before shake_hands()."""

    lower: SocketTransport
    context: ssl.SSLContext = field(repr=False)
    is_server: bool
    is_tls: bool = field(default=True, init=False)
    sent_offset: int = field(default=0, init=False)
    _incoming: ssl.MemoryBIO = field(factory=ssl.MemoryBIO, init=False)
    _outgoing: ssl.MemoryBIO = field(factory=ssl.MemoryBIO, init=False)
    _tls: ssl.SSLObject = field(init=False)
    # A slave reports while a thread receives, and OpenSSL's connections are for one thread at a time.
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _received: memoryview = field(init=False)  # Ciphertext, as it comes.
    _small: memoryview = field(init=False)
    # Plaintext that is to be sent; made by a master's first batch.
    _piece: memoryview | None = field(default=None, init=False)
    _may_have_more: bool = field(default=True, init=False)  # Received, and not decrypted yet.
    _ended: bool = field(default=False, init=False)
    _rest: bytes = field(default=b"", init=False)  # Ciphertext that the socket did not take.

    def __attrs_post_init__(self) -> None:
        self._tls = self.context.wrap_bio(self._incoming, self._outgoing, server_side=self.is_server)
        self._received = memoryview(bytearray(_RECORD_SIZE if self.is_server else READ_SIZE))
        self._small = memoryview(bytearray(RECEIVE_SIZE))

    @property
    def local_address(self) -> str | None:
        """See Transport."""
        return self.lower.local_address

    async def shake_hands(self) -> None:
        """Complete the handshake, within the caller's time limit. Raises HATlsError, HAConnectionLostError."""
        while True:
            is_done = False
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                if alert := self._outgoing.read():
                    await self.lower.send(alert)
                raise HATlsError(reason_of(error)) from error
            if self._outgoing.pending:
                await self.lower.send(self._outgoing.read())
            if is_done:
                return
            if not (data := await self.lower.receive()):
                raise HATlsError("the peer closed the connection during the TLS handshake")
            self._incoming.write(data)

    # ---- Sending

    async def send_batch(self, header: bytes, chunk: FileChunk | None, log: CommitLog) -> None:
        """See Transport. `sent_offset` is raised before the socket has taken a piece: the ack may come before send() returns."""
        await self.flush()
        if chunk is None:
            return await self.send(header)
        chunk = await warmed(chunk, log, self.sent_offset)
        end, begin = self.sent_offset + chunk.size, len(header)
        if self._piece is None:
            self._piece = memoryview(bytearray(begin + PIECE_SIZE))
        self._piece[:begin] = header
        while True:
            size = self._read(chunk, self._piece[begin : begin + min(chunk.size, PIECE_SIZE)])
            self.sent_offset += size
            await self.lower.send(memoryview(self._encrypt(self._piece[: begin + size])))
            if self.sent_offset >= end:
                return None
            begin = 0
            # The file may have been closed while we waited, and its descriptor may stand for another one by now.
            left = log.chunk(self.sent_offset, end - self.sent_offset)
            if left is None:
                raise gone(log, self.sent_offset)
            chunk = left

    def _read(self, chunk: FileChunk, into: memoryview) -> int:
        try:
            size = os.preadv(chunk.fd, (into,), chunk.position)
        except OSError as error:
            raise HALogError(f"reading the log at offset {self.sent_offset} failed: {error}") from error
        if size == 0:
            raise HALogError(f"the log's file ends before offset {self.sent_offset}")
        return size

    def send_batch_now(self, header: bytes, body: memoryview) -> bool:
        """See Transport. What is encrypted has to be sent: flush() sends what the socket did not take."""
        assert not self._rest, "a frame is begun behind a half one"
        is_sent = self.send_now(b"".join((header, body)))
        self.sent_offset += len(body)
        return is_sent

    async def flush(self) -> None:
        """See Transport."""
        if self._rest:
            rest, self._rest = self._rest, b""
            await self.lower.send(rest)

    def unsent_bytes(self) -> int:
        """See Transport."""
        return self.lower.unsent_bytes() + len(self._rest)

    async def send(self, data: bytes) -> None:
        """See Transport."""
        await self.lower.send(self._encrypt(memoryview(data)))

    def send_now(self, data: bytes) -> bool:
        """See Transport. What is encrypted has to be sent: flush() sends what the socket did not take."""
        if self._rest:
            return False
        self._rest = self._encrypt(memoryview(data))
        try:
            self._rest = self._rest[self.lower.sock.send(self._rest) :]
        except OSError:  # Full, or broken: that is for those to say who may wait.
            return False
        return not self._rest

    def _encrypt(self, data: memoryview) -> bytes:
        """Records of TLS with these bytes, after those of TLS itself."""
        try:
            with self._lock:
                for at in range(0, len(data), _RECORD_SIZE):
                    self._tls.write(data[at : at + _RECORD_SIZE])
                return self._outgoing.read()
        except ssl.SSLError as error:
            raise HAConnectionLostError(f"encryption failed: {reason_of(error)}") from None

    # ---- Receiving

    async def receive(self) -> bytes:
        """See Transport."""
        return bytes(self._small[: await self.receive_into(self._small)])

    async def receive_into(self, buffer: memoryview) -> int:
        """See Transport."""
        while True:
            try:
                if self._may_have_more:
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_readable(self.lower.sock)
                return self.read_into(buffer)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError) as error:
                raise HAConnectionLostError(f"receiving failed: {error}") from error

    async def receive_each(self, buffer: Callable[[], memoryview], take: Callable[[int], bool]) -> None:
        """See Transport."""
        while take(await self.receive_into(buffer())):
            pass

    async def receive_bulk(self, buffer: memoryview, take: Callable[[memoryview], None], step: Receive) -> Stream:
        """See Transport."""
        return await trio.to_thread.run_sync(receive_bulk, self.lower.sock, buffer, take, step, self.read_into)

    def read_into(self, buffer: memoryview, size_max: int | None = None) -> int:
        """As socket.recv_into: all that is there and has room. Raises HAConnectionLostError for what is not TLS."""
        buffer = buffer[:size_max]
        size = self._decrypt(buffer) if self._may_have_more else 0
        while size < len(buffer) and not self._ended:
            try:  # A little more than there is room for: records that are not decrypted yet wait in OpenSSL.
                taken = self.lower.sock.recv_into(self._received, min(len(self._received), len(buffer) - size + 1024))
            except BlockingIOError:
                if size:
                    break
                raise
            self._incoming.write(self._received[:taken])
            self._ended = not taken
            size += self._decrypt(buffer[size:])
        return size

    def _decrypt(self, buffer: memoryview) -> int:
        size, self._may_have_more = 0, True
        try:
            with self._lock:
                while size < len(buffer):
                    if not (taken := self._tls.read(len(buffer) - size, buffer[size:])):
                        self._ended = True
                        break
                    size += int(taken)
        except ssl.SSLWantReadError:
            self._may_have_more = False
        except ssl.SSLError as error:
            raise HAConnectionLostError(f"the TLS connection failed: {reason_of(error)}") from None
        return size

    async def aclose(self) -> None:
        """See Transport."""
        await self.lower.aclose()


def reason_of(error: ssl.SSLError) -> str:
    """The reason that OpenSSL gives, without its file and line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted ({error.verify_message})"
    return error.reason.replace("_", " ").lower() if error.reason else str(error)


async def begin_as_master(transport: Transport, tls: HATls | None, *, only_tls: bool) -> Transport:
    """The transport of a connection that was just accepted, once its first byte is there. Raises HARefusedError, HATlsError.

    only_tls: haTls=true.
    """
    if tls is None or not isinstance(transport, SocketTransport):
        return transport
    first = await _first_byte(transport.sock)
    if first != FIRST_BYTE:
        if first and only_tls:
            raise _refused(
                transport,
                "it does not use TLS, and haTls=true here. RocketMQ's slaves cannot: they need haTls=false; so does a twinlog "
                "slave of 0.2 or older",
            )
        return transport
    if tls.server is None:
        raise _refused(transport, "it wants TLS, and tls.server.mode=disabled here")
    context = await tls.server()
    if transport.sock.fileno() < 0:
        raise HAConnectionLostError("closed here")
    secure = TlsTransport(transport, context, is_server=True)
    try:
        await secure.shake_hands()
    except HATlsError as error:
        raise HARefusedError("tls", f"no TLS handshake: {error}") from error
    return secure


def _refused(transport: SocketTransport, why: str) -> HARefusedError:
    with suppress(OSError):  # Unread bytes would make the kernel report a broken connection, not an end.
        transport.sock.recv(RECEIVE_SIZE)
    return HARefusedError("tls", why)


async def begin_as_slave(transport: Transport, tls: HATls | None, *, why: str) -> Transport:
    """The transport of a connection to a master, with TLS. Raises HATlsError, HAConnectionLostError. why: it is wanted."""
    if tls is None or not isinstance(transport, SocketTransport):
        return transport
    secure = TlsTransport(transport, await tls.client(), is_server=False)
    try:
        await secure.shake_hands()
    except HATlsError as error:
        raise HATlsError(
            f"{why}, and there is no TLS connection to the master's HA port: {error}{_hint(error)}"
        ) from error
    return secure


def _hint(error: HATlsError) -> str:
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return ". tls.client.trustCertPath here has to name who signed the master's tls.server.certPath"
    return ". RocketMQ, and twinlog 0.2, have no TLS there; nor has a master with tls.server.mode=disabled"


async def _first_byte(sock: socket.socket) -> bytes:
    """Look at the first byte without taking it; b"" when the peer has closed."""
    while True:
        try:
            await trio.lowlevel.wait_readable(sock)
            return sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        except (OSError, trio.ClosedResourceError) as error:
            raise HAConnectionLostError(f"receiving failed: {error}") from error
