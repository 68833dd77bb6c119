"""Server of the remoting protocol: accepts connections, reads frames, and hands them to a dispatcher.

A peer that leaves responses unread is not read from until it has caught up, so that the memory it uses is limited.

    first byte of a connection: 0x16 -> TLS, else plaintext; tls.server.mode says which are allowed

Sources: NettyRemotingAbstract, NettyRemotingServer; RocketMQ 4.9.7 and 4.9.8.
"""

import resource
import socket
from collections.abc import Callable
from functools import partial

import structlog
import trio
from attrs import define, field

from twinlog.cluster.remoting.command import FrameReader
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.dispatch import Dispatcher
from twinlog.cluster.remoting.errors import RemotingError, RemotingProtocolError, TlsFilesError
from twinlog.cluster.remoting.limits import Budget, LogLimit
from twinlog.cluster.remoting.names import ip_of
from twinlog.cluster.remoting.tls.channel import FIRST_BYTE, HANDSHAKE_READ_SIZE, READ_SIZE, TlsChannel
from twinlog.cluster.remoting.tls.config import TlsMode
from twinlog.cluster.remoting.tls.renewed import ServerTls
from twinlog.ha.master.accept import OUT_OF_RESOURCES
from twinlog.ha.wire.read_loop import read_each

log = structlog.get_logger()

_RECEIVE_BYTES = 1 << 20
_BACKLOG = 1024
_IDLE_SCAN_SECONDS = 5
_FRAME_BYTES_PER_SECOND_MIN = 1024
_DESCRIPTORS_KEPT = 256  # Reserved for log files, queues and tables: a store that cannot open one takes no messages.
_WRONG_LOG_SECONDS = 5.0
_STOP_POLL_SECONDS = 0.01  # Between two checks while the server stops.


