"""What a broker consists of: its configuration, tables and services, for handlers to work with.

Whoever starts and stops all this is cluster/broker/broker.py. Source: BrokerController.java (RocketMQ 4.9.8).
"""

from collections.abc import Callable
from pathlib import Path

import attrs
import trio
from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig, MessageVisibility
from twinlog.cluster.broker.consume.long_polling import SCAN_SECONDS, SCAN_SECONDS_SHORT_POLLING, PullRequestHoldService
from twinlog.cluster.broker.consume.offset_moved import OffsetMovedEvents
from twinlog.cluster.broker.consume.visibility import Visibility
from twinlog.cluster.broker.delay.service import ScheduleMessageService
from twinlog.cluster.broker.group.group_view import GroupView, is_replicated, saved_role, under_role
from twinlog.cluster.broker.group.lost_tables import LostTables
from twinlog.cluster.broker.group.registration import Master, RegistrationService
from twinlog.cluster.broker.group.slave_sync import SlaveSynchronize
from twinlog.cluster.broker.machine import machine_boot_id, own_ip, wall_clock_ms
from twinlog.cluster.broker.peers.client_calls import ClientCalls
from twinlog.cluster.broker.peers.ha_peer import Peers, RemotingCalls, RemotingPeer
from twinlog.cluster.broker.peers.slave_peers import SlaveKinds, SlavePeers
from twinlog.cluster.broker.roles.effects import BrokerRoleEffects
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.broker.security.service import AclService, acl_service
from twinlog.cluster.broker.stats.rates import DailyTotals, PullCounters, Rates
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.tables import BrokerTables
from twinlog.cluster.broker.transactions.check import CheckRules
from twinlog.cluster.broker.transactions.service import TransactionCheckService
from twinlog.cluster.broker.watchdog import Watchdog
from twinlog.cluster.remoting.client import RemotingClient, tls_connect
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.names import DataVersion
from twinlog.cluster.remoting.signing import make_signer
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.cluster.remoting.tls.contexts import ServerTls, client_context
from twinlog.ha.config import HAConfig
from twinlog.ha.election.epochs import confirmed_in
from twinlog.ha.service import HAService
from twinlog.ha.slave.repair import RepairService
from twinlog.store.config import BrokerRole
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.record.message import decode_message

HA_PORT_DISTANCE = 1  # Above the main port.


NOT_ON_A_SLAVE = "Can't modify topic or subscription group from slave broker, please execute it from master broker."


def _is_idle(connection: Connection) -> bool:
    return not connection.closed and not connection.unsent_bytes


