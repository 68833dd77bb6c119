"""Requests to brokers and name servers: one connection per address, many requests in flight on each.

A request waits in its own task for the response with its opaque number. Each connection has a task that reads and one that
writes: a caller only queues its frame, so its cancellation cannot cut a frame that is being sent. A lone caller gives it to the
kernel itself, without waiting, and queues what the kernel does not take.
Source: NettyRemotingClient.java, NettyRemotingAbstract.java (RocketMQ 4.9.8).
"""

import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from secrets import token_hex
from typing import TypeVar

import anyio
import anyio.abc
from attrs import define, field

from twinlog.cluster.remoting.calls import Answer
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import ONEWAY, FrameReader, RemotingCommand, decode, encode
from twinlog.cluster.remoting.errors import (
    MemberAuthError,
    RemotingConnectError,
    RemotingProtocolError,
    RemotingTimeoutError,
)
from twinlog.cluster.remoting.member_auth import (
    NONCE_BYTES,
    ClientSession,
    OwnProof,
    Secret,
    Session,
    Signed,
    challenge_request,
    read_challenge,
    wants_signature,
)
from twinlog.cluster.remoting.names import split_address
from twinlog.cluster.remoting.streams import (
    Event,
    Stream,
    broken,
    clock_of_loop,
    current_loop,
    events_of_loop,
    open_tcp,
    open_tls,
    writer_of,
)
from twinlog.store.util.late_logger import LateLogger

CONNECT_TIMEOUT_MS = 3_000
IDLE_MS = 120_000  # A connection without traffic is closed after this long, as RocketMQ's clients and servers do.
WAY_SECONDS_MAX = 1.0  # For one address of a member that has several.
SILENCE_MS = 10_000  # A connection with late requests that receives nothing for so long is closed.
OUTBOX_SIZE_MAX = 1024 * 1024  # Unsent bytes of one connection, above which callers wait.
_READ_SIZE = 256 * 1024
_OPAQUE_MASK = 0x7FFFFFFF

log = LateLogger(__name__)

T = TypeVar("T")
OnRequest = Callable[[str, RemotingCommand], RemotingCommand | None]
Connect = Callable[[str], Awaitable[Stream]]
# Of all addresses, or of each one: None for those that get plaintext.
Tls = ssl.SSLContext | Callable[[str], Awaitable[ssl.SSLContext | None]]
Sign = Callable[[RemotingCommand], None]  # Adds to `ext`, which is this request's own dict and never None.


async def connect_tcp(address: str) -> Stream:
    """Open a TCP connection. Raises OSError, or ValueError for a malformed address."""
    return await open_tcp(*split_address(address))


async def connect_first(addresses: Sequence[str]) -> Stream:
    """Open a TCP connection to the first of these addresses that takes one. Raises OSError, ValueError for a malformed one."""
    if len(addresses) == 1:
        return await connect_tcp(addresses[0])
    errors, causes = [], list[OSError]()
    for address in addresses:
        why = f"no connection within {WAY_SECONDS_MAX:g} s"
        with anyio.move_on_after(WAY_SECONDS_MAX if address != addresses[-1] else inf):
            try:
                return await connect_tcp(address)
            except OSError as error:
                why = connect_reason(error)
                causes.append(error)
        errors.append(f"{address}: {why}")
    cause = ExceptionGroup("no way", causes) if len(causes) == len(addresses) else None
    raise OSError("; ".join(errors)) from cause