def open_listener(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 is any free one. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


@define(eq=False)
class RemotingServer:
    """One or more listening sockets whose requests go to one dispatcher.

    tls: None takes no TLS connections. budget: may be shared with the servers of other ports.
    """

    dispatcher: Dispatcher
    config: ServerConfig = field(factory=ServerConfig)
    tls: ServerTls | None = None
    budget: Budget = field()
    on_connect: list[Callable[[Connection], None]] = field(factory=list)
    connections: set[Connection] = field(factory=set, init=False)
    _received: memoryview = field(init=False)  # One for all connections: a read is carried out before the next one.
    _decrypted: memoryview | None = field(default=None, init=False)  # The same for the plaintext of TLS connections.
    _readers: dict[Connection, FrameReader] = field(factory=dict, init=False)
    _nursery: trio.Nursery = field(init=False)
    _reading: trio.Nursery = field(init=False)
    _is_reading: bool = field(default=False, init=False)  # Or is carrying out what it has read.
    _is_finishing: bool = field(default=False, init=False)  # stop_reading() was called.
    _is_closing: bool = field(default=False, init=False)  # close_gently() was called.
    _refusal_lines: LogLimit = field(factory=LogLimit, init=False)
    _slow_frame_lines: LogLimit = field(factory=LogLimit, init=False)
    _protocol_error_lines: LogLimit = field(factory=partial(LogLimit, _WRONG_LOG_SECONDS), init=False)

    @budget.default
    def _own_budget(self) -> Budget:
        return Budget(self.config.bytes_max)

    def __attrs_post_init__(self) -> None:
        self._received = memoryview(bytearray(_RECEIVE_BYTES))

    async def serve(
        self, *listeners: socket.socket, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Accept and serve until cancelled; then all connections and listeners are closed."""
        try:
            async with trio.open_nursery() as self._nursery:
                await self._nursery.start(self.dispatcher.run)
                self._nursery.start_soon(self._close_idle)
                async with trio.open_nursery() as self._reading:
                    for listener in listeners:
                        self._reading.start_soon(self._accept, listener)
                    self._is_reading = True
                    task_status.started()
                self._is_reading = False
                await trio.sleep_forever()  # Nothing is read any more; requests under way are completed.
        finally:
            for connection in list(self.connections):
                connection.close()
            for listener in listeners:
                _close(listener)

    # ---- Graceful stop

    def stop_reading(self) -> None:
        """Accept no more connections and requests. Requests that were read are carried out and answered; those that wait for
        a client's response fail.
        """
        self._is_finishing = True
        for connection in self.connections:
            connection.end_calls()
        self._reading.cancel_scope.cancel()

    async def responses_sent(self) -> None:
        """After stop_reading(): wait until every response is made and sent. The caller sets the time limit."""
        while True:
            unsent = any(connection.unsent_bytes for connection in self.connections)
            if not (self._is_reading or self.dispatcher.under_way or unsent):
                return
            await trio.sleep(_STOP_POLL_SECONDS)

    async def close_gently(self, seconds: float) -> None:
        """After stop_reading(): close all connections so that sent responses arrive, within the time limit.

        What peers send meanwhile is read and dropped: the kernel resets a connection that is closed with unread bytes, and
        the reset may overtake the last responses.
        """
        self._is_closing = True
        for connection in self.connections:
            connection.end_sending()
        with trio.move_on_after(seconds):
            while self.connections:
                for connection in list(self.connections):
                    if connection.has_left(self._received):
                        self.connections.discard(connection)
                        connection.close()
                await trio.sleep(_STOP_POLL_SECONDS)

    # ---- Connections

    async def _accept(self, listener: socket.socket) -> None:
        try:
            while True:
                await trio.lowlevel.wait_readable(listener)
                try:
                    peer, _ = listener.accept()
                except BlockingIOError:
                    continue
                except OSError as error:
                    if error.errno in OUT_OF_RESOURCES:
                        log.error("connection not accepted; retrying in 0.5 s", error=str(error))
                        await trio.sleep(0.5)
                    continue  # Else the peer disconnected before accept().
                if len(self.connections) >= self.config.connections_max or _is_among_the_last(peer.fileno()):
                    peer.close()
                    self._log_refused()
                    continue
                self._reading.start_soon(self._serve_connection, peer)
        finally:
            _close(listener)

    def _log_refused(self) -> None:
        if (left_out := self._refusal_lines.due()) is not None:
            log.warning(
                "connections refused: there are too many",
                left_out=left_out,
                connections=len(self.connections),
                serverMaxConnections=self.config.connections_max,
                descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            )

    async def _serve_connection(self, peer: socket.socket) -> None:
        try:
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(peer, self._nursery.start_soon, self.config.unsent_bytes_max, self.budget)
        except OSError:  # Disconnected already.
            peer.close()
            return
        self.connections.add(connection)
        reader = self._readers[connection] = FrameReader()
        try:
            for callback in self.on_connect:
                callback(connection)
            if self.tls is not None and await self._begins_with_tls(self.tls, peer):
                await self._read_tls(connection, peer, reader, self.tls)
            else:
                await self._read(connection, peer, reader)
        except TlsFilesError as error:
            log.error("connection closed: TLS is not configured", peer=connection.remote_address, why=str(error))
        except RemotingError as error:
            self._log_protocol_error(connection, error)
        except (OSError, trio.ClosedResourceError):
            pass  # The peer has disconnected, or the connection was closed here.
        except Exception:  # A fault of ours ends one connection, not all.
            log.exception("connection closed: unexpected error", peer=connection.remote_address)
            connection.close()
        finally:
            del self._readers[connection]
            if connection.closed or not self._is_finishing:
                self.connections.discard(connection)
                connection.close()

    def _log_protocol_error(self, connection: Connection, error: RemotingError) -> None:
        if (left_out := self._protocol_error_lines.due(ip_of(connection.remote_address))) is not None:
            log.warning(
                "connection closed: the peer does not speak the remoting protocol",
                peer=connection.remote_address,
                why=str(error),
                left_out=left_out,
            )

    async def _begins_with_tls(self, tls: ServerTls, peer: socket.socket) -> bool:
        """Distinguish TLS from plaintext by the first byte. Raises RemotingProtocolError for the kind that is not allowed."""
        while True:
            await trio.lowlevel.wait_readable(peer)
            try:
                first = peer.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                continue
            if first == FIRST_BYTE and tls.config.mode is TlsMode.disabled:
                raise RemotingProtocolError("it wants TLS, and tls.server.mode=disabled")
            if first and first != FIRST_BYTE and tls.config.mode is TlsMode.enforcing:
                raise RemotingProtocolError("it does not use TLS, and tls.server.mode=enforcing")
            return first == FIRST_BYTE

    # ---- Bytes

    async def _read(self, connection: Connection, peer: socket.socket, reader: FrameReader) -> None:
        """One read each time, so that no connection keeps the others waiting."""
        received, rest, has_ended = self._received, list[bytes](), False

        def take() -> bool:
            """Carry out what arrived; False at the end of the connection, and when something has to wait."""
            nonlocal rest, has_ended
            try:
                size = peer.recv_into(received)
            except BlockingIOError:
                return True
            if size == 0:
                has_ended = True
                return False
            connection.last_active = connection.last_received = trio.current_time()
            rest = self._take(connection, reader, received[:size])
            return not (rest or connection.is_behind)

        while not (has_ended or connection.closed):
            try:
                await read_each(peer, take)
            finally:  # A request that was read may have stopped the reading.
                left, rest = rest, []
                if left:
                    await self._work_off_rest(connection, left)
            if connection.is_behind:
                await connection.caught_up()

    async def _read_tls(self, connection: Connection, peer: socket.socket, reader: FrameReader, tls: ServerTls) -> None:
        channel = connection.secure = TlsChannel(await tls.context())
        received, plain, size = self._received[:HANDSHAKE_READ_SIZE], self._buffer_for_plaintext(), 0
        with trio.move_on_after(self.config.handshake_seconds_max):
            while not self._shake_hands(connection, channel, received[:size]):
                if not (size := await _receive(connection, peer, received)):
                    return
        if not channel.is_open:
            raise RemotingProtocolError(f"no TLS handshake within {self.config.handshake_seconds_max} s")
        received, size = self._received[:READ_SIZE], 0
        while True:
            if decrypted := channel.decrypt(received[:size], plain):
                await self._work_off_rest(connection, self._take(connection, reader, plain[:decrypted]))
            connection.write()  # Records of TLS itself.
            if channel.ended or not (size := await _receive(connection, peer, received)):
                return

    def _shake_hands(self, connection: Connection, channel: TlsChannel, data: memoryview) -> bool:
        try:
            return channel.shake_hands(data)
        finally:
            connection.write()  # The server's part of the handshake, or the alert.

    def _buffer_for_plaintext(self) -> memoryview:
        if self._decrypted is None:
            self._decrypted = memoryview(bytearray(_RECEIVE_BYTES))
        return self._decrypted

    def _take(self, connection: Connection, reader: FrameReader, data: memoryview) -> list[bytes]:
        """Carry out received requests; returns the frames that wait until the peer has caught up."""
        before = reader.buffered
        frames = reader.feed(data)
        if frames or not before:
            connection.half_since = connection.last_active
        rest = self.dispatcher.work_off(connection, frames)
        if change := reader.buffered - before:
            connection.keep(change)
        return rest

    async def _work_off_rest(self, connection: Connection, rest: list[bytes]) -> None:
        while rest and not connection.closed:
            await trio.lowlevel.cancel_shielded_checkpoint()
            if not self._is_finishing or self._is_closing:  # Between the two, requests that were read are carried out.
                await trio.lowlevel.checkpoint_if_cancelled()
            await connection.caught_up()
            rest = self.dispatcher.work_off(connection, rest)
        if connection.is_behind:
            await connection.caught_up()

    async def _close_idle(self) -> None:
        """Close connections without traffic, with a frame that does not arrive, and whose peers do not read."""
        while True:
            await trio.sleep(_IDLE_SCAN_SECONDS)
            now = trio.current_time()
            for connection, reader in list(self._readers.items()):
                allowed = self.config.half_frame_seconds_max if reader.buffered else self.config.idle_seconds_max
                if now - connection.last_active > allowed:
                    connection.close()
                elif self._is_too_slow(connection, reader, now):
                    self._log_slow_frame(connection, reader)
                    connection.close()
                else:
                    connection.cut_if_stuck(self.config.unread_seconds_max)

    def _is_too_slow(self, connection: Connection, reader: FrameReader, now: float) -> bool:
        """True when a frame arrives so slowly that its peer only keeps the connection occupied (slowloris)."""
        grace = self.config.half_frame_seconds_max + reader.buffered / _FRAME_BYTES_PER_SECOND_MIN
        return reader.buffered > 0 and now - connection.half_since > grace

    def _log_slow_frame(self, connection: Connection, reader: FrameReader) -> None:
        if (left_out := self._slow_frame_lines.due()) is not None:
            log.warning(
                "connection closed: its request arrives too slowly",
                peer=connection.remote_address,
                bytes=reader.buffered,
                seconds=round(trio.current_time() - connection.half_since),
                left_out=left_out,
            )


async def _receive(connection: Connection, peer: socket.socket, buffer: memoryview) -> int:
    """Read once; returns the number of bytes, 0 at the end of the connection."""
    while not connection.closed:
        await trio.lowlevel.wait_readable(peer)
        try:
            size = peer.recv_into(buffer)
        except BlockingIOError:
            continue
        connection.last_active = connection.last_received = trio.current_time()
        return size
    return 0


def _close(listener: socket.socket) -> None:
    if listener.fileno() >= 0:
        trio.lowlevel.notify_closing(listener)
        listener.close()


def _is_among_the_last(descriptor: int) -> bool:
    """True when few descriptors are left: the kernel hands out the lowest that is free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and descriptor >= limit - min(_DESCRIPTORS_KEPT, limit // 4)
