"""Service of the name server: its port, its handlers, and the removal of brokers that stop registering or disconnect.

Sources: NamesrvController, DefaultRequestProcessor, BrokerHousekeepingService (RocketMQ 4.9.8).
"""

import math
from pathlib import Path
from typing import Any

import attrs
import orjson
import structlog
import trio
from attrs import define, field

from twinlog.cluster.config.config_file import format_value
from twinlog.cluster.config.properties_file import with_values
from twinlog.cluster.config.redaction import shown
from twinlog.cluster.namesrv.config import NamesrvConfig, changed
from twinlog.cluster.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfigManager
from twinlog.cluster.namesrv.registration import read_data_version, read_registration, read_route
from twinlog.cluster.namesrv.route_info import RouteInfoManager, at_host, told_outside
from twinlog.cluster.namesrv.witness import Witness
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.dispatch import Dispatcher
from twinlog.cluster.remoting.headers import namesrv as h
from twinlog.cluster.remoting.headers.members import HearsMaster
from twinlog.cluster.remoting.limits import Budget
from twinlog.cluster.remoting.request import Reply, Request, handlers_of
from twinlog.cluster.remoting.route import UNIT, UNIT_SUBSCRIPTION
from twinlog.cluster.remoting.server import RemotingServer, open_listener
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.cluster.remoting.tls.renewed import ServerTls
from twinlog.store.util.plain import to_plain
from twinlog.store.util.sync import write_durably
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

STANDARD_JSON_VERSION = 401  # V4_9_4. Older clients expect broker ids as unquoted keys, or remove quotes themselves.


