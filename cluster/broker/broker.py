"""Broker: start and stop of its parts.

    run:   load store and tables -> bind both ports -> HA -> serve -> register; started() once the ports are bound
    stop:  stop reading requests, and unregister from name servers, so that clients leave
           -> answer accepted requests, for a limited time -> close connections, with their held pulls
           -> stop services -> write tables -> close the store

Services run until all requests are answered, as producers wait for slaves and disk. The store and outgoing connections stop last,
because the stop needs them. Source: BrokerController.java (RocketMQ 4.9.8), where a stop does not answer pending requests.
"""

import contextlib
import socket
import time
from collections.abc import AsyncIterator, Collection, Mapping

import structlog
import trio
from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.consume.long_polling import PullRequestHoldService
from twinlog.cluster.broker.consume.visibility import Queues
from twinlog.cluster.broker.delay.service import ScheduleMessageService
from twinlog.cluster.broker.filter.sql import prepare as prepare_sql
from twinlog.cluster.broker.group.group_view import GroupView
from twinlog.cluster.broker.group.lost_tables import LostTables
from twinlog.cluster.broker.group.registration import RegistrationService
from twinlog.cluster.broker.group.slave_sync import SlaveSynchronize
from twinlog.cluster.broker.peers.slave_peers import SlaveKinds, SlavePeers
from twinlog.cluster.broker.processors.member_check import MemberCheck
from twinlog.cluster.broker.processors.send import SEND_CODES, SendProcessor
from twinlog.cluster.broker.roles.effects import BrokerRoleEffects
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.cluster.broker.security.service import AclService
from twinlog.cluster.broker.settings import Settings, own_ip
from twinlog.cluster.broker.stats.rates import Throughput
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.status import BrokerStatus
from twinlog.cluster.broker.tables.tables import BrokerTables, SavedTable
from twinlog.cluster.broker.transactions.service import TransactionCheckService
from twinlog.cluster.broker.watchdog import Watchdog
from twinlog.cluster.config.group_secret import GroupSecrets
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.dispatch import Dispatcher
from twinlog.cluster.remoting.limits import Budget
from twinlog.cluster.remoting.member_auth import SIGNED_CODES
from twinlog.cluster.remoting.names import FAST_PORT_DISTANCE
from twinlog.cluster.remoting.request import Handler, Reply, Request
from twinlog.cluster.remoting.server import RemotingServer, open_listener
from twinlog.cluster.remoting.tls.renewed import ServerTls
from twinlog.ha.service import HAService
from twinlog.ha.slave.repair import RepairService
from twinlog.store.message_store import MessageStore

log = structlog.get_logger(__name__)

CLIENT_SCAN_SECONDS, SAMPLE_SECONDS = 10.0, 1.0
FIRST_OFFSET_FLUSH_SECONDS = 10.0
RECORD_CHECK_SECONDS = 0.1
UNREGISTER_SECONDS_MAX, STOP_SECONDS_MAX = 1.0, 20.0
FIND_MASTER_SECONDS_MAX = 1.0  # Longest wait for name servers before the broker serves.
OWN_HOST_SECONDS_MAX, OWN_HOST_RETRY_SECONDS = 10.0, 0.5
FINISH_SECONDS_MAX, PART_SECONDS_MAX, CHECK_SECONDS = 6.0, 0.25, 0.01  # syncFlushTimeout is 5 s, slaveTimeout 3 s.