def is_refused(error: BaseException) -> bool:
    """True if nothing listens where a connection was tried: the machine is there, and refuses it."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_refused, error.exceptions))
    if isinstance(error, ConnectionRefusedError):
        return True
    reason = error.__cause__ or error.__context__
    return reason is not None and is_refused(reason)


async def start_tls(stream: Stream, address: str, tls: Tls) -> Stream:
    """Complete the TLS handshake, if the address gets TLS. Raises OSError when the peer does not speak it, or is not trusted."""
    context = await tls(address) if callable(tls) else tls
    if context is None:
        return stream
    try:
        return await open_tls(stream, split_address(address)[0], context)
    except broken() as error:
        raise OSError(f"no TLS connection: {tls_reason(error.__cause__)}") from None


def tls_connect(tls: Tls, connect: Connect = connect_tcp) -> Connect:
    """A function like `connect` that uses TLS."""

    async def connect_with_tls(address: str) -> Stream:
        return await start_tls(await connect(address), address, tls)

    return connect_with_tls


@define(eq=False)
class _Waiter:
    """A request in flight: its response, or the reason why there will be none."""

    response: RemotingCommand | None = None
    lost: str = ""
    _done: Event | None = field(
        default=None, init=False
    )  # While its caller waits: most responses are there before, in send_all.

    @property
    def is_over(self) -> bool:
        return self.response is not None or bool(self.lost)

    def end(self, response: RemotingCommand | None, lost: str = "") -> None:
        """Let its caller go on."""
        self.response, self.lost = response, lost
        if self._done is not None:
            self._done.set()

    async def wait(self, new_event: Callable[[], Event]) -> None:
        """Wait for end(). A response that is there is returned even when the caller's time is up."""
        if not self.is_over:
            self._done = new_event()
            await self._done.wait()


