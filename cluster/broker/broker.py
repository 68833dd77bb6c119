"""One broker: its tables, its services, and how they start and stop together.

    run:   load store and tables -> bind both ports -> HA -> serve -> register; started() once the ports are bound
    stop:  no more requests -> unregister -> tables written -> store closed

Store and outgoing connections outlive the rest, because stopping needs them. Source: BrokerController.java (RocketMQ 4.9.8).
"""

import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable

import attrs
import psutil
import structlog
import trio
from attrs import define, field

from cluster.broker import runtime_info
from cluster.broker.config import BrokerConfig
from cluster.broker.consumer_manager import ConsumerManager, ProducerManager
from cluster.broker.consumer_offset import ConsumerOffsetManager
from cluster.broker.delay import ScheduleMessageService
from cluster.broker.json_file import JsonFile
from cluster.broker.lock_manager import RebalanceLockManager
from cluster.broker.long_polling import SCAN_SECONDS, SCAN_SECONDS_SHORT_POLLING, PullRequestHoldService
from cluster.broker.processors.send import SEND_CODES, SendProcessor
from cluster.broker.rates import DailyTotals, PullCounters, Rates
from cluster.broker.registration import Master, RegistrationService
from cluster.broker.slave_sync import SlaveSynchronize
from cluster.broker.subscription_group import SubscriptionGroupManager
from cluster.broker.topic_config import TopicConfigManager, built_in_topics
from cluster.remoting import fastjson
from cluster.remoting.client import RemotingClient
from cluster.remoting.command import ONEWAY, RemotingCommand
from cluster.remoting.config import ServerConfig
from cluster.remoting.connection import Connection
from cluster.remoting.headers import NotifyConsumerIdsChanged, encode_header_fields
from cluster.remoting.server import RemotingServer, open_listener
from ha.config import HAConfig
from ha.service import HAService
from store.config import BrokerRole, StoreConfig
from store.consume_queue import ConsumeQueue
from store.message import decode_message
from store.message_store import MessageStore

log = structlog.get_logger(__name__)

FAST_PORT_DISTANCE, HA_PORT_DISTANCE = 2, 1  # Below and above the main port.
CLIENT_SCAN_SECONDS, SAMPLE_SECONDS = 10.0, 1.0
FIRST_OFFSET_FLUSH_SECONDS = 10.0
STOP_SECONDS_MAX = 20.0