@define(eq=False, kw_only=True, repr=False)
class Broker:
    """All parts of a broker, made by wiring.py, and their lifecycle.

    Only metrics and HTTP, which show all parts, get a Broker.
    """

    settings: Settings
    store: MessageStore
    tables: BrokerTables
    queues: Queues
    acl: AclService | None  # None: access control is off.
    secrets: GroupSecrets
    member_check: MemberCheck
    tls: ServerTls
    remoting: RemotingClient  # For requests to other members, name servers and clients.
    watchdog: Watchdog
    stats: BrokerStatsManager
    throughput: Throughput
    held_pulls: PullRequestHoldService
    gate: Gate
    group: GroupView
    registration: RegistrationService
    slave_peers: SlavePeers
    slave_kinds: SlaveKinds
    ha: HAService
    repair: RepairService
    schedule: ScheduleMessageService
    transactions: TransactionCheckService
    slave_sync: SlaveSynchronize
    lost_tables: LostTables
    roles: RoleService
    role_services: BrokerRoleEffects
    status: BrokerStatus
    send: SendProcessor
    main_port: Mapping[int, Handler]
    fast_port: Mapping[int, Handler]
    servers: list[RemotingServer] = field(factory=list, init=False)  # For the main port and the fast one.

    @property
    def config(self) -> BrokerConfig:
        """Configuration as it is now."""
        return self.settings.config

    @property
    def address(self) -> str:
        """Address for clients; final once the ports are bound."""
        return self.settings.address

    @property
    def is_slave(self) -> bool:
        """True while this broker is a slave."""
        return self.store.config.is_slave

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then stop cleanly; started() once the ports are bound.

        Raises StoreDirectoryError for tables or a store that cannot be opened, TlsFilesError for certificates, OSError
        for disk errors; an OSError for a port that cannot be bound is in an exception group.
        """
        self.tls.check()
        self.load_tables()
        if self.acl is not None:
            self.acl.load()
        await trio.to_thread.run_sync(self.store.load)
        try:
            await trio.to_thread.run_sync(self.tables.note, self._delays)  # The store is locked by now.
            self._load_role()
            async with self._background(), self._services():
                task_status.started()
                await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await self.store.close()
            if not (self.store.config.root.expanduser() / "abort").exists():
                with contextlib.suppress(OSError):  # The next start then treats it as a crash.
                    self.roles.member.durable.note_clean_stop()

    def _load_role(self) -> None:
        """Put the saved role into force. Raises StoreDirectoryError."""
        state = self.roles.member.load()
        self.slave_sync.master_offsets.epoch = self.roles.member.epochs()[-1].epoch
        if state is not None and self.queues.visibility is not None:
            self.queues.visibility.shown = min(state.told_confirmed, self.store.max_offset)

    @property
    def _delays(self) -> SavedTable:
        return SavedTable(self.schedule.file, self.schedule.merge, self.schedule.to_json)

    def load_tables(self) -> None:
        """Load the saved tables. Raises StoreDirectoryError."""
        for name in self.tables.load(self._delays):
            self.lost_tables.lost(name)

    @contextlib.asynccontextmanager
    async def _background(self) -> AsyncIterator[None]:
        """Run the store and outgoing connections, which stop last, after the last table is written."""
        scope = trio.CancelScope(shield=True)

        async def run_all(*, task_status: trio.TaskStatus[None]) -> None:
            with scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.watchdog.run)
                    await nursery.start(self.settings.hosts.run)
                    await nursery.start(self.store.run)
                    await nursery.start(self.remoting.run)
                    task_status.started()

        async with trio.open_nursery() as nursery:
            with trio.CancelScope(shield=True):  # Otherwise a stop while the store loads would hang:
                await nursery.start(run_all)  # trio starts no task in a cancelled scope, and ours is shielded.
            try:
                yield
            finally:
                try:
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_SECONDS_MAX):
                        await self._stop()
                finally:
                    scope.cancel()

    @contextlib.asynccontextmanager
    async def _services(self) -> AsyncIterator[None]:
        """Run everything else; at a stop until accepted requests are answered."""
        running: trio.Nursery | None = None

        async def run_all(*, task_status: trio.TaskStatus[None]) -> None:
            nonlocal running
            try:
                async with trio.open_nursery() as nursery:
                    await self._start(nursery)
                    running = nursery
                    nursery.cancel_scope.shield = True  # From now on only the code below stops the services.
                    task_status.started()
            finally:
                running = None  # All have ended, maybe by a failure: none can answer.

        async with trio.open_nursery() as outer:
            try:
                await outer.start(run_all)
                yield
            finally:
                if (services := running) is not None:
                    with trio.CancelScope(shield=True, deadline=trio.current_time() + FINISH_SECONDS_MAX):
                        await self._finish()
                    services.cancel_scope.cancel()

    async def _finish(self) -> None:
        """Answer accepted requests, and let clients leave."""
        for server in self.servers:
            server.stop_reading()
        self.gate.shut("this broker stops")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._unregister)
            nursery.start_soon(self._answered)
        for server in self.servers:
            await server.close_gently(PART_SECONDS_MAX)

    async def _answered(self) -> None:
        """Wait until no producer waits for slaves, disk, a topic's file or another member, and all responses are sent."""
        deadline = trio.current_time() + FINISH_SECONDS_MAX - PART_SECONDS_MAX * len(self.servers)
        with trio.move_on_at(deadline) as scope:
            while True:
                safe = self.ha.group_transfer.waiting or self.store.flusher.waiting or self.tables.topics_writer.waiting
                if not (safe or self.gate.forwarder.waiting):
                    break
                await trio.sleep(CHECK_SECONDS)
            for server in self.servers:
                await server.responses_sent()
        if scope.cancelled_caught:
            log.warning("not all requests were answered before the stop", seconds=FINISH_SECONDS_MAX)

    async def _unregister(self) -> None:
        if self.registration.registered.is_set():
            with trio.move_on_after(UNREGISTER_SECONDS_MAX):
                await self.registration.leave()

    async def _find_own_host(self) -> None:
        """Wait for the IP of the own host name, which messages get; not for ever, as clients elsewhere may know the name."""
        address, hosts = self.settings.address, self.settings.hosts
        await hosts.renew(address)
        if hosts.ips_of(address):
            return
        log.warning(
            "brokerIP1 is a host name that this machine cannot resolve",
            brokerIP1=self.config.broker_ip1,
            why=hosts.error_of(address),
            next=f"it is tried again for {OWN_HOST_SECONDS_MAX:.0f} s; then messages and their ids get this machine's own IP",
            own_ip=own_ip(),
        )
        with trio.move_on_after(OWN_HOST_SECONDS_MAX):
            while not hosts.ips_of(address):
                await trio.sleep(OWN_HOST_RETRY_SECONDS)
                await hosts.renew(address)

    async def _start(self, nursery: trio.Nursery) -> None:
        await self._find_own_host()
        host, port = self.settings.server_config.bind_address, self.config.listen_port
        with contextlib.ExitStack() as sockets:
            main = sockets.enter_context(_listen(host, port))
            fast = sockets.enter_context(_listen(host, port - FAST_PORT_DISTANCE if port else 0))
            ha_port = await nursery.start(self.ha.run)
            sockets.pop_all()  # From now on the servers close them.
        self.settings.set_ports(main.getsockname()[1], ha_port)
        if not self.is_slave and not self.config.name_servers:
            log.info(
                "namesrvAddr is not set: only slaves in haAllowedSlaves may follow",
                haAllowedSlaves=self.settings.ha_config.allowed_slaves or "none",
            )
        await nursery.start(self.role_services.tasks.run)
        await self.roles.rules.hear_group(self._registered_master)
        await self.lost_tables.take_at_start()
        await self.role_services.begin(self.roles.member.role_state())
        nursery.start_soon(self.roles.run)
        await self._serve(nursery, main, fast)
        nursery.start_soon(self.held_pulls.run)
        nursery.start_soon(self.gate.run)
        nursery.start_soon(self.registration.run)
        nursery.start_soon(self.roles.joining.run)
        nursery.start_soon(self._watch_record)
        if self.queues.visibility is not None:
            nursery.start_soon(self.queues.visibility.run)
        if self.acl is not None:
            nursery.start_soon(self.acl.run)
        nursery.start_soon(self.secrets.run)
        if self.settings.ha_config.repair_enable:
            nursery.start_soon(self.repair.run)
        nursery.start_soon(self._flush_offsets)
        nursery.start_soon(self.lost_tables.run)
        nursery.start_soon(self.tables.topics_writer.run)
        nursery.start_soon(self.tables.groups_writer.run)
        nursery.start_soon(self.tables.filters_writer.run)
        if self.config.enable_property_filter:
            nursery.start_soon(trio.to_thread.run_sync, prepare_sql)
        nursery.start_soon(self._watch_clients)
        nursery.start_soon(self._sample)

    async def _registered_master(self) -> str | None:
        with trio.move_on_after(FIND_MASTER_SECONDS_MAX):
            return await self.registration.find_master()
        return None

    async def _serve(self, nursery: trio.Nursery, main: socket.socket, fast: socket.socket) -> None:
        budget = Budget(self.settings.server_config.bytes_max)
        for table, listener in ((self.main_port, main), (self.fast_port, fast)):
            dispatcher = Dispatcher(
                table,
                self.settings.server_config,
                batch=self.send.process,
                batch_codes=SEND_CODES,
                before_batch=self.store.defer_dispatch,
                after_batch=self.store.dispatch_deferred,
                quick=self.send.templates.reader,
                check=self._check,
                check_codes=self._check_codes,
            )
            server = RemotingServer(dispatcher, self.settings.server_config, self.tls, budget)
            self.servers.append(server)
            await nursery.start(server.serve, listener)

    @property
    def _check_codes(self) -> Collection[int] | None:
        return SIGNED_CODES if self.acl is None else None

    def _check(self, request: Request) -> Reply | None:
        """Check a member's signature, then that of an account, which does not cover the first."""
        refused = self.member_check.check(request) if request.command.code in SIGNED_CODES else None
        if refused is None and self.acl is not None:
            return self.acl.check(request.connection, request.command)
        return refused

    async def _stop(self) -> None:
        """Unregister, and save what the next start needs."""
        await self._unregister()
        if not self.is_slave:
            await self.store.flush()  # The file may only have offsets that are on disk.
            self.schedule.confirm()
            await self.schedule.flush()
        tables = self.tables
        tables.note_offsets()
        for writer in (tables.topics_writer, tables.groups_writer, tables.offsets_writer, tables.filters_writer):
            with contextlib.suppress(OSError):  # It was logged.
                await writer.save()

    # Periodic tasks

    async def _flush_offsets(self) -> None:
        await trio.sleep(FIRST_OFFSET_FLUSH_SECONDS)
        while True:
            self.tables.note_offsets()
            with contextlib.suppress(OSError):  # It was logged, and the next save retries.
                await self.tables.offsets_writer.save()
            await trio.sleep(self.config.flush_consumer_offset_interval_ms / 1000)

    async def _watch_clients(self) -> None:
        """Remove clients without heartbeats, and close connections without clients."""
        while True:
            await trio.sleep(CLIENT_SCAN_SECONDS)
            consumers, producers = self.tables.consumers, self.tables.producers
            for connection in consumers.expire() | producers.expire():
                if not consumers.has(connection) and not producers.has(connection):
                    connection.close()
            self.tables.locks.expire()
            self.tables.filters.clean(self.config.filter_data_clean_time_span_ms)

    async def _watch_record(self) -> None:
        """Count acknowledgements by a changed record once it is in force."""
        before = self.roles.counted_members()
        while True:
            await trio.sleep(RECORD_CHECK_SECONDS)
            if (now := self.roles.counted_members()) != before:
                before = now
                self.ha.members_changed(self.group.counted_slaves())

    async def _sample(self) -> None:
        while True:
            day = time.localtime(self.store.now_ms() / 1000).tm_yday
            self.throughput.sample(trio.current_time(), day, self.store.put_counts)
            self.stats.sample(trio.current_time())
            self.store.put_times.rotate(trio.current_time())
            self.ha.group_transfer.waits.look(trio.current_time())
            await trio.sleep(SAMPLE_SECONDS)


def _listen(host: str, port: int) -> socket.socket:
    """Bind a port, any with 0. Raises OSError with the port."""
    try:
        return open_listener(host, port)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {host}:{port}") from error
