"""Replication of one member: serves slaves, and follows a master when it has one. Source: HAService (RocketMQ 4.9.8).

Every member listens, a slave too, so slaves of slaves work. ha/master/connection_admission.py decides which connections are
served, ha/policy/in_sync.py which slaves count.
"""

from collections.abc import Callable, Collection, Hashable
from contextlib import suppress

import structlog
import trio
from attrs import define, field
from structlog.contextvars import bound_contextvars

from twinlog.ha.config import HAConfig
from twinlog.ha.election.voter import ALWAYS, Lease
from twinlog.ha.errors import HAConnectionLostError, HAError, HARefusedError
from twinlog.ha.master.accept import AcceptSocketService
from twinlog.ha.master.connection import HAConnection
from twinlog.ha.master.connection_admission import ConnectionAdmission
from twinlog.ha.master.disconnected_slaves import DisconnectedSlaves
from twinlog.ha.master.group_transfer import GroupTransferService
from twinlog.ha.master.slave_check import FindSlave, trust
from twinlog.ha.master.tickets import NOBODY, Holder
from twinlog.ha.peer import NO_ROLE, OwnRole, Peer
from twinlog.ha.policy.ack_policy import configured_warnings
from twinlog.ha.policy.admission import Proofs
from twinlog.ha.policy.disconnected import Ack
from twinlog.ha.policy.in_sync import Slave
from twinlog.ha.policy.pushing import AppendStamps
from twinlog.ha.slave.client import HAClient
from twinlog.ha.statistics import HAConnectionStatistics, HAStatistics
from twinlog.ha.wire.protocol import ACK, NO_REQUEST_YET
from twinlog.ha.wire.tls import HATls, begin_as_master
from twinlog.ha.wire.transport import Transport
from twinlog.store.config import BrokerRole
from twinlog.store.message_store import MessageStore
from twinlog.store.retention import NO_FLOOR
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger()

STAMP_INTERVAL = 0.1  # Seconds: the resolution of lag_seconds.
RATE_INTERVAL = 1.0  # Seconds over which bytes per second are counted.


