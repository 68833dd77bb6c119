"""Admission of HA connections: serve, hold until the slave is registered, or reject.

    from        event                                              to
    accepted    too many connections, and none may be ended        refused (too_many)
    accepted    IP of a registered or allowed slave                served
    pending     it shows the ticket of a member                    served
    accepted    any other IP, or a secret is required              pending
    pending     its IP is registered meanwhile                     served
    pending     not registered in time, or no request in time      refused (stranger)
    served      its IP is registered no longer, or is replaced     ended

A pending connection may be of a slave that has only just registered. It costs one small object and no task: one task watches
all of them with an epoll set of its own. Nothing is read from them or sent to them: a request waits in the kernel until its
connection is served, as any other, or rejected. One that begins with TLS gets a task for its handshake, as its ticket is behind
that. RocketMQ accepts every peer, with two threads and a buffer of 1 MiB each.
"""

import select
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress

import structlog
import trio
from attrs import define, field

from twinlog.ha.config import HAConfig
from twinlog.ha.errors import Cause, HAConnectionLostError, HAError, HARefusedError
from twinlog.ha.master.accept import Seat, must_leave
from twinlog.ha.master.connection import HAConnection, as_it_is
from twinlog.ha.master.group_transfer import GroupTransferService
from twinlog.ha.master.tickets import NOBODY, Holder, Tickets
from twinlog.ha.policy.admission import AdmissionRules, Refusals, parse_allowed
from twinlog.ha.wire.protocol import ACK, NO_REQUEST_YET
from twinlog.ha.wire.tls import FIRST_BYTE
from twinlog.ha.wire.transport import RECEIVE_SIZE, SocketTransport, Transport
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger()

TICK = 0.5  # Seconds: how late a connection may be rejected, and how often name servers are asked meanwhile.
LEFT = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
EVENTS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET  # On each arrival: it is not read, so it stays readable.


@define(eq=False)
class PendingConnection:
    """A connection that waits for its admission."""

    sock: socket.socket
    address: str  # IP:PORT
    ip: str
    since: float
    asked_at: float | None = None  # When its request was there.
    holder: Holder = NOBODY  # Whose ticket it showed.
    secure: Transport | None = None  # Begun with TLS: what reads it.
    first: bytes = b""  # What was read by that.
    refusal: HARefusedError | None = None


@define(eq=False)
class PendingConnections:
    """`let_in` gets a connection's socket once `admits` accepts its IP, or the member whose ticket it shows; `refuse` gets each
    one that was rejected.
    """

    config: HAConfig
    admits: Callable[[str, str, str], bool]
    let_in: Callable[[Transport, str, str, bytes], None]
    refuse: Callable[[PendingConnection], None]
    ask_members: Callable[[], None]
    tickets: Tickets
    secured: Callable[[Transport], Awaitable[Transport]]
    connections: dict[int, PendingConnection] = field(factory=dict, init=False)  # By descriptor, oldest first.
    _arrived: Wakeup = field(factory=Wakeup, init=False)
    _epoll: select.epoll | None = field(default=None, init=False)
    _nursery: trio.Nursery = field(init=False)

    async def run(self) -> None:
        """Watch them until cancelled; then reject all."""
        async with trio.open_nursery() as self._nursery:
            await self._watch()

    async def _watch(self) -> None:
        with select.epoll() as self._epoll:
            try:
                while True:
                    if not self.connections:
                        await self._arrived.wait()
                    with trio.move_on_after(TICK):
                        await trio.lowlevel.wait_readable(self._epoll.fileno())
                    await trio.lowlevel.checkpoint()
                    for fd, events in self._epoll.poll(0):
                        self._look(self.connections[fd], left=bool(events & LEFT))
                    self._expire()
            finally:
                self.reject_all()
                self._epoll = None

    def take(self, sock: socket.socket, address: str, ip: str) -> None:
        """Let a connection wait; it owns the socket now. One that has been closed by its peer already is dropped."""
        connection = PendingConnection(sock, address, ip, trio.current_time())
        if self._epoll is None:  # It stops.
            sock.close()
            return
        sock.setblocking(False)
        self.connections[sock.fileno()] = connection
        self._epoll.register(sock.fileno(), EVENTS)
        self._arrived.set()
        self._look(connection)

    def members_changed(self) -> None:
        """Let in who may follow now."""
        for connection in list(self.connections.values()):
            if connection.secure is None or connection.asked_at is not None:  # Else its task reads it.
                self._let_in_if_admitted(connection)

    def _let_in_if_admitted(self, connection: PendingConnection) -> bool:
        if is_admitted := self.admits(connection.ip, connection.holder.member, connection.holder.proof):
            self._forget(connection)
            transport = connection.secure or SocketTransport(connection.sock)
            self.let_in(transport, connection.address, connection.ip, connection.first)
        return is_admitted

    def reject(self, connection: PendingConnection) -> None:
        """Close its connection."""
        self._forget(connection)
        if connection.secure is not None:
            trio.lowlevel.notify_closing(connection.sock)
        connection.sock.close()

    def reject_all(self) -> None:
        """Close all: what they ask was meant for a log, or an epoch, that is over. They may come back."""
        for connection in list(self.connections.values()):
            self.reject(connection)

    def _forget(self, connection: PendingConnection) -> None:
        del self.connections[connection.sock.fileno()]
        if self._epoll is not None:
            self._epoll.unregister(connection.sock.fileno())

    def _look(self, connection: PendingConnection, *, left: bool = False) -> None:
        """See what has arrived, without taking it. A peer that has left is forgotten, whatever it said before."""
        if connection.secure is not None and not left:
            return
        report = b""
        if not left:
            try:
                report = connection.sock.recv(ACK.size, socket.MSG_PEEK)
            except BlockingIOError:
                return
            except OSError:
                pass
        if not report:
            self.reject(connection)
        elif report[:1] == FIRST_BYTE:
            connection.secure = SocketTransport(connection.sock)
            self._nursery.start_soon(self._read_secure, connection)
        elif len(report) == ACK.size:
            self._asked(connection, report)

    def _asked(self, connection: PendingConnection, report: bytes) -> None:
        if connection.asked_at is None:
            connection.asked_at = trio.current_time()
            connection.holder = self.tickets.holder_of(*ACK.unpack(report))
            if not self._let_in_if_admitted(connection):
                self.ask_members()

    async def _read_secure(self, connection: PendingConnection) -> None:
        """Complete the handshake, and read the first report."""
        assert connection.secure is not None
        try:
            connection.secure = await self.secured(connection.secure)
            while len(connection.first) < ACK.size:
                if not (data := await connection.secure.receive()):
                    raise HAConnectionLostError("left without a request")
                connection.first += data
            self._asked(connection, connection.first[: ACK.size])
        except HAError as error:
            if self.connections.get(connection.sock.fileno()) is connection:  # Else it was rejected meanwhile.
                self.reject(connection)
                if isinstance(error, HARefusedError):
                    connection.refusal = error
                    self.refuse(connection)

    def _expire(self) -> None:
        now = trio.current_time()
        silence, patience = self.config.housekeeping_interval_ms / 1000, self.config.admission_timeout_ms / 1000
        late = [
            connection
            for connection in self.connections.values()
            if now >= (connection.since + silence if connection.asked_at is None else connection.asked_at + patience)
        ]
        for connection in late:
            with suppress(OSError):  # Unread bytes would make the kernel report a broken connection, not an end.
                connection.sock.recv(RECEIVE_SIZE)
            self.reject(connection)
            self.refuse(connection)
        if any(connection.asked_at is not None for connection in self.connections.values()):
            self.ask_members()