def own_ip() -> str:
    """This machine's first IPv4 address that others may reach; 127.0.0.1 when there is none."""
    states = psutil.net_if_stats()
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        for address in addresses:
            if address.family == socket.AF_INET and not address.address.startswith("127.") and states[name].isup:
                return str(address.address)
    return "127.0.0.1"


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@define(eq=False)
class Broker:
    """Handlers reach everything through this. `address` is final once the ports are bound."""

    config: BrokerConfig
    store_config: StoreConfig
    ha_config: HAConfig = field(factory=HAConfig)
    server_config: ServerConfig = field(factory=ServerConfig)

    address: str = field(default="", init=False)  # What clients are told.
    ha_address: str = field(default="", init=False)  # What slaves are told.
    started_ms: int = field(factory=wall_clock_ms, init=False)
    stopping: bool = field(default=False, init=False)

    store: MessageStore = field(init=False)
    ha: HAService = field(init=False)
    topics: TopicConfigManager = field(init=False)
    groups: SubscriptionGroupManager = field(init=False)
    offsets: ConsumerOffsetManager = field(factory=ConsumerOffsetManager, init=False)
    consumers: ConsumerManager[Connection] = field(init=False)
    producers: ProducerManager[Connection] = field(init=False)
    held_pulls: PullRequestHoldService = field(init=False)
    locks: RebalanceLockManager = field(init=False)
    schedule: ScheduleMessageService = field(init=False)
    remoting: RemotingClient = field(factory=RemotingClient, init=False)
    registration: RegistrationService = field(init=False)
    slave_sync: SlaveSynchronize = field(init=False)
    send: SendProcessor = field(init=False)
    pulls: PullCounters = field(factory=PullCounters, init=False)
    rates: Rates = field(factory=Rates, init=False)
    puts_by_day: DailyTotals = field(factory=DailyTotals, init=False)
    gets_by_day: DailyTotals = field(factory=DailyTotals, init=False)
    topics_file: JsonFile = field(init=False)
    groups_file: JsonFile = field(init=False)
    offsets_file: JsonFile = field(init=False)
    _watched: set[Connection] = field(factory=set, init=False)
    _failing_files: set[str] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        config = self.config
        ip = config.broker_ip1 or own_ip()
        self.config = config = attrs.evolve(config, broker_ip1=ip, broker_ip2=config.broker_ip2 or ip)
        if not self.ha_config.listen_port and config.listen_port:
            self.ha_config = attrs.evolve(self.ha_config, listen_port=config.listen_port + HA_PORT_DISTANCE)
        self._set_addresses(config.listen_port, self.ha_config.listen_port)
        self.store = MessageStore(self.store_config)
        self._make_tables(config)
        self.held_pulls = PullRequestHoldService(
            now=trio.current_time,
            max_offset=lambda topic, queue_id: self.store.queue(topic, queue_id).max_offset,
            scan_seconds=SCAN_SECONDS if config.long_polling_enable else SCAN_SECONDS_SHORT_POLLING,
        )
        self.store.on_arrival.append(self.held_pulls.on_arrival)
        self._make_services(config)

    def _set_addresses(self, port: int, ha_port: int) -> None:
        self.address = f"{self.config.broker_ip1}:{port}"
        self.ha_address = f"{self.config.broker_ip2}:{ha_port}"

    def _make_tables(self, config: BrokerConfig) -> None:
        directory = self.store_config.root.expanduser() / "config"
        self.topics_file = JsonFile(directory / "topics.json")
        self.groups_file = JsonFile(directory / "subscriptionGroup.json")
        self.offsets_file = JsonFile(directory / "consumerOffset.json")
        self.topics = TopicConfigManager(
            self.now_ms, auto_create=config.auto_create_topic_enable, changed=self._topic_changed
        )
        self.topics.add_built_in(
            built_in_topics(
                cluster_name=config.broker_cluster_name,
                broker_name=config.broker_name,
                default_queues=config.default_topic_queues,
                auto_create=config.auto_create_topic_enable,
                cluster_topic=config.cluster_topic_enable,
                broker_topic=config.broker_topic_enable,
                trace_topic=config.msg_trace_topic_name if config.trace_topic_enable else None,
            )
        )
        self.groups = SubscriptionGroupManager(
            self.now_ms, auto_create=config.auto_create_subscription_group, changed=self._group_changed
        )
        self.consumers = ConsumerManager(trio.current_time, self._notify_consumers)
        self.producers = ProducerManager(trio.current_time)
        self.locks = RebalanceLockManager(trio.current_time)

    def _make_services(self, config: BrokerConfig) -> None:
        directory = self.store_config.root.expanduser() / "config"
        self.ha = HAService(
            self.store, self.ha_config, lambda: self.registration.members, lambda: self.registration.ask_members()
        )
        self.schedule = ScheduleMessageService(
            store=self.store,
            file=JsonFile(directory / "delayOffset.json"),
            levels_ms=self.store.delays_ms,
            now_ms=self.now_ms,
            confirmed_offset=self.confirmed_offset,
            flush_interval_ms=config.flush_delay_offset_interval_ms,
        )
        self.slave_sync = SlaveSynchronize(
            client=self.remoting,
            topics=self.topics,
            topics_file=self.topics_file,
            groups=self.groups,
            groups_file=self.groups_file,
            offsets=self.offsets,
            schedule=self.schedule,
        )
        self._make_registration()

    def _make_registration(self) -> None:
        self.registration = RegistrationService(
            config=self.config,
            client=self.remoting,
            topics=self.topics,
            address=self.address,
            ha_address=self.ha_address,
            is_slave=self.is_slave,
            master_changed=self._master_changed,
            members_changed=self.ha.members_changed,
            has_strangers=self._has_strangers,
        )

    # What handlers ask

    @staticmethod
    def now_ms() -> int:
        """Wall clock."""
        return wall_clock_ms()

    @property
    def is_slave(self) -> bool:
        return self.store_config.broker_role is BrokerRole.SLAVE

    def confirmed_offset(self) -> int:
        """Where in the log what producers were promised ends: a SYNC_MASTER promises what a slave holds."""
        end = self.store.max_offset
        if self.store_config.broker_role is BrokerRole.SYNC_MASTER:
            return min(end, self.ha.group_transfer.push2_slave_max_offset)
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

    def _notify_consumers(self, group: str, connections: list[Connection]) -> None:
        """Tell a group's members to share the queues anew."""
        header = NotifyConsumerIdsChanged(group)
        for connection in connections:
            connection.send(RemotingCommand(header.code, ext=encode_header_fields(header), flag=ONEWAY))

    # Running

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then stop cleanly; started() once the ports are bound.

        Raises OSError when a port or the disk cannot be had, ValueError for a table that cannot be read,
        StoreDirectoryError for a store that cannot be opened.
        """
        self._load_tables()
        await trio.to_thread.run_sync(self.store.load)
        async with self._background(), trio.open_nursery() as nursery:
            try:
                await self._start(nursery)
                task_status.started()
                await trio.sleep_forever()
            finally:
                self.stopping = True

    def _load_tables(self) -> None:
        self.topics.merge(self.topics_file.load())
        self.groups.merge(self.groups_file.load())
        self.offsets.merge(self.offsets_file.load())
        self.offsets.dirty = False
        self.schedule.load()

    @contextlib.asynccontextmanager
    async def _background(self) -> AsyncIterator[None]:
        """Store and outgoing connections: they go on while the rest stops, and until the last table is written."""
        scope = trio.CancelScope(shield=True)

        async def carry(*, task_status: trio.TaskStatus[None]) -> None:
            with scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self.store.run)
                    await nursery.start(self.remoting.run)
                    task_status.started()

        async with trio.open_nursery() as nursery:
            await nursery.start(carry)
            try:
                yield
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_SECONDS_MAX):
                    await self._stop()
                scope.cancel()
                with trio.CancelScope(shield=True):
                    await self.store.close()

    async def _start(self, nursery: trio.Nursery) -> None:
        main, fast = self._open_listeners()
        ha_port = await nursery.start(self.ha.run)
        self._set_addresses(main.getsockname()[1], ha_port)
        self._make_registration()
        self.send = SendProcessor(self)
        await self._serve(nursery, main, fast)
        nursery.start_soon(self.held_pulls.run)
        nursery.start_soon(self.registration.run)
        nursery.start_soon(self.slave_sync.run if self.is_slave else self.schedule.run)
        nursery.start_soon(self._flush_offsets)
        nursery.start_soon(self._watch_clients)
        nursery.start_soon(self._sample)

    def _open_listeners(self) -> tuple[socket.socket, socket.socket]:
        """The main port and the fast one; with listenPort 0 any two. Raises OSError that names the port."""
        host, port = self.server_config.bind_address, self.config.listen_port
        main = _listen(host, port)
        try:
            return main, _listen(host, port - FAST_PORT_DISTANCE if port else 0)
        except OSError:
            main.close()
            raise

    async def _serve(self, nursery: trio.Nursery, main: socket.socket, fast: socket.socket) -> None:
        from cluster.broker.dispatch import fast_port_table, main_port_table  # Handlers name Broker in annotations.

        for table, listener in ((main_port_table(self), main), (fast_port_table(self), fast)):
            server = RemotingServer(table, self.server_config, batch=self.send.process, batch_codes=SEND_CODES)
            await nursery.start(server.serve, listener)

    async def _stop(self) -> None:
        """What others should know and the next start should find."""
        with trio.move_on_after(1):
            await self.registration.unregister_all()
        if not self.is_slave:
            self._save(self.schedule.file.path.name, self.schedule.stop)
        self._save_offsets()

    # What goes on behind

    async def _flush_offsets(self) -> None:
        await trio.sleep(FIRST_OFFSET_FLUSH_SECONDS)
        while True:
            if self.offsets.dirty:
                self.offsets.dirty = False
                text = fastjson.pretty(self.offsets.plain())
                try:
                    await trio.to_thread.run_sync(self.offsets_file.save, text)
                except OSError as error:
                    self.offsets.dirty = True
                    self._save_failed(self.offsets_file.path.name, error)
            await trio.sleep(self.config.flush_consumer_offset_interval_ms / 1000)

    async def _watch_clients(self) -> None:
        """Drop clients without heartbeats; their connections go once nothing is left on them."""
        while True:
            await trio.sleep(CLIENT_SCAN_SECONDS)
            for connection in self.consumers.expire() | self.producers.expire():
                if not self.consumers.has(connection) and not self.producers.has(connection):
                    connection.close()
            self.locks.expire()

    async def _sample(self) -> None:
        while True:
            counters = runtime_info.counters(self)
            self.rates.sample(trio.current_time(), *counters)
            day = time.localtime(self.now_ms() / 1000).tm_yday
            self.puts_by_day.look(day, counters[runtime_info.PUTS])
            self.gets_by_day.look(day, counters[runtime_info.GET_MESSAGES])
            await trio.sleep(SAMPLE_SECONDS)

    def _has_strangers(self) -> bool:
        """Whether somebody replicates whose IP is not that of a registered slave."""
        return any(not each.admitted and each.request_offset >= 0 for each in self.ha.statistics().connections)

    def _master_changed(self, master: Master) -> None:
        if master.ha_address and not self.ha_config.master_address:
            self.ha.set_master(master.ha_address)
        self.slave_sync.set_master(master.address if master.address != self.address else None)

    # Tables to files

    def _topic_changed(self, topic: str) -> None:
        self._save(self.topics_file.path.name, lambda: self.topics_file.save(fastjson.pretty(self.topics.plain())))
        self.registration.topics_changed()

    def _group_changed(self, group: str) -> None:
        self._save(self.groups_file.path.name, lambda: self.groups_file.save(fastjson.pretty(self.groups.plain())))

    def _save_offsets(self) -> None:
        if self.offsets.dirty:
            self.offsets.dirty = False
            self._save(
                self.offsets_file.path.name, lambda: self.offsets_file.save(fastjson.pretty(self.offsets.plain()))
            )

    def _save(self, name: str, save: Callable[[], None]) -> None:
        try:
            save()
            self._failing_files.discard(name)
        except OSError as error:
            self._save_failed(name, error)

    def _save_failed(self, name: str, error: OSError) -> None:
        if name not in self._failing_files:
            self._failing_files.add(name)
            log.error("a table could not be written", file=name, error=str(error))


def _listen(host: str, port: int) -> socket.socket:
    try:
        return open_listener(host, port)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {host}:{port}") from error
