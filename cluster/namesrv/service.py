"""Service of the name server: its port, its handlers, and the removal of brokers that stop registering or disconnect.

Source: NamesrvController.java, BrokerHousekeepingService.java (RocketMQ 4.9.8).
"""

import math
from pathlib import Path

import structlog
import trio
from attrs import define, field

from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.kv_config import KVConfigManager
from twinlog.cluster.namesrv.processors import NamesrvController
from twinlog.cluster.namesrv.route_info import RouteInfoManager
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.connection import Connection
from twinlog.cluster.remoting.dispatch import Dispatcher
from twinlog.cluster.remoting.request import handlers_of
from twinlog.cluster.remoting.server import RemotingServer, open_listener
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.cluster.remoting.tls.contexts import ServerTls

log = structlog.get_logger(__name__)


@define(eq=False)
class NameServer:
    """A name server. `run` serves until it is cancelled; name servers do not know each other."""

    config: NamesrvConfig = field(factory=NamesrvConfig)
    server_config: ServerConfig = field(factory=ServerConfig)
    config_file: Path | None = None  # Changes of the configuration over the network are written to it.
    tls_config: TlsConfig = field(factory=TlsConfig)
    controller: NamesrvController = field(init=False)

    @controller.default
    def _make_controller(self) -> NamesrvController:
        path = self.config.kv_config_path
        kv = KVConfigManager(path.expanduser() if path else None)
        return NamesrvController(
            self.config, kv, trio.current_time, (self.server_config, self.tls_config), self.config_file
        )

    @property
    def routes(self) -> RouteInfoManager:
        return self.controller.routes

    async def run(
        self,
        host: str | None = None,
        port: int | None = None,
        *,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Listen and serve; started() passes the port. None: as configured; port 0: any free one.

        Raises OSError when the port cannot be had, ValueError for an unreadable KV configuration or TLS files.
        """
        tls = ServerTls(self.tls_config)
        tls.check()
        self.controller.kv.load()
        listener = open_listener(
            self.server_config.bind_address if host is None else host, self.config.listen_port if port is None else port
        )
        dispatcher = Dispatcher(handlers_of(self.controller), self.server_config)
        server = RemotingServer(dispatcher, self.server_config, tls)
        server.on_connect.append(lambda connection: connection.on_close.append(self._closed))
        async with trio.open_nursery() as nursery:
            bound = listener.getsockname()[1]
            await nursery.start(server.serve, listener)
            nursery.start_soon(self._scan_not_active_brokers)
            task_status.started(bound)

    async def _scan_not_active_brokers(self) -> None:
        while True:
            with trio.move_on_after(self.controller.config.scan_not_active_broker_interval_ms / 1000):
                await self.controller.config_changed.wait()
            timeout = self.controller.config.broker_not_active_timeout_ms / 1000
            for address, connection in self.routes.expire(trio.current_time(), timeout).items():
                log.warning("broker dropped: it has stopped registering", peer=address)
                if isinstance(connection, Connection):
                    connection.close()

    def _closed(self, connection: Connection) -> None:
        if trio.current_effective_deadline() == -math.inf:
            return  # This name server is stopping.
        for address in self.routes.drop(connection):
            log.warning("broker dropped: its connection was closed", peer=address)