@define
class LogBudget:
    """A bucket of `burst` lines that refills at `per_second`."""

    burst: int = 10
    per_second: float = 0.2
    suppressed: int = field(default=0, init=False)  # Since the last line that was let through.
    _left: float = field(init=False)
    _at: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._left = self.burst

    def allows(self, now: float) -> bool:
        """True if a line may be written at `now`, monotonic seconds. The caller logs and resets `suppressed`."""
        self._left = min(self._left + (now - self._at) * self.per_second, self.burst)
        self._at = now
        if self._left < 1:
            self.suppressed += 1
            return False
        self._left -= 1
        return True


@define(eq=False)
class ConnectionAdmission:
    """`connections`: those that are served now, oldest first, with the scopes that end them; `serve` adds one more at once."""

    config: HAConfig
    transfer: GroupTransferService
    connections: Mapping[HAConnection, trio.CancelScope]
    serve: Callable[[Transport, str, str, bytes], None]
    ask_members: Callable[[], None]
    has_record: Callable[[], bool] = lambda: False  # The group's record names its members, and who may be elected.
    welcome: Callable[[], Collection[str]] = lambda: ()  # IPs of slaves that may follow before the record has them.
    host_ips: Callable[[str], Collection[str]] = lambda _host: ()  # Of a host name in haAllowedSlaves.
    secured: Callable[[Transport], Awaitable[Transport]] = as_it_is
    members_at: Callable[[str], Collection[str]] = lambda _ip: ()  # Ids of the members that have tickets, by their IP.
    tickets: Tickets = field(factory=Tickets, init=False)
    rules: AdmissionRules = field(init=False)
    pending: PendingConnections = field(init=False)
    refusals: Refusals = field(factory=Refusals, init=False)
    _leaving: set[HAConnection] = field(factory=set, init=False)  # Cancelled, and not yet gone.
    _log_budget: LogBudget = field(factory=LogBudget, init=False)

    def __attrs_post_init__(self) -> None:
        self.rules = AdmissionRules(*parse_allowed(self.config.allowed_slaves), self.host_ips)
        self.pending = PendingConnections(
            self.config, self.rules.admits, self.serve, self._rejected, self.ask_members, self.tickets, self.secured
        )

    def take(self, accepted: socket.socket, address: str, ip: str) -> None:
        """Admit, hold or refuse a connection that was just accepted."""
        admitted = self.rules.admits(ip)
        if not self._make_room(ip, admitted=admitted):
            accepted.close()
            self.refused(address, ip, "too_many", "too many connections: haConnectionsMax, haConnectionsPerAddressMax")
        elif admitted:
            self.serve(SocketTransport(accepted), address, ip, b"")
        else:
            self.pending.take(accepted, address, ip)

    def members_changed(self, names: Collection[str]) -> None:
        """Take the IPs or ids of the registered slaves, one for each slave: serve pending connections that are admitted now, and
        end those that are no longer.
        """
        self.rules.members_changed(names, self.welcome())
        self.recount()
        for connection in list(self.connections):
            # Before its request it may still show a ticket.
            has_shown = connection.request_offset != NO_REQUEST_YET or not self.has_record()
            if has_shown and connection not in self._leaving and self.why_not(connection):
                self._end(connection)
                self.note("connection closed: slave no longer registered", peer=connection.address)
            elif has_shown and connection not in self._leaving and self._lacks_ticket(connection):
                self._end(connection)
                self.note("connection closed: its slave is a member now, and has to say so", peer=connection.address)
        self.pending.members_changed()

    def _lacks_ticket(self, connection: HAConnection) -> bool:
        """True for a connection that counts for nobody, as it showed no ticket, where a member should count by its id: it
        connected before it was registered, and so was given none. The next time it is.
        """
        if connection.member or self.rules.trusts(connection.ip):
            return False
        there = set(self.members_at(connection.ip))
        return bool(there - {each.member for each in self.connections})

    def why_not(self, connection: HAConnection) -> str:
        """Reason why a connection is not served; "" when it is."""
        is_admitted = self.rules.admits(connection.ip, connection.member, connection.proof)
        return "" if is_admitted else self.rules.why_not(connection.ip)

    def recount(self) -> None:
        """Determine again whose acknowledgements count: slaves that only haAllowedSlaves names count while connected.

        In a group with a record they do not: a member may be elected without having heard of such a slave.
        """
        served = (each.ip for each in self.connections if each.request_offset != NO_REQUEST_YET)
        voices = self.rules.registered if self.has_record() else self.rules.voices(served)
        self.transfer.members_changed(voices)

    def slave_connected(self, connection: HAConnection) -> None:
        """Note that a connection has made its request."""
        self.refusals.served(connection.ip)
        if self.rules.is_allowed(connection.ip):
            self.recount()
        name = self.transfer.name_of(connection)
        of_this_name = sum(
            self.transfer.name_of(each) == name and each.request_offset != NO_REQUEST_YET for each in self.connections
        )
        if of_this_name > self.transfer.registered_with(name):
            self.ask_members()  # It may be one that has only just registered.
        self.note(
            "slave connected",
            peer=connection.address,
            member_id=connection.member or None,
            request_offset=connection.request_offset,
        )

    def gone(self, connection: HAConnection) -> None:
        """Forget a connection that has ended."""
        self._leaving.discard(connection)
        if self.rules.is_allowed(connection.ip):
            self.recount()

    def refused(self, address: str, ip: str, cause: Cause, why: str) -> None:
        """Count a refusal, and log it once for each IP and cause."""
        if self.refusals.note(ip, cause, why, trio.current_time()):
            self.note("slave refused", always=self.rules.admits(ip), peer=address, cause=cause, why=why)

    def note(self, event: str, *, always: bool = True, **details: object) -> None:
        """Log a line; without `always` only now and then."""
        if always or self._log_budget.allows(trio.current_time()):
            if self._log_budget.suppressed:
                details["lines_suppressed"] = self._log_budget.suppressed
                self._log_budget.suppressed = 0
            log.info(event, **details)

    @property
    def has_unregistered(self) -> bool:
        """True while a connection that asks for the log may be of a slave that has only just registered."""
        counted = {slave.address for slave in self.transfer.slaves if slave.counted}
        return any(connection.asked_at is not None for connection in self.pending.connections.values()) or any(
            each.request_offset != NO_REQUEST_YET and each.address not in counted for each in self.connections
        )

    def _rejected(self, connection: PendingConnection) -> None:
        if connection.refusal is not None:
            self.refused(connection.address, connection.ip, connection.refusal.cause, str(connection.refusal))
            return
        silent = "made no request; " if connection.asked_at is None else ""
        self.refused(connection.address, connection.ip, "stranger", silent + self.rules.why_not(connection.ip))

    def _make_room(self, ip: str, *, admitted: bool) -> bool:
        pending = list(self.pending.connections.values())
        served = [each for each in self.connections if each not in self._leaving]
        seats = [Seat(each.ip, admitted=False, has_request=each.asked_at is not None) for each in pending]
        seats += [Seat(each.ip, admitted=True, has_request=each.request_offset != NO_REQUEST_YET) for each in served]
        leavers = must_leave(
            seats,
            Seat(ip, admitted=admitted, has_request=False),
            total=self.config.connections_max,
            per_address=self.config.connections_per_address_max,
        )
        for at in leavers or ():
            if at < len(pending):
                self.pending.reject(pending[at])
            else:
                self._end(served[at - len(pending)])
        return leavers is not None

    def _end(self, connection: HAConnection) -> None:
        self._leaving.add(connection)
        self.connections[connection].cancel()
