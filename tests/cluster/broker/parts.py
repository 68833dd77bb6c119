"""Real parts for processors, without a broker: a store, its tables and settings; no network, no services."""

from collections.abc import Mapping
from pathlib import Path

import trio
from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.consume.long_polling import PullRequestHoldService
from twinlog.cluster.broker.consume.queues import Queues
from twinlog.cluster.broker.peers.client_calls import ClientCalls
from twinlog.cluster.broker.processors.clients import ClientProcessor
from twinlog.cluster.broker.processors.digests import DigestProcessor
from twinlog.cluster.broker.processors.offset import OffsetProcessor
from twinlog.cluster.broker.processors.pull import PullProcessor
from twinlog.cluster.broker.processors.query import QueryProcessor
from twinlog.cluster.broker.processors.reply import ReplyProcessor
from twinlog.cluster.broker.processors.send_back import SendBackProcessor
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.send.requests import SendRequests
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.rates import PullCounters
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.tables.clients import ClientConnections
from twinlog.cluster.broker.tables.tables import BrokerTables
from twinlog.cluster.remoting.request import Handler, handlers_of
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

    # Processors of these parts

    def clients(self) -> ClientProcessor:
        return ClientProcessor(self.settings, self.store, self.tables, self.connections, ClientCalls(), self.gate)

    def digests(self) -> DigestProcessor:
        return DigestProcessor(self.store)

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
            pulls=PullCounters(),
            stats=self.stats,
            connections=self.connections,
            gate=self.gate,
            commits=self.offset(),
        )

    def query(self) -> QueryProcessor:
        return QueryProcessor(self.store, self.tables.consumers, self.tables.filters, self.queues)

    def reply(self) -> ReplyProcessor:
        tables = self.tables
        requests = SendRequests(self.settings, self.store, tables.topics, tables.groups, self.stats, self.gate)
        return ReplyProcessor(self.settings, self.store, requests, tables.producers, ClientCalls(), self.gate)

    def send_back(self) -> SendBackProcessor:
        tables = self.tables
        return SendBackProcessor(self.settings, self.store, tables.topics, tables.groups, self.stats, self.gate)


def make_parts(root: Path, role: BrokerRole = BrokerRole.ASYNC_MASTER, **options: object) -> Parts:
    """With small files, as the broker of helpers.py; `options` are BrokerConfig's."""
    config = BrokerConfig(
        broker_name="broker-a", broker_ip1="127.0.0.1", broker_ip2="127.0.0.1", listen_port=10911, **options
    )
    store = StoreConfig(
        root=root,
        broker_role=role,
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    return Parts(Settings(config=config), MessageStore(store))