@define(eq=False)
class HAService:
    """`members`: the registered slaves of this group, by IP, or by the id of one that says who it is.

    `ask_members` is called while a connection of another IP asks for the log, as it may be of a slave that has only just
    registered; once the name server has answered, call members_changed(). `welcome`: the IPs of slaves that may follow, and do
    not count before they are in the group's record. `peer_of`: the member, to be asked about its log, whose HA port is at an
    address.

    `role`: see use_role(). The lease is held for ever until give_up().
    """

    store: MessageStore
    config: HAConfig
    members: Callable[[], Collection[str]]
    ask_members: Callable[[], None]
    welcome: Callable[[], Collection[str]] = field(default=lambda: (), kw_only=True)
    host_ips: Callable[[str], Collection[str]] = field(default=lambda _host: (), kw_only=True)  # Of a host name.
    peer_of: Callable[[str], Peer | None] = lambda _address: None
    find_slave: FindSlave = trust  # Finds the peer that tells about a slave's log.
    tls: HATls | None = field(default=None, kw_only=True)  # None: plaintext only.
    role: OwnRole = NO_ROLE
    lease: Lease = field(init=False)
    group_transfer: GroupTransferService = field(init=False)
    connection_admission: ConnectionAdmission = field(init=False)
    client: HAClient = field(init=False)
    disconnected_slaves: DisconnectedSlaves = field(init=False)
    fenced: str | None = field(default=None, init=False)  # Why no slave is served; None: slaves are.
    _connections: dict[HAConnection, trio.CancelScope] = field(factory=dict, init=False)  # Oldest first.
    _ends: int = field(default=0, init=False)  # How often all were ended.
    _nursery: trio.Nursery | None = field(default=None, init=False)
    _port: int = field(default=0, init=False)
    _stamps: AppendStamps = field(factory=AppendStamps, init=False)
    _sent_offset_max: int = field(default=0, init=False)  # At start the log's end: earlier connections may have had it.

    def __attrs_post_init__(self) -> None:
        self.group_transfer = GroupTransferService(
            self.config,
            lambda: self.store.max_offset,
            self.store.config.broker_role is BrokerRole.SYNC_MASTER,
            self._why_nothing_is_safe,
        )
        self.lease = Lease(self.config.lease_ms / 1000)
        self.lease.grant(ALWAYS)
        self.connection_admission = ConnectionAdmission(
            self.config,
            self.group_transfer,
            self._connections,
            self._take,
            self.ask_members,
            lambda: self.role.group is not None,
            self._welcome,
            self.host_ips,
            self.secured,
            self._members_at,
        )
        self.client = HAClient(self.store, self.config, peer_of=self.peer_of, role=self.role, tls=self.tls)
        if self.store.config.broker_role is BrokerRole.SLAVE:
            self.client.set_master(self.config.master_address)
        elif self.config.master_address:  # Left behind by a promotion, say. A log that two write to is nobody's.
            log.warning(
                "a master follows nobody, haMasterAddress is ignored", haMasterAddress=self.config.master_address
            )

        self.store.on_truncate.append(self._log_was_cut)
        self.disconnected_slaves = DisconnectedSlaves(
            path=self.store.config.root.expanduser() / "twinlog" / "replicas",
            acks=self._acks,
            max_offset=lambda: self.store.max_offset,
            bytes_max=self.config.retention_bytes_max,
            registered_with=self.group_transfer.registered_with,
        )

    def use_role(self, role: OwnRole) -> None:
        """Take this member's history, promised epoch and group record from `role` from now on."""
        self.role = self.client.role = role

    def _log_was_cut(self, offset: int) -> None:
        """Disconnect our own slaves, which have to compare their logs again: what they were sent may be of another history."""
        self._end_connections()
        self._sent_offset_max = min(self._sent_offset_max, offset)

    def _end_connections(self) -> None:
        self._ends += 1
        self.connection_admission.pending.reject_all()
        for connection, scope in self._connections.items():
            self._note_sent(connection)
            connection.retire()
            scope.cancel()

    def _note_sent(self, connection: HAConnection) -> None:
        if not connection.is_over:  # Else it was noted already, and the log may have been truncated since.
            self._sent_offset_max = max(self._sent_offset_max, connection.proven_offset)

    def _why_nothing_is_safe(self, now: float) -> str | None:
        return self.fenced or (None if self.lease.held(now) else f"no lease: {self.lease.why}")

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and follow until cancelled; started() gives the port. Raises OSError when the port cannot be had."""
        role = self.store.config.broker_role
        if role is not BrokerRole.SLAVE:
            for warning in configured_warnings(self.config.ack_rule, synchronous=role is BrokerRole.SYNC_MASTER):
                log.warning("SEND_OK may promise less than producers expect", why=warning)
        self.members_changed(self.members())
        self._sent_offset_max = self.store.max_offset
        accept = AcceptSocketService(self.config.listen_host, self.config.listen_port, self.connection_admission.take)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self.connection_admission.pending.run)
            self._port = await nursery.start(accept.run)
            nursery.start_soon(self.group_transfer.run)
            nursery.start_soon(self._stamp_task)
            nursery.start_soon(self._rate_task)
            nursery.start_soon(self.disconnected_slaves.run)
            nursery.start_soon(self.client.run)
            task_status.started(self._port)

    def set_master(self, address: str | None) -> None:
        """Follow the master whose HA port is at `address`, HOST:PORT; None: none. The present connection is kept if the address
        is the same, and closed otherwise.
        """
        self.client.set_master(address)

    async def leave_master(self) -> None:
        """Stop following, and return once nothing is appended or acknowledged for a master any more."""
        await self.client.leave()

    def fence(self, why: str) -> None:
        """Stop serving: no message is reported as safe, those that wait are refused, all slaves are disconnected."""
        self.fenced = why
        self.group_transfer.refuse_all(why)
        self.store.flusher.refuse_all(why)
        self.end_slaves(why)

    def unfence(self, *, synchronous: bool) -> None:
        """Serve again, in a new epoch or role. `synchronous`: producers wait for slaves here."""
        self.end_slaves("a new epoch begins")
        self.fenced = None
        self._sent_offset_max = self.store.max_offset
        self.group_transfer.synchronous = synchronous
        self.group_transfer.expect_slaves()
        self.group_transfer.gate_opened()

    def has_end(self, address: str) -> bool:
        """True if a connection to us comes from IP:PORT."""
        there = {each.address for each in self._connections}
        there |= {each.address for each in self.connection_admission.pending.connections.values()}
        return address in there

    def end_slaves(self, why: str) -> None:
        """Disconnect all slaves: what they acknowledged in this epoch no longer counts. They may reconnect."""
        if self._connections:
            log.info("all slaves disconnected", why=why, connections=len(self._connections))
        self._end_connections()

    def members_changed(self, names: Collection[str]) -> None:
        """Take the IPs of the registered slaves, one for each slave, or its id for a member that says who it is; connected ones
        count, or are disconnected, at once.
        """
        self.connection_admission.members_changed(names)

    def _welcome(self) -> frozenset[str]:
        """The IPs and ids of slaves that may follow, whether they count or not."""
        group = self.role.group
        return frozenset(self.welcome()) | (group.voters if group is not None else frozenset())

    def _members_at(self, ip: str) -> list[str]:
        """The ids of the other members that have tickets, and whose HA port is at this IP."""
        group, me = self.role.group, self.role.me()
        others = (
            each for each in (group.members if group is not None else ()) if each.codes and each.id != (me and me.id)
        )
        return [each.id for each in others if ip in self.host_ips(each.ha_address.rpartition(":")[0].strip("[]"))]

    def ticket_for(self, holder: Holder, shown: Callable[[int], int] = lambda ticket: ticket) -> int:
        """A ticket for the HA connection that a member has just made, whose first eight bytes are what `shown` makes of it."""
        return self.connection_admission.tickets.give(holder, shown)

    def use_proofs(self, proofs: Proofs) -> None:
        """Serve slaves by these secrets from now on: connections of others end, and may come back."""
        if proofs != self.connection_admission.rules.proofs:
            self.connection_admission.rules.proofs = proofs
            self.members_changed(self.members())

    async def serve(self, transport: Transport, address: str, ip: str) -> None:
        """Serve one connection until it ends; it is refused at once unless it is admitted, by its IP or a ticket."""
        admission, first, ends = self.connection_admission, b"", self._ends
        if not admission.rules.admits(ip) and self.role.group is not None:
            with trio.move_on_after(self.config.admission_timeout_ms / 1000), suppress(HAConnectionLostError):
                first = await transport.receive()
        holder = admission.tickets.holder_of(*ACK.unpack_from(first)) if len(first) >= ACK.size else NOBODY
        if ends != self._ends:  # What its slave was told of this log's history is old.
            await transport.aclose()
        elif admission.rules.admits(ip, holder.member, holder.proof):
            await self._serve(self._connection(transport, address, ip, first))
        else:
            admission.refused(address, ip, "stranger", admission.rules.why_not(ip))
            await transport.aclose()

    async def secured(self, transport: Transport) -> Transport:
        """The transport of a connection that was accepted, with TLS if its first byte asks for it. Raises HAError."""
        return await begin_as_master(transport, self.tls, only_tls=self.config.tls)

    def _take(self, transport: Transport, address: str, ip: str, first: bytes = b"") -> None:
        assert self._nursery is not None
        self._nursery.start_soon(self._serve, self._connection(transport, address, ip, first))

    def _connection(self, transport: Transport, address: str, ip: str, first: bytes = b"") -> HAConnection:
        connection = HAConnection(
            transport,
            address,
            ip,
            self.store,
            self.group_transfer,
            self.config,
            on_request=self.connection_admission.slave_connected,
            holdable=self._holdable,
            find_slave=self.find_slave,
            tickets=self.connection_admission.tickets,
            why_not_admitted=self.connection_admission.why_not,
            first=first,
            secure=self.secured,
        )
        self._connections[connection] = trio.CancelScope()
        return connection

    async def _serve(self, connection: HAConnection) -> None:
        try:
            with self._connections[connection], bound_contextvars(peer=connection.address):
                if self.fenced is not None:
                    await connection.transport.aclose()
                    raise HARefusedError("fenced", self.fenced)
                await connection.run()
                if connection.request_offset != NO_REQUEST_YET:
                    self._log_end(connection, "slave left")
        except HARefusedError as error:
            self.connection_admission.refused(connection.address, connection.ip, error.cause, str(error))
        except HAError as error:
            self._log_end(connection, "connection of a slave ended", why=str(error))
        finally:
            del self._connections[connection]
            self._note_sent(connection)
            self.connection_admission.gone(connection)

    def _holdable(self) -> int:
        """Upper bound of what a slave can hold of this log. A member that is a slave itself does not know it: others may have its
        bytes from its own master.
        """
        if self.store.config.broker_role is BrokerRole.SLAVE:
            return self.store.max_offset
        return max(self._sent_offset_max, *(each.proven_offset for each in self._connections), 0)

    def _log_end(self, connection: HAConnection, event: str, **details: object) -> None:
        is_slave = connection.request_offset != NO_REQUEST_YET
        self.connection_admission.note(
            event, always=is_slave, peer=connection.address, ack_offset=connection.ack_offset, **details
        )

    async def _stamp_task(self) -> None:
        """Stamp the growth of the log."""
        wakeup = Wakeup()
        self.store.appended.append(wakeup.set)
        try:
            while True:
                self._stamps.note(self.store.max_offset, trio.current_time())
                await wakeup.wait()
                self._stamps.note(self.store.max_offset, trio.current_time())
                await trio.sleep(STAMP_INTERVAL)
        finally:
            self.store.appended.remove(wakeup.set)

    async def _rate_task(self) -> None:
        while True:
            before = trio.current_time()
            await trio.sleep(RATE_INTERVAL)
            seconds = trio.current_time() - before
            self.client.rate(seconds)
            for connection in self._connections:
                connection.rate(seconds)

    def lowest_needed(self) -> int:
        """The lowest byte of the log that a connected slave still lacks; no limit without slaves."""
        return min((ack[1] for ack in self._acks().values()), default=NO_FLOOR)

    def _acks(self) -> dict[Hashable, Ack]:
        """IP or id, and acknowledged offset, of each slave that is connected."""
        slaves = (each for each in self._connections if each.request_offset != NO_REQUEST_YET)
        return {each: (self.group_transfer.name_of(each), each.ack_offset, each.ip) for each in slaves}

    def age_of(self, offset: int) -> float | None:
        """Seconds since the byte at `offset` of the log was appended; 0 at its end, None: before this process started."""
        return self._stamps.age(offset, self.store.max_offset, trio.current_time())

    def statistics(self) -> HAStatistics:
        """Snapshot of both sides."""
        following = self.client.master_address is not None
        transfer, slaves = self.group_transfer, self.group_transfer.slave_of()
        return HAStatistics(
            role="slave" if following else "master",
            port=self._port,
            max_offset=self.store.max_offset,
            push2_slave_max_offset=transfer.push2_slave_max_offset,
            confirmed_offset=min(transfer.confirmed_offset, self.store.max_offset),
            decision=transfer.decision,
            registered=transfer.registered,
            waiting_messages=transfer.waiting,
            connections=tuple(self._describe(each, slaves.get(each)) for each in self._connections),
            refused=dict(self.connection_admission.refusals.counts),
            refusals=self.connection_admission.refusals.last,
            client=self.client.statistics() if following else None,
            retention_holder=self.disconnected_slaves.held_by(),
            away=tuple(self.disconnected_slaves.slaves.away),
        )

    def _describe(self, connection: HAConnection, slave: Slave | None) -> HAConnectionStatistics:
        return connection.statistics(
            slave,
            is_admitted=not self.connection_admission.why_not(connection),
            lag_seconds=self.age_of(max(connection.ack_offset, 0)),
        )
