"""Real parts for processors, without a broker: a store, its tables and settings; no network, and no service runs."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import trio
from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.consume.long_polling import PullRequestHoldService
from twinlog.cluster.broker.consume.visibility import Queues
from twinlog.cluster.broker.delay.service import ScheduleMessageService
from twinlog.cluster.broker.group.group_view import GroupView
from twinlog.cluster.broker.group.lost_tables import LostTables
from twinlog.cluster.broker.group.registration import RegistrationService
from twinlog.cluster.broker.peers.client_calls import ClientCalls
from twinlog.cluster.broker.peers.etcd_check import EtcdCheck
from twinlog.cluster.broker.peers.ha_peer import RemotingCalls
from twinlog.cluster.broker.peers.reach import Reach
from twinlog.cluster.broker.peers.slave_peers import SlaveKinds
from twinlog.cluster.broker.processors.broker_admin import BrokerAdminProcessor
from twinlog.cluster.broker.processors.clients import ClientProcessor
from twinlog.cluster.broker.processors.digests import DigestProcessor
from twinlog.cluster.broker.processors.group_admin import GroupAdminProcessor
from twinlog.cluster.broker.processors.offset import OffsetProcessor
from twinlog.cluster.broker.processors.pull import PullProcessor
from twinlog.cluster.broker.processors.query import QueryProcessor
from twinlog.cluster.broker.processors.reply import ReplyProcessor
from twinlog.cluster.broker.processors.send import SendProcessor
from twinlog.cluster.broker.processors.send_back import SendBackProcessor
from twinlog.cluster.broker.processors.topic_admin import TopicAdminProcessor
from twinlog.cluster.broker.processors.transactions import TransactionProcessor
from twinlog.cluster.broker.reconfigure import Reconfiguration
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.cluster.broker.send.requests import SendRequests
from twinlog.cluster.broker.settings import Settings, machine_boot_id, wall_clock_ms
from twinlog.cluster.broker.stats.rates import Throughput
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.status import BrokerStatus
from twinlog.cluster.broker.tables.clients import ClientConnections
from twinlog.cluster.broker.tables.tables import DELAYS, BrokerTables
from twinlog.cluster.broker.transactions.records import CheckRules
from twinlog.cluster.broker.transactions.service import TransactionCheckService
from twinlog.cluster.broker.watchdog import Watchdog
from twinlog.cluster.config.group_secret import GroupSecrets
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.request import Handler, handlers_of
from twinlog.ha.config import HAConfig
from twinlog.ha.service import HAService
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.message_store import MessageStore


@define(eq=False, repr=False)
class Parts:
    """Named as a Broker names them, so that a Client can call the handlers of the processors in `main_port`."""

    settings: Settings
    store: MessageStore
    tables: BrokerTables = field(init=False)
    queues: Queues = field(init=False)
    stats: BrokerStatsManager = field(init=False)
    throughput: Throughput = field(factory=Throughput, init=False)
    held_pulls: PullRequestHoldService = field(init=False)
    connections: ClientConnections = field(init=False)
    gate: Gate = field(factory=Gate)
    main_port: Mapping[int, Handler] = field(factory=dict, init=False)

    def __attrs_post_init__(self):
        self.tables = BrokerTables(self.settings.config, self.store.config.root)
        self.queues = Queues(self.store, self.tables.topics)
        self.stats = BrokerStatsManager(self.settings.config.broker_cluster_name, self.store.queues)
        self.held_pulls = PullRequestHoldService(
            now=trio.current_time,
            max_offset=self.queues.shown_end,
            long_polling=self.settings.config.long_polling_enable,
            any_accepted=self.store.any_accepted,
        )
        self.store.on_arrival.append(self.held_pulls.on_arrival)
        self.store.on_dispatched.append(self.held_pulls.run_ready)
        owners = self.tables.consumers, self.tables.producers, self.held_pulls
        self.connections = ClientConnections(tuple(each.connection_closed for each in owners))

    def serve(self, *processors: object) -> "Parts":
        """Let clients call these."""
        self.main_port = handlers_of(*processors)
        return self

    # Parts of the processors for administrators and members, made when one needs them

    @cached_property
    def remoting(self) -> RemotingClient:
        return RemotingClient()

    @cached_property
    def group(self) -> GroupView:
        """With replication and roles, which know each other in a circle; alone, without name servers."""
        group, store, ha_config = GroupView(self.settings, self.store), self.store, self.settings.ha_config
        group.registration = RegistrationService(
            settings=self.settings,
            client=self.remoting,
            topics=self.tables.topics,
            is_slave=store.config.is_slave,
            listener=group,
        )
        group.ha = HAService(store, ha_config, group.counted_slaves, group.registration.ask_members)
        member = Member(
            side=self.tables.side_directory,
            described=group.me,
            store=store,
            ha=group.ha,
            calls=RemotingCalls(self.remoting),
            effects=None,  # No role is taken.
            config=ha_config,
            now_ms=wall_clock_ms,
            boot_id=machine_boot_id,
            locks=self.tables.locks,
        )
        group.roles = RoleService(member)
        return group

    @property
    def ha(self) -> HAService:
        return self.group.ha

    @cached_property
    def schedule(self) -> ScheduleMessageService:
        return ScheduleMessageService(
            store=self.store,
            file=self.tables.known_file(DELAYS),
            levels_ms=self.store.delays_ms,
            now_ms=wall_clock_ms,
            confirmed_offset=lambda: self.store.max_offset,
        )

    @cached_property
    def lost_tables(self) -> LostTables:
        return LostTables(self.tables, self.store, self.schedule, self.queues, self.group, self.gate, self.remoting)

    @cached_property
    def slave_kinds(self) -> SlaveKinds:
        return SlaveKinds(self.remoting, self.group.slave_addresses)

    @cached_property
    def status(self) -> BrokerStatus:
        return BrokerStatus(
            settings=self.settings,
            store=self.store,
            ha=self.ha,
            roles=self.group.roles,
            group=self.group,
            gate=self.gate,
            lost_tables=self.lost_tables,
            schedule=self.schedule,
            slave_kinds=self.slave_kinds,
            stats=self.stats,
            throughput=self.throughput,
            watchdog=Watchdog(lambda: self.store.flusher.busy_since),
            acl=None,
            client=self.remoting,
            secrets=GroupSecrets.load(None),
        )

    @cached_property
    def send_requests(self) -> SendRequests:
        tables = self.tables
        return SendRequests(self.settings, self.store, tables.topics, tables.groups, self.stats, self.gate)

    # Processors of these parts

    def broker_admin(self) -> BrokerAdminProcessor:
        """With a service of its own that its changes reach; see test_wiring.py for those of a broker."""
        settings, store, tables = self.settings, self.store, self.tables
        transactions = TransactionCheckService(
            store=store,
            tables=tables,
            rules=CheckRules.of(settings.config, store.config),
            interval_ms=settings.config.transaction_check_interval_ms,
            now_ms=wall_clock_ms,
        )
        changes = Reconfiguration(settings, store, tables, self.schedule, transactions, self.held_pulls)
        return BrokerAdminProcessor(
            settings,
            store,
            tables.topics,
            self.stats,
            self.ha,
            self.status,
            changes,
            Reach(tuple, None),
            EtcdCheck(settings.etcd_config),
        )

    def clients(self) -> ClientProcessor:
        locks = self.group.roles.locks
        return ClientProcessor(
            self.settings, self.store, self.tables, self.connections, ClientCalls(), self.gate, locks
        )

    def digests(self) -> DigestProcessor:
        return DigestProcessor(self.store)

    def group_admin(self) -> GroupAdminProcessor:
        shown = self.stats, self.queues, self.schedule, self.lost_tables
        return GroupAdminProcessor(self.settings, self.store, self.tables, *shown, self.gate)

    def offset(self) -> OffsetProcessor:
        tables = self.tables
        kept = tables.topics, tables.groups, tables.offsets, tables.consumers
        return OffsetProcessor(self.settings, self.store, *kept, self.queues, self.gate)

    def pull(self) -> PullProcessor:
        tables = self.tables
        return PullProcessor(
            settings=self.settings,
            store=self.store,
            topics=tables.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            consumers=tables.consumers,
            filters=tables.filters,
            queues=self.queues,
            held_pulls=self.held_pulls,
            pulls=self.throughput.pulls,
            stats=self.stats,
            connections=self.connections,
            gate=self.gate,
            commits=self.offset(),
        )

    def query(self) -> QueryProcessor:
        return QueryProcessor(self.store, self.tables.consumers, self.tables.filters, self.queues)

    def reply(self) -> ReplyProcessor:
        producers = self.tables.producers
        return ReplyProcessor(self.settings, self.store, self.send_requests, producers, ClientCalls(), self.gate)

    def send(self) -> SendProcessor:
        transfer, writer = self.ha.group_transfer, self.tables.topics_writer
        return SendProcessor(self.settings, self.store, self.send_requests, transfer, writer, self.stats, self.gate)

    def send_back(self) -> SendBackProcessor:
        tables = self.tables
        return SendBackProcessor(self.settings, self.store, tables.topics, tables.groups, self.stats, self.gate)

    def topic_admin(self) -> TopicAdminProcessor:
        shown = self.stats, self.queues, self.group.registration, self.lost_tables
        return TopicAdminProcessor(self.settings, self.store, self.tables, *shown, self.gate)

    def transactions(self) -> TransactionProcessor:
        return TransactionProcessor(self.settings, self.store, self.ha.group_transfer, self.gate)


def make_parts(
    root: Path,
    role: BrokerRole = BrokerRole.ASYNC_MASTER,
    *,
    store: Mapping[str, object] | None = None,
    **options: object,
) -> Parts:
    """With small files, as the broker of helpers.py; `options` are BrokerConfig's, `store` has more of StoreConfig's."""
    config = BrokerConfig(
        broker_name="broker-a", broker_ip1="127.0.0.1", broker_ip2="127.0.0.1", listen_port=10911, **options
    )
    small = {
        "mapped_file_size_commit_log": 1 << 20,
        "mapped_file_size_consume_queue": 2000,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
    }
    store_config = StoreConfig(root=root, broker_role=role, **{**small, **(store or {})})
    settings = Settings(config=config, ha_config=HAConfig(listen_port=10912))
    return Parts(settings, MessageStore(store_config))
