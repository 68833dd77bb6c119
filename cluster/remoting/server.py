"""Serves the remoting protocol: reads frames, hands requests to handlers, sends their replies.

Requests that come in great numbers go to a batch handler, all that one read brought at once; each other one to its handler.
A peer that leaves its answers unread is not read from until it has caught up, so what it makes us keep has an end.

    first byte of a connection: 0x16 -> TLS, else plain; what each is allowed says tls.server.mode

Sources: NettyRemotingAbstract, NettyRemotingServer; RocketMQ 4.9.7 and 4.9.8.
"""

import resource
import socket
from collections.abc import Callable

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
from twinlog.cluster.remoting.tls.contexts import ServerTls
from twinlog.ha.master.accept import OUT_OF_RESOURCES

log = structlog.get_logger()

_RECEIVE_BYTES = 1 << 20
_BACKLOG = 1024
_IDLE_SCAN_SECONDS = 5
_FRAME_BYTES_PER_SECOND_MIN = 1024
_DESCRIPTORS_KEPT = 256  # For log files, queues and tables: a store that cannot open one takes no more messages.
_WRONG_LOG_SECONDS = 5.0
_LOOK_SECONDS = 0.01  # While everything comes to its end.


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket, at any free port for port 0. Raises OSError."""
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
    _received: memoryview = field(init=False)  # One for all: a read is worked off before the next one.
    _decrypted: memoryview | None = field(default=None, init=False)  # The same, of what came by TLS.
    _readers: dict[Connection, FrameReader] = field(factory=dict, init=False)
    _nursery: trio.Nursery = field(init=False)
    _reading: trio.Nursery = field(init=False)
    _is_reading: bool = field(default=False, init=False)  # Or is working off what it has read.
    _is_finishing: bool = field(default=False, init=False)
    _is_parting: bool = field(default=False, init=False)
    _refusals: LogLimit = field(factory=LogLimit, init=False)
    _drips: LogLimit = field(factory=LogLimit, init=False)
    _wrong: LogLimit = field(factory=lambda: LogLimit(_WRONG_LOG_SECONDS), init=False)

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
                await trio.sleep_forever()  # Nothing is read any more; what is under way comes to its end.
        finally:
            for connection in list(self.connections):
                connection.close()
            for listener in listeners:
                _close(listener)

    # A stop that finishes what was accepted

    def stop_reading(self) -> None:
        """Take neither connections nor requests from now on. Requests that were read are carried out and answered; those that
        need the answer of a client fail.
        """
        self._is_finishing = True
        for connection in self.connections:
            connection.end_calls()
        self._reading.cancel_scope.cancel()

    async def answers_sent(self) -> None:
        """After stop_reading(): wait until no answer is being made, and none waits for its peer. The caller bounds this."""
        while True:
            unsent = any(connection.unsent_bytes for connection in self.connections)
            if not (self._is_reading or self.dispatcher.under_way or unsent):
                return
            await trio.sleep(_LOOK_SECONDS)

    async def part(self, seconds: float) -> None:
        """After stop_reading(): end all connections so that what was sent arrives, in so many seconds at most.

        What peers have sent since is taken and dropped: the kernel resets a connection that is closed over unread bytes, and
        a reset may overtake our last answers.
        """
        self._is_parting = True
        for connection in self.connections:
            connection.end_sending()
        with trio.move_on_after(seconds):
            while self.connections:
                for connection in list(self.connections):
                    if connection.has_left(self._received):
                        self.connections.discard(connection)
                        connection.close()
                await trio.sleep(_LOOK_SECONDS)

    # Connections

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
                        log.error("nothing left to take connections with", error=str(error))
                        await trio.sleep(0.5)
                    continue  # Else: that one was gone before we looked.
                if len(self.connections) >= self.config.connections_max or _is_among_the_last(peer.fileno()):
                    peer.close()
                    self._log_refused()
                    continue
                self._reading.start_soon(self._serve_connection, peer)
        finally:
            _close(listener)

    def _log_refused(self) -> None:
        if (left_out := self._refusals.due()) is not None:
            log.warning(
                "connections are refused, there are too many",
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
        except OSError:  # Gone already.
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
            log.error("connection closed: no TLS", peer=connection.remote_address, why=str(error))
        except RemotingError as error:
            self._log_wrong(connection, error)
        except (OSError, trio.ClosedResourceError):
            pass  # The peer is gone, or somebody here closed the connection.
        except Exception:  # Our fault, and no reason to leave all others.
            log.exception("connection closed: something went wrong with it", peer=connection.remote_address)
            connection.close()
        finally:
            del self._readers[connection]
            if connection.closed or not self._is_finishing:
                self.connections.discard(connection)
                connection.close()

    def _log_wrong(self, connection: Connection, error: RemotingError) -> None:
        if (left_out := self._wrong.due(ip_of(connection.remote_address))) is not None:
            log.warning(
                "connection closed: the peer does not speak the remoting protocol",
                peer=connection.remote_address,
                why=str(error),
                left_out=left_out,
            )

    async def _begins_with_tls(self, tls: ServerTls, peer: socket.socket) -> bool:
        """By the first byte. Raises RemotingProtocolError for the kind that is not taken."""
        while True:
            await trio.lowlevel.wait_readable(peer)
            try:
                first = peer.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                continue
            if first == FIRST_BYTE and tls.mode is TlsMode.disabled:
                raise RemotingProtocolError("it wants TLS, and tls.server.mode=disabled")
            if first and first != FIRST_BYTE and tls.mode is TlsMode.enforcing:
                raise RemotingProtocolError("it does not use TLS, and tls.server.mode=enforcing")
            return first == FIRST_BYTE

    # Bytes

    async def _read(self, connection: Connection, peer: socket.socket, reader: FrameReader) -> None:
        """One read per wake-up, so that no connection keeps the others waiting."""
        received = self._received
        while not connection.closed:
            await trio.lowlevel.wait_readable(peer)
            try:
                size = peer.recv_into(received)
            except BlockingIOError:
                continue
            if size == 0:
                return
            connection.last_active = trio.current_time()
            if rest := self._take(connection, reader, received[:size]):
                await self._work_off_rest(connection, rest)
            elif connection.is_behind:
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
            connection.write()  # What TLS itself has to say.
            if channel.ended or not (size := await _receive(connection, peer, received)):
                return

    def _shake_hands(self, connection: Connection, channel: TlsChannel, data: memoryview) -> bool:
        try:
            return channel.shake_hands(data)
        finally:
            connection.write()  # Its part of the handshake, or why that failed.

    def _buffer_for_plaintext(self) -> memoryview:
        if self._decrypted is None:
            self._decrypted = memoryview(bytearray(_RECEIVE_BYTES))
        return self._decrypted

    def _take(self, connection: Connection, reader: FrameReader, data: memoryview) -> list[bytes]:
        """Work off what came; the frames that have to wait until the peer has caught up."""
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
            if not self._is_finishing or self._is_parting:  # Between the two what was read is carried out.
                await trio.lowlevel.checkpoint_if_cancelled()
            await connection.caught_up()
            rest = self.dispatcher.work_off(connection, rest)
        if connection.is_behind:
            await connection.caught_up()

    async def _close_idle(self) -> None:
        """Close connections without traffic, those that leave a frame unfinished, and those that do not read."""
        while True:
            await trio.sleep(_IDLE_SCAN_SECONDS)
            now = trio.current_time()
            for connection, reader in list(self._readers.items()):
                allowed = self.config.half_frame_seconds_max if reader.buffered else self.config.idle_seconds_max
                if now - connection.last_active > allowed:
                    connection.close()
                elif self._is_drip(connection, reader, now):
                    self._log_drip(connection, reader)
                    connection.close()
                else:
                    connection.cut_if_stuck(self.config.unread_seconds_max)

    def _is_drip(self, connection: Connection, reader: FrameReader, now: float) -> bool:
        """Whether a frame comes so slowly that its peer has nothing in mind but to keep its place."""
        grace = self.config.half_frame_seconds_max + reader.buffered / _FRAME_BYTES_PER_SECOND_MIN
        return reader.buffered > 0 and now - connection.half_since > grace

    def _log_drip(self, connection: Connection, reader: FrameReader) -> None:
        if (left_out := self._drips.due()) is not None:
            log.warning(
                "connection closed: its request comes too slowly",
                peer=connection.remote_address,
                bytes=reader.buffered,
                seconds=round(trio.current_time() - connection.half_since),
                left_out=left_out,
            )


async def _receive(connection: Connection, peer: socket.socket, buffer: memoryview) -> int:
    """What one read brings; 0 at the end of the connection."""
    while not connection.closed:
        await trio.lowlevel.wait_readable(peer)
        try:
            size = peer.recv_into(buffer)
        except BlockingIOError:
            continue
        connection.last_active = trio.current_time()
        return size
    return 0


def _close(listener: socket.socket) -> None:
    if listener.fileno() >= 0:
        trio.lowlevel.notify_closing(listener)
        listener.close()


def _is_among_the_last(descriptor: int) -> bool:
    """Whether this process has few more to give: the kernel hands out the lowest that is free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and descriptor >= limit - min(_DESCRIPTORS_KEPT, limit // 4)