@define(eq=False)
class NameServer:
    """A name server. `run` serves until it is cancelled; name servers do not know each other.

    The public methods with a header serve its request code.
    """

    config: NamesrvConfig = field(factory=NamesrvConfig)  # Replaced as a whole by request 318.
    server_config: ServerConfig = field(factory=ServerConfig)
    config_file: Path | None = None  # Request 318 changes it, too; None: its changes last until the end of the process.
    tls_config: TlsConfig = field(factory=TlsConfig)
    kv: KVConfigManager = field(init=False)
    routes: RouteInfoManager = field(factory=RouteInfoManager, init=False)
    witness: Witness = field(init=False)
    _config_lock: trio.Lock = field(factory=trio.Lock, init=False)
    _config_changed: Wakeup = field(factory=Wakeup, init=False)
    _outside: RemotingServer | None = field(default=None, init=False)  # Of outsideListenPort.

    @kv.default
    def _make_kv(self) -> KVConfigManager:
        path = self.config.kv_config_path
        return KVConfigManager(path.expanduser() if path else None)

    @witness.default
    def _make_witness(self) -> Witness:
        return Witness(self.routes)

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and serve; started() passes the port, which is any free one if 0 is configured.

        Raises OSError when the port cannot be had, ValueError for an unreadable KV configuration or TLS files.
        """
        tls = ServerTls(self.tls_config)
        tls.check()
        self.kv.load()
        self.witness.started_at = trio.current_time()
        ports = (self.config.listen_port, *filter(None, (self.config.outside_listen_port,)))
        listener, *outside = [open_listener(self.server_config.bind_address, port) for port in ports]
        budget = Budget(self.server_config.bytes_max)
        async with trio.open_nursery() as nursery:
            await nursery.start(self._server(tls, budget).serve, listener)
            if outside:
                self._outside = self._server(tls, budget)
                await nursery.start(self._outside.serve, *outside)
            nursery.start_soon(self._scan_not_active_brokers)
            task_status.started(listener.getsockname()[1])

    def _server(self, tls: ServerTls, budget: Budget) -> RemotingServer:
        dispatcher = Dispatcher(handlers_of(self), self.server_config)
        server = RemotingServer(dispatcher, self.server_config, tls, budget)
        server.on_connect.append(lambda connection: connection.on_close.append(self._closed))
        return server

    async def _scan_not_active_brokers(self) -> None:
        while True:
            with trio.move_on_after(self.config.scan_not_active_broker_interval_ms / 1000):
                await self._config_changed.wait()
            timeout = self.config.broker_not_active_timeout_ms / 1000
            for address, connection in self.routes.expire(trio.current_time(), timeout).items():
                log.warning("broker dropped: it has stopped registering", peer=address)
                if isinstance(connection, Connection):
                    connection.close()

    def _closed(self, connection: Connection) -> None:
        if trio.current_effective_deadline() == -math.inf:
            return  # This name server is stopping.
        for address in self.routes.drop(connection):
            log.warning("broker dropped: its connection was closed", peer=address)

    def _is_outside(self, request: Request) -> bool:
        return self._outside is not None and request.connection in self._outside.connections

    def _told(self, group: dict[str, Any], request: Request) -> dict[str, Any]:
        return told_outside(group, self.config.outside_address) if self._is_outside(request) else group

    # ---- Handlers

    def register_broker(self, header: h.RegisterBroker, request: Request) -> Reply:
        """103. A slave receives its master's address; every broker receives the table of ordered topics."""
        new = read_registration(header, request.body, request.command.version)
        registered = self.routes.register(new, request.connection, trio.current_time())
        if registered.is_new:
            log.info("broker registered", broker=new.broker_name, id=new.broker_id, address=new.address)
        ordered = self.kv.namespace(ORDER_TOPIC_CONFIG)
        # An empty table is sent, too: brokers learn from it that the last entry was deleted.
        body = b"" if ordered is None else fastjson.dumps({"table": dict(ordered)})
        return Reply.success(body, haServerAddr=registered.ha_server_addr, masterAddr=registered.master_addr)

    def unregister_broker(self, header: h.UnregisterBroker, request: Request) -> Reply:
        """104. An entry that another broker has registered meanwhile under the same name and id stays."""
        if self.routes.unregister(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr):
            log.info("broker left", broker=header.broker_name, id=header.broker_id, address=header.broker_addr)
        return Reply()

    def query_data_version(self, header: h.QueryDataVersion, request: Request) -> Reply:
        """322. With an equal version it counts as a heartbeat."""
        version = read_data_version(request.body)
        known = self.routes.data_version(header.broker_addr)
        if known == version:
            self.routes.touch(header.broker_addr, trio.current_time())
        return Reply.success(fastjson.dumps(known.to_json()) if known else b"", changed=known != version)

    def get_route_info_by_topic(self, header: h.GetRouteInfoByTopic, request: Request) -> Reply:
        """105"""
        route = self.routes.route(header.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            return Reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        route["brokerDatas"] = [self._told(group, request) for group in route["brokerDatas"]]
        if self.config.order_message_enable:
            order = self.kv.get(ORDER_TOPIC_CONFIG, header.topic)
            route |= {"orderTopicConf": order} if order else {}
        standard = header.accept_standard_json_only or request.command.version >= STANDARD_JSON_VERSION
        return Reply(body=fastjson.dumps_ascii(route) if standard else fastjson.dumps(route))

    def get_broker_cluster_info(self, header: h.GetBrokerClusterInfo, request: Request) -> Reply:
        """106. Unquoted keys for every client."""
        info = self.routes.cluster_info()
        info["brokerAddrTable"] = {name: self._told(group, request) for name, group in info["brokerAddrTable"].items()}
        return Reply(body=fastjson.dumps(info))

    def wipe_write_perm_of_broker(self, header: h.WipeWritePermOfBroker, request: Request) -> Reply:
        """205. Producers avoid the group afterwards."""
        count = self.routes.set_write_perm(header.broker_name, allowed=False)
        log.info("write permission wiped", broker=header.broker_name, topics=count)
        return Reply.success(wipeTopicCount=count)

    def add_write_perm_of_broker(self, header: h.AddWritePermOfBroker, request: Request) -> Reply:
        """327"""
        count = self.routes.set_write_perm(header.broker_name, allowed=True)
        log.info("write permission added", broker=header.broker_name, topics=count)
        return Reply.success(addTopicCount=count)

    def get_all_topic_list(self, header: h.GetAllTopicListFromNameserver, request: Request) -> Reply:
        """206"""
        return _topic_list(self.routes.topics())

    def delete_topic(self, header: h.DeleteTopicInNamesrv, request: Request) -> Reply:
        """216. Brokers keep the topic: mqadmin asks them with 215."""
        self.routes.delete_topic(header.topic, header.cluster_name)
        return Reply()

    def get_topics_by_cluster(self, header: h.GetTopicsByCluster, request: Request) -> Reply:
        """224"""
        return _topic_list(self.routes.topics(header.cluster))

    def get_system_topic_list(self, header: h.GetSystemTopicListFromNs, request: Request) -> Reply:
        """304. Clusters and broker groups have topics of their names; mqadmin asks the given address for others with 305."""
        routes = self.routes
        names = [name for cluster, groups in routes.clusters.items() for name in (cluster, *groups)]
        address = routes.any_address()
        if address and self._is_outside(request):
            address = at_host(address, self.config.outside_address)
        return Reply(body=fastjson.dumps(({"brokerAddr": address} if address else {}) | {"topicList": names}))

    def get_unit_topics(self, header: h.GetUnitTopicList, request: Request) -> Reply:
        """311"""
        return _topic_list(self.routes.unit_topics(flags=UNIT, mask=UNIT))

    def get_unit_sub_topics(self, header: h.GetHasUnitSubTopicList, request: Request) -> Reply:
        """312"""
        return _topic_list(self.routes.unit_topics(flags=UNIT_SUBSCRIPTION, mask=UNIT_SUBSCRIPTION))

    def get_unit_sub_ununit_topics(self, header: h.GetHasUnitSubUnunitTopicList, request: Request) -> Reply:
        """313"""
        return _topic_list(self.routes.unit_topics(flags=UNIT_SUBSCRIPTION, mask=UNIT | UNIT_SUBSCRIPTION))

    async def put_kv_config(self, header: h.PutKVConfig, request: Request) -> Reply:
        """100. Answered when the change is on the disk."""
        await self.kv.put(header.namespace, header.key, header.value)
        return Reply()

    def get_kv_config(self, header: h.GetKVConfig, request: Request) -> Reply:
        """101"""
        value = self.kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return Reply(ResponseCode.QUERY_NOT_FOUND, remark)
        return Reply.success(value=value)

    async def delete_kv_config(self, header: h.DeleteKVConfig, request: Request) -> Reply:
        """102"""
        await self.kv.delete(header.namespace, header.key)
        return Reply()

    def get_kv_list_by_namespace(self, header: h.GetKVListByNamespace, request: Request) -> Reply:
        """219"""
        table = self.kv.namespace(header.namespace)
        if table is None:
            return Reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}")
        return Reply(body=fastjson.dumps({"table": dict(table)}))

    def register_topic(self, header: h.RegisterTopicInNamesrv, request: Request) -> Reply:
        """217, 5.x. A group that is not registered is an error here; RocketMQ answers success and ignores the topic."""
        self.routes.register_topic(header.topic, read_route(header.topic, request.body))
        return Reply()

    def get_broker_member_group(self, header: h.GetBrokerMemberGroup, request: Request) -> Reply:
        """901, of 5.x brokers."""
        group = self.routes.member_group(header.cluster_name, header.broker_name)
        return Reply(body=fastjson.dumps({"brokerMemberGroup": group}))

    def broker_heartbeat(self, header: h.BrokerHeartbeat, request: Request) -> Reply:
        """904, of 5.x brokers: a heartbeat between registrations."""
        self.routes.touch(header.broker_addr, trio.current_time())
        return Reply()

    async def get_witness_report(self, header: HearsMaster, request: Request) -> Reply:
        """20008. See witness.py."""
        report = await self.witness.report(header)
        if report.master is not None and self._is_outside(request):
            report = attrs.evolve(report, master=at_host(report.master, self.config.outside_address))
        return Reply(body=orjson.dumps(to_plain(report)))

    async def update_namesrv_config(self, header: h.UpdateNamesrvConfig, request: Request) -> Reply:
        """318. See config.py for the keys; the change is in the configuration file when the response is sent."""
        async with self._config_lock:
            config, values = changed(self.config, request.body)
            if self.config_file is not None and values:
                await trio.to_thread.run_sync(_rewrite, self.config_file.resolve(), values)
            self.config = config
        if values:
            self._config_changed.set()
            log.info("configuration changed", by=request.connection.remote_address, **values)
        return Reply()

    def get_namesrv_config(self, header: h.GetNamesrvConfig, request: Request) -> Reply:
        """319"""
        options = {}
        for configuration in (self.config, self.server_config, self.tls_config):
            for option in attrs.fields(type(configuration)):
                value = getattr(configuration, option.name)
                key = option.metadata["key"]
                options[key] = shown(key, format_value(value))
        return Reply(body="".join(f"{key}={value}\n" for key, value in sorted(options.items())).encode())


def _topic_list(topics: list[str]) -> Reply:
    return Reply(body=fastjson.dumps({"topicList": topics}))


def _rewrite(path: Path, values: dict[str, str]) -> None:
    """Write these keys to the configuration file, durably; comments and order stay. Raises OSError."""
    # latin-1 keeps every byte as it is, whatever the file's encoding.
    text = path.read_bytes().decode("latin-1")
    write_durably(path, with_values(text, values).encode("latin-1"))