@define(eq=False)
class _Connection:
    """One stream and the requests in flight on it."""

    address: str
    stream: Stream
    on_request: OnRequest | None
    lost: str = field(default="", init=False)  # Why the connection has ended; empty while it is open.
    scope: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)
    _waiters: dict[int, _Waiter] = field(factory=dict, init=False)
    _outbox: list[bytes] = field(factory=list, init=False)
    _outbox_size: int = field(default=0, init=False)
    _filled: Event | None = field(default=None, init=False)  # While the write task waits.
    _emptied: Event | None = field(default=None, init=False)  # While anybody waits for it.
    _new_event: Callable[[], Event] = field(factory=events_of_loop, init=False)
    _now: Callable[[], float] = field(factory=clock_of_loop, init=False)
    _write_now: Callable[[bytes], int] | None = field(init=False)
    opened_at: float = field(factory=anyio.current_time, init=False)
    _last_used: float = field(factory=anyio.current_time, init=False)
    _last_received: float = field(factory=anyio.current_time, init=False)
    _first_late: float = field(default=inf, init=False)  # When the first request was sent that is late since then.
    signing: anyio.Lock = field(
        factory=anyio.Lock, init=False
    )  # Signed requests are sent in the order of their numbers.
    session: ClientSession | None = field(default=None, init=False)
    has_no_secret: bool = field(default=False, init=False)  # The member at the other end, which was asked.

    def __attrs_post_init__(self) -> None:
        self._write_now = writer_of(self.stream)

    async def run(self) -> None:
        """Read and write until the peer closes, breaks the protocol, or there is no traffic for IDLE_MS."""
        reason = "the connection was closed"
        try:
            async with self.stream, anyio.create_task_group() as task_group:
                task_group.start_soon(self._write_task)
                await self._read()
                task_group.cancel_scope.cancel()
        except* broken() as group:
            reason = f"the connection was lost: {group.exceptions[0].__cause__ or group.exceptions[0]}"
        except* RemotingProtocolError as group:
            reason = f"the server broke the protocol: {group.exceptions[0]}"
            log.warning(
                "connection closed: the server broke the protocol", peer=self.address, error=str(group.exceptions[0])
            )
        finally:
            self._end(reason)

    async def begin(self, command: RemotingCommand) -> _Waiter:
        """Send, and return what response() waits for. Raises RemotingConnectError."""
        waiter = self._waiters[command.opaque] = _Waiter()
        try:
            await self.send(command)
        except BaseException:
            self._waiters.pop(command.opaque, None)
            raise
        return waiter

    async def response(self, waiter: _Waiter, command: RemotingCommand) -> RemotingCommand:
        """Wait for the response to a request that was begun. Raises RemotingConnectError."""
        try:
            await waiter.wait(self._new_event)
        finally:
            self._waiters.pop(command.opaque, None)
        if waiter.response is None:
            raise RemotingConnectError(self.address, waiter.lost, sent=True)
        return waiter.response

    def late(self, sent: float) -> None:
        """Note that a request sent at that time timed out, or that its caller gave it up. The host may be down, which TCP notices
        much later.
        """
        if self._last_received > sent:
            return
        self._first_late = min(self._first_late, sent)
        if self._now() >= self._first_late + SILENCE_MS / 1000:
            log.info("connection closed: requests time out and nothing is received", peer=self.address)
            self.scope.cancel()

    async def send(self, command: RemotingCommand) -> None:
        """Hand one frame to the write task; wait while too much is unsent. Raises RemotingConnectError."""
        frame = encode(command)
        await self.until_room()
        if self.lost:
            raise RemotingConnectError(self.address, self.lost)
        self._put(frame)

    @property
    def is_full(self) -> bool:
        """True while callers wait, as too much is unsent."""
        return self._outbox_size > OUTBOX_SIZE_MAX and not self.lost

    async def until_room(self) -> None:
        """Wait while it is full."""
        while self.is_full:
            await self._until_emptied()

    @property
    def now(self) -> float:
        return self._now()

    def _put(self, frame: bytes) -> None:
        if self._filled is not None and self._write_now is not None and len(self._waiters) <= 1:
            # Nothing is unsent, and no other request's frame is about to come that could go with it: the write task would only
            # take time.
            sent = self._write_now(frame)
            if sent == len(frame):
                self._last_used = self._now()
                return
            frame = frame[sent:]
        self._outbox.append(frame)
        self._outbox_size += len(frame)
        if self._filled is not None:
            self._filled.set()
            self._filled = None

    async def _write_task(self) -> None:
        while True:
            if not self._outbox:
                self._filled = self._new_event()
                await self._filled.wait()
            data, self._outbox = b"".join(self._outbox), []
            await self.stream.send_all(data)
            self._last_used = self._now()
            self._outbox_size -= len(data)
            assert self._outbox_size >= 0, self._outbox_size
            self._tell_emptied()

    async def _read(self) -> None:
        reader = FrameReader()
        while True:
            with anyio.CancelScope(
                deadline=self._last_used + IDLE_MS / 1000
            ):  # One for many reads: it costs more than one.
                while data := await self.stream.receive_some(_READ_SIZE):
                    self._last_used = self._last_received = self._now()
                    self._first_late = inf
                    for frame in reader.feed(data):
                        self._take(decode(frame))
                return
            if self._waiters:  # Held pulls: their own time limits count.
                self._last_used = self._now()
            elif self._now() >= self._last_used + IDLE_MS / 1000:  # No traffic since.
                return

    def _take(self, command: RemotingCommand) -> None:
        if not command.is_response:
            self._serve(command)
        elif waiter := self._waiters.pop(command.opaque, None):
            waiter.end(command)
        # Else its request has timed out.

    def _serve(self, request: RemotingCommand) -> None:
        """Let `on_request` handle a request that the server makes, and send its response."""
        try:
            response = self.on_request(self.address, request) if self.on_request else not_supported(request)
            frame = encode(response) if response else b""
        except Exception as error:  # A handler's fault must not end the connection.
            log.exception("request of the server failed", peer=self.address, code=request.code)
            remark = f"{type(error).__name__}: {error}"
            frame = encode(RemotingCommand.response_to(request, ResponseCode.SYSTEM_ERROR, remark=remark))
        if frame and not request.is_oneway and self._outbox_size <= OUTBOX_SIZE_MAX:
            self._put(frame)

    async def flush(self) -> None:
        """Wait until nothing is unsent."""
        while self._outbox_size and not self.lost:
            await self._until_emptied()

    async def _until_emptied(self) -> None:
        if self._emptied is None:
            self._emptied = self._new_event()
        await self._emptied.wait()

    def _tell_emptied(self) -> None:
        if self._emptied is not None:
            self._emptied.set()
            self._emptied = None

    def put_response(self, response: RemotingCommand) -> None:
        """Respond to the server later than its request came; dropped when too much is unsent."""
        if self._outbox_size <= OUTBOX_SIZE_MAX and not self.lost:
            self._put(encode(response))

    def _end(self, reason: str) -> None:
        self.lost = reason
        for waiter in self._waiters.values():
            waiter.end(None, reason)
        self._waiters.clear()
        self._tell_emptied()