@define(eq=False)
class BrokerParts(BrokerTables):
    """Handlers reach everything through this. `address` is final once the ports are bound."""

    ha_config: HAConfig = field(factory=HAConfig)
    server_config: ServerConfig = field(factory=ServerConfig)
    acl_config: AclConfig = field(factory=AclConfig)
    config_file: Path | None = field(default=None, kw_only=True)  # Where changes over the network are kept.
    tls_config: TlsConfig = field(factory=TlsConfig)

    address: str = field(default="", init=False)  # What clients are told.
    ha_address: str = field(default="", init=False)  # What slaves are told.
    started_ms: int = field(factory=wall_clock_ms, init=False)
    config_version: DataVersion = field(factory=lambda: DataVersion(wall_clock_ms()), init=False)
    config_lock: trio.Lock = field(factory=trio.Lock, init=False)  # Held while the configuration changes.
    on_config_change: list[Callable[[], None]] = field(factory=list, init=False)  # For those that keep a copy.

    acl: AclService | None = field(default=None, init=False)  # None: all are allowed everything.
    tls: ServerTls = field(init=False)
    store: MessageStore = field(init=False)
    watchdog: Watchdog = field(init=False)
    ha: HAService = field(init=False)
    repair: RepairService = field(init=False)
    held_pulls: PullRequestHoldService = field(init=False)
    visibility: Visibility | None = field(default=None, init=False)  # None: consumers are shown all.
    gate: Gate = field(init=False)
    schedule: ScheduleMessageService = field(init=False)
    transactions: TransactionCheckService = field(init=False)
    client_calls: ClientCalls = field(factory=ClientCalls, init=False)
    remoting: RemotingClient = field(factory=RemotingClient, init=False)
    registration: RegistrationService = field(init=False)
    peers: Peers = field(init=False)  # For replication, to ask other members.
    slave_peers: SlavePeers = field(init=False)
    slave_sync: SlaveSynchronize = field(init=False)
    slave_kinds: SlaveKinds = field(init=False)
    offset_moved: OffsetMovedEvents = field(factory=OffsetMovedEvents, init=False)
    pulls: PullCounters = field(factory=PullCounters, init=False)
    stats: BrokerStatsManager = field(init=False)
    rates: Rates = field(factory=Rates, init=False)
    puts_by_day: DailyTotals = field(factory=DailyTotals, init=False)
    gets_by_day: DailyTotals = field(factory=DailyTotals, init=False)
    group: GroupView = field(init=False)
    lost_tables: LostTables = field(init=False)
    roles: RoleService = field(init=False)
    role_services: BrokerRoleEffects = field(init=False)
    _watched: set[Connection] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.group, self.lost_tables = GroupView(self), LostTables(self)
        self.acl = acl_service(self.acl_config, self.now_ms)
        if (own := self.acl_config.own) is not None:
            self.remoting.sign = make_signer(own)
        ip = self.config.broker_ip1 or own_ip()
        config = attrs.evolve(self.config, broker_ip1=ip, broker_ip2=self.config.broker_ip2 or ip)
        state = saved_role(config, self.store_config)
        config, self.store_config, self.ha_config = under_role(state, config, self.store_config, self.ha_config)
        self.config = config
        if not self.ha_config.listen_port and config.listen_port:
            self.ha_config = attrs.evolve(self.ha_config, listen_port=config.listen_port + HA_PORT_DISTANCE)
        self.set_addresses(config.listen_port, self.ha_config.listen_port)
        self.store = MessageStore(self.store_config, is_replicated=is_replicated(state))
        self.stats = BrokerStatsManager(
            config.broker_cluster_name, lambda: self.store.queues(), takes_puts=lambda: not self.is_slave
        )
        self.watchdog = Watchdog(lambda: self.store.flusher.busy_since, on_stall=self.group.stalled)
        self.make_tables()
        self.held_pulls = PullRequestHoldService(
            now=trio.current_time,
            max_offset=self.shown_end,
            scan_seconds=SCAN_SECONDS if config.long_polling_enable else SCAN_SECONDS_SHORT_POLLING,
            any_accepted=self.store.any_accepted,
        )
        self.tls = ServerTls(self.tls_config)
        self.gate = Gate(lambda: self.roles.member.role_state())
        if self.acl is not None:  # Only what was checked here may go under this member's name.
            self.gate.forwarder.sign = self.remoting.sign
        self._use_tls()
        self._show(config.visibility)
        self._make_services(config)
        self.store.on_truncate.append(lambda _: self.offsets.lower(self.queue_end))
        self.store.hooks.retention_floor = self.ha.lowest_needed
        self.store.hooks.soft_retention_floor = self.ha.disconnected_slaves.floor
        self.store.retention.shortened.append(self.ha.disconnected_slaves.shortened)

    def _use_tls(self) -> None:
        """For what this broker asks others. Raises TlsFilesError."""
        if self.tls_config.is_client:
            context = client_context(self.tls_config)
            self.remoting.tls = context
            self.gate.forwarder.connect = tls_connect(context)

    def _show(self, wanted: MessageVisibility) -> None:
        """Let consumers see messages from when on they may."""
        self.store.on_dispatched.append(self.held_pulls.run_ready)
        if wanted is MessageVisibility.all:
            self.store.on_arrival.append(self.held_pulls.on_arrival)
            return
        self.visibility = Visibility(
            store=self.store,
            confirmed=self.group.confirmed_for_consumers,
            arrived=self.held_pulls.on_arrival,
            all_arrived=self.held_pulls.run_ready,
        )
        self.store.hooks.dispatch_limit = self.visibility.limit
        self.store.on_arrival.append(self.visibility.on_arrival)
        self.store.on_truncate.append(self.visibility.truncated)

    def _peers_for_repair(self) -> list[RemotingPeer]:
        """Who may have what this log lost."""
        master = self.master.address
        addresses = [master] if self.is_slave else sorted(self.group.slave_addresses())
        return [RemotingPeer(address, self.remoting) for address in addresses if address]

    def queue_end(self, topic: str, queue_id: int) -> int:
        """The offset of a queue's next message."""
        return self.store.queue(topic, queue_id).max_offset

    def shown_end(self, topic: str, queue_id: int) -> int:
        """The same for consumers, who may not be shown all."""
        queue = self.store.queue(topic, queue_id)
        return queue.max_offset if self.visibility is None else self.visibility.queue_end(queue)

    def set_addresses(self, port: int, ha_port: int) -> None:
        self.address = f"{self.config.broker_ip1}:{port}"
        self.ha_address = f"{self.config.broker_ip2}:{ha_port}"

    def _make_services(self, config: BrokerConfig) -> None:
        self.peers = Peers(
            self.remoting,
            lambda: self.master,
            heard=lambda told: self.roles.member.heard(told),
            ha_end=lambda: self.ha.client.fresh_address,
        )
        self.slave_peers = SlavePeers(
            self.remoting,
            self.group.slave_addresses,
            lambda: self.registration.ask_members(),
            self.group.behind_ha_ip,
            lambda end: self.ha.has_end(end),
        )
        self.ha = HAService(
            self.store,
            self.ha_config,
            self.group.counted_slaves,
            lambda: self.registration.ask_members(),
            welcome=self.group.welcome_slaves,
            peer_of=self.peers.peer_of,
            find_slave=self.slave_peers.find,
        )
        self.repair = RepairService(self.store, self._peers_for_repair)
        self.schedule = ScheduleMessageService(
            store=self.store,
            file=self.known_file("delayOffset.json"),
            levels_ms=self.store.delays_ms,
            now_ms=self.now_ms,
            confirmed_offset=self.confirmed_offset,
            delivered=self.stats.delivered,
            flush_interval_ms=config.flush_delay_offset_interval_ms,
        )
        self.transactions = TransactionCheckService(
            store=self.store,
            offsets=self.offsets,
            topics=self.topics,
            rules=CheckRules(
                timeout_ms=config.transaction_timeout_ms,
                check_max=config.transaction_check_max,
                reserved_ms=self.store_config.file_reserved_time_hours * 3_600_000,
            ),
            interval_ms=config.transaction_check_interval_ms,
            now_ms=self.now_ms,
            producer_of=lambda group: self.producers.next_of(group, _is_idle),
            flush=self.store.flush,
        )
        self.slave_sync = SlaveSynchronize(
            client=self.remoting,
            topics=self.topics,
            topics_writer=self.topics_writer,
            groups=self.groups,
            groups_writer=self.groups_writer,
            offsets=self.offsets,
            offsets_writer=self.offsets_writer,
            schedule=self.schedule,
            epoch=self.group.epoch_followed,
        )
        if self.is_slave:
            self.store.on_arrival.append(self.slave_sync.on_arrival)
        self.slave_kinds = SlaveKinds(self.remoting, self.group.slave_addresses)
        self.role_services = BrokerRoleEffects(self)
        member = Member(
            side=self.side_directory,
            me=self.group.me,
            store=self.store,
            ha=self.ha,
            calls=RemotingCalls(self.remoting),
            effects=self.role_services,
            config=self.ha_config,
            now_ms=self.now_ms,
            boot_id=machine_boot_id,
            boot_ms=self.started_ms,
            shown_offset=lambda: self.visibility.shown if self.visibility is not None else 0,
        )
        self.roles = RoleService(member, has_name_servers=bool(config.name_servers))
        self.make_registration()

    def make_registration(self) -> None:
        self.registration = RegistrationService(
            config=self.config,
            client=self.remoting,
            topics=self.topics,
            address=self.address,
            ha_address=self.ha_address,
            is_slave=self.is_slave,
            master_changed=self._master_changed,
            members_changed=lambda _ips: self.ha.members_changed(self.group.counted_slaves()),
            has_unregistered=lambda: self.ha.connection_admission.has_unregistered,
            found_members=self.roles.joining.registered,
            may_be_none=lambda: not self.ha.lease.held(trio.current_time()),
        )

    # What handlers ask

    @property
    def is_slave(self) -> bool:
        return self.store.config.broker_role is BrokerRole.SLAVE

    @property
    def why_tables_stay(self) -> str:
        """Why topics and groups cannot be changed here: they are another member's, or about to be. Empty: they can."""
        if self.is_slave:
            return NOT_ON_A_SLAVE
        return "" if self.gate.state == "open" else f"Not now, try again: {self.gate.why}."

    def confirmed_offset(self) -> int:
        """Where in the log what producers were promised ends: a SYNC_MASTER promises what enough slaves hold."""
        end = self.store.max_offset
        if self.store.config.broker_role is BrokerRole.SYNC_MASTER:
            return confirmed_in(self.ha.role.epochs(), self.ha.group_transfer.confirmed_offset, end)
        return end

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue that the topic has; None for others, so that questions about made-up ones leave nothing behind."""
        config = self.topics.select(topic)
        if config is not None and 0 <= queue_id < max(config.read_queues, config.write_queues):
            return self.store.queue(topic, queue_id)
        known = (queue for name, number, queue in self.store.queues() if (name, number) == (topic, queue_id))
        return next(known, None)

    def earliest_message_ms(self) -> int:
        """When the first message of the log was stored; -1 for none."""
        record = self.store.message_at(self.store.min_offset)
        return decode_message(record, check_crc=False).store_timestamp if record is not None else -1

    def watch(self, connection: Connection) -> None:
        """Forget all about this connection once it closes."""
        if connection.closed:
            self._connection_closed(connection)
        elif connection not in self._watched:
            self._watched.add(connection)
            connection.on_close.append(self._connection_closed)

    def _connection_closed(self, connection: Connection) -> None:
        self._watched.discard(connection)
        self.held_pulls.connection_closed(connection)
        self.consumers.connection_closed(connection)
        self.producers.connection_closed(connection)

    @property
    def master(self) -> Master:
        """Who is followed: where roles are recorded these say it, elsewhere name servers."""
        return self.role_services.master or self.registration.master

    def set_broker_id(self, broker_id: int) -> None:
        """Be this one from now on."""
        self.config = attrs.evolve(self.config, broker_id=broker_id)

    def _master_changed(self, master: Master) -> None:
        if self.role_services.master is not None:
            return
        if master.ha_address and not self.ha_config.master_address:
            self.ha.set_master(master.ha_address)
        self.slave_sync.set_master(master.address if master.address != self.address else None)

    def topic_changed(self, topic: str) -> None:
        """Name servers hear of it soon."""
        BrokerTables.topic_changed(self, topic)
        self.registration.topics_changed()