@define(eq=False)
class _Answer:
    """See Answer."""

    connection: _Connection
    waiter: _Waiter
    command: RemotingCommand
    timeout_s: float
    sent: float

    @property
    def is_here(self) -> bool:
        """See Answer."""
        return self.waiter.is_over

    async def __call__(self) -> RemotingCommand:
        """Wait for it. Raises RemotingConnectError."""
        try:
            return await self.connection.response(self.waiter, self.command)
        except anyio.get_cancelled_exc_class():
            # As in RemotingClient._within: given up early, or late.
            if self.timeout_s < SILENCE_MS / 1000 or self.connection.now >= self.sent + self.timeout_s:
                self.connection.late(self.sent)
            raise


async def _ask(connection: _Connection, command: RemotingCommand) -> RemotingCommand:
    return await connection.response(await connection.begin(command), command)


def not_supported(request: RemotingCommand) -> RemotingCommand:
    """The response to a request that is not served."""
    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return RemotingCommand.response_to(request, code, remark=f" request type {request.code} not supported")


@define(eq=False)
class RemotingClient:
    """Sends requests to servers by their address. `run` carries the connections; requests work while it runs.

    on_request: handles requests that servers make (40, 220, ...), with the server's address; returns the response, or None for
    none, or for one that `respond` sends later.
    sign: adds its fields to every request, after all others. tls: makes connections TLS ones. proof: signs the requests that
    members sign, see member_auth.py; it is set once, before `run`.
    """

    on_request: OnRequest | None = None
    sign: Sign | None = field(default=None, kw_only=True)
    tls: Tls | None = field(default=None, kw_only=True)
    connect: Connect = field(default=connect_tcp, kw_only=True)
    proof: OwnProof | None = field(default=None, kw_only=True)
    _connections: dict[str, _Connection] = field(factory=dict, init=False)
    _connecting: dict[str, anyio.Lock] = field(factory=dict, init=False)
    _task_group: anyio.abc.TaskGroup | None = field(default=None, init=False, repr=False)
    _loop: object | None = field(default=None, init=False, repr=False)
    _opaque: int = field(default=0, init=False)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Carry the connections until cancelled; then all close, and pending requests raise RemotingConnectError."""
        self._loop = current_loop()
        try:
            async with anyio.create_task_group() as task_group:
                self._task_group = task_group
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._task_group = None

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses with an open connection."""
        return frozenset(self._connections)

    def connection_of(self, address: str) -> object | None:
        """The open connection to an address, to distinguish it from a later one; None without one."""
        return self._connections.get(address)

    def connected_seconds(self, address: str) -> float:
        """Age of the open connection to an address; 0 without one."""
        connection = self._connections.get(address)
        return anyio.current_time() - connection.opened_at if connection is not None else 0.0

    async def request(self, address: str, command: RemotingCommand, *, timeout_ms: float = 3_000) -> RemotingCommand:
        """Send and wait for the response, whatever its code; connects first where needed. `command` is not changed.

        Raises RemotingConnectError when there is no connection or it ends before the response, RemotingTimeoutError when
        the response is late, RemotingProtocolError for a command that cannot be encoded, and MemberAuthError for a signed
        request whose response is not proven.
        """
        if self.proof is not None and wants_signature(command):
            return (await self.request_signed(address, command, timeout_ms=timeout_ms))[0]
        return await self._within(timeout_ms, address, command, _ask)

    async def request_signed(
        self, address: str, command: RemotingCommand, *, timeout_ms: float = 3_000
    ) -> tuple[RemotingCommand, Signed | None]:
        """The same, signed; None: this member or the other one has no secret, and it was not signed."""
        return await self._within(timeout_ms, address, command, self._ask_signed)

    async def _within(
        self,
        timeout_ms: float,
        address: str,
        command: RemotingCommand,
        ask: Callable[[_Connection, RemotingCommand], Awaitable[T]],
    ) -> T:
        """Connect where needed, and ask. Raises RemotingConnectError and RemotingTimeoutError when the time is up."""
        connection, sent = None, inf
        try:
            with anyio.move_on_after(timeout_ms / 1000):
                connection = await self._connection(address)
                sent = anyio.current_time()
                return await ask(connection, self._prepared(command))
        except anyio.get_cancelled_exc_class():
            # Whoever always gives up early would keep a dead connection for ever. A server may hold a longer request.
            if connection is not None and timeout_ms < SILENCE_MS:
                connection.late(sent)
            raise
        if connection is None:
            raise RemotingConnectError(address, f"not connected within {timeout_ms:g} ms")
        connection.late(sent)
        raise RemotingTimeoutError(address, command.code, round(timeout_ms))

    async def _ask_signed(
        self, connection: _Connection, command: RemotingCommand
    ) -> tuple[RemotingCommand, Signed | None]:
        try:
            return await self._ask_with_proof(connection, command)
        except MemberAuthError as error:
            connection.session = None
            assert self.proof is not None
            self.proof.failed(connection.address, str(error))
            raise MemberAuthError(f"{connection.address}: {error}") from error

    async def _ask_with_proof(
        self, connection: _Connection, command: RemotingCommand
    ) -> tuple[RemotingCommand, Signed | None]:
        signed = None
        async with connection.signing:
            if self.proof is not None and (session := await self._session(connection, self.proof)) is not None:
                signed = session.sign(command, self.proof.sender())
            waiter = await connection.begin(command)
        response = await connection.response(waiter, command)
        if signed is not None:
            signed.check_response(response)
        return response, signed

    async def _session(self, connection: _Connection, proof: OwnProof) -> ClientSession | None:
        """The session of the secret that signs now; the member is asked for a challenge first where needed."""
        secret = proof.secret()
        if secret is None:
            return None
        if connection.session is None or connection.session.session.secret_id != secret.id:
            connection.session = None if connection.has_no_secret else await self._new_session(connection, secret)
        if connection.session is None and proof.is_required():
            raise MemberAuthError(
                "it has no group secret, or is a version before 0.3, and haSecret=required here. Next: set haSecretFile there "
                "and start it anew; until all members have the secret, haSecret=optional here"
            )
        return connection.session

    async def _new_session(self, connection: _Connection, secret: Secret) -> ClientSession | None:
        ours = token_hex(NONCE_BYTES)
        answer = await _ask(connection, self._prepared(challenge_request(ours)))
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            connection.has_no_secret = True
            return None
        return ClientSession(Session.of(secret, read_challenge(answer, ours)))

    async def begin(self, address: str, command: RemotingCommand, *, timeout_ms: float = 3_000) -> Answer:
        """Send, and return a function that waits for the response: one task can have many requests in flight.

        Call that function once, under a time limit of your own. Both raise RemotingConnectError.
        """
        self._check_loop()
        connection = self._connections.get(address)
        if connection is None or connection.is_full:  # Without waiting, no scope is needed.
            with anyio.move_on_after(timeout_ms / 1000) as scope:
                connection = await self._connection(address)
                await connection.until_room()
            if connection is None or scope.cancelled_caught:
                raise RemotingConnectError(address, f"not sent within {timeout_ms:g} ms")
        prepared = self._prepared(command)
        return _Answer(connection, await connection.begin(prepared), prepared, timeout_ms / 1000, connection.now)

    async def flush(self) -> None:
        """Wait until every queued frame is in a socket, or its connection is lost."""
        for connection in list(self._connections.values()):
            await connection.flush()

    def respond(self, address: str, response: RemotingCommand) -> None:
        """Respond to a request of a server; dropped when its connection has ended."""
        if connection := self._connections.get(address):
            connection.put_response(response)

    async def oneway(self, address: str, command: RemotingCommand, *, timeout_ms: float = 3_000) -> None:
        """Send a request that gets no response; returns when the frame is queued. Raises RemotingConnectError."""
        with anyio.move_on_after(timeout_ms / 1000):
            connection = await self._connection(address)
            return await connection.send(self._prepared(command, ONEWAY))
        raise RemotingConnectError(address, f"not sent within {timeout_ms:g} ms")

    def _prepared(self, command: RemotingCommand, flag: int = 0) -> RemotingCommand:
        """A copy with an opaque number and a signature; `command` may be in flight elsewhere, and is not changed."""
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        prepared = command.copy(self._opaque, command.flag | flag)
        if self.sign is not None:
            prepared.ext = dict(command.ext or {})
            self.sign(prepared)
        return prepared

    async def _connection(self, address: str) -> _Connection:
        self._check_loop()
        if connection := self._connections.get(address):
            return connection
        async with self._connecting.setdefault(address, anyio.Lock()):  # One task connects, the others wait for it.
            return self._connections.get(address) or await self._open(address)

    def _check_loop(self) -> None:
        """Refuse to be used in another event loop than runs the connections: their events would never come."""
        if self._loop is not None and current_loop() is not self._loop:
            raise RuntimeError(
                "this client runs in another event loop, or did: the one of its `async with` block. Make a client for each loop"
            )

    async def _open(self, address: str) -> _Connection:
        if self._task_group is None:
            raise RemotingConnectError(address, "the client is not running: use it inside its `async with` block")
        try:
            with anyio.fail_after(CONNECT_TIMEOUT_MS / 1000):
                stream = await self.connect(address)
                if self.tls is not None:
                    stream = await start_tls(stream, address, self.tls)
        except TimeoutError:
            raise RemotingConnectError(address, f"not connected within {CONNECT_TIMEOUT_MS} ms") from None
        except (OSError, ValueError) as error:
            raise RemotingConnectError(address, connect_reason(error)) from error
        connection = self._connections[address] = _Connection(address, stream, self.on_request)
        self._task_group.start_soon(self._carry, connection)
        return connection

    async def _carry(self, connection: _Connection) -> None:
        try:
            with connection.scope:
                await connection.run()
        finally:
            if self._connections.get(connection.address) is connection:
                del self._connections[connection.address]


def tls_reason(error: BaseException | None) -> str:
    """The reason that OpenSSL gives, without its file and line, and the option that decides."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate is not trusted ({error.verify_message}): tls.client.trustCertPath here has to name who "
            "signed its tls.server.certPath"
        )
    if isinstance(error, ssl.SSLError) and error.reason and not isinstance(error, ssl.SSLEOFError):
        return error.reason.replace("_", " ").lower()
    is_closed = error is None or isinstance(error, (ssl.SSLEOFError, ConnectionError))
    return f"{'the server closed the connection' if is_closed else error}: is tls.server.mode=disabled there?"


def connect_reason(error: BaseException) -> str:
    """The kernel's error. The loop wraps it, one for each address that it tried: the first is shown."""
    if isinstance(error, BaseExceptionGroup):
        return connect_reason(error.exceptions[0])
    if error.__cause__ is not None:
        return connect_reason(error.__cause__)
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error)
