"""Settings of a running broker: its configuration and addresses as they are now.

They change by request (25), with a new role, and when the ports are bound. Other parts have a reference to Settings and read it
at each use; a part with derived values registers a callback. The store's configuration, with the role, is `MessageStore.config`.
"""

from collections.abc import Callable
from pathlib import Path

import attrs
import trio
from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.machine import wall_clock_ms
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.names import DataVersion
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.ha.config import HAConfig


def _version_now() -> DataVersion:
    return DataVersion(wall_clock_ms())


@define(eq=False, kw_only=True)
class Settings:
    """Configuration and addresses. `config.broker_ip1` and `broker_ip2` are always set."""

    config: BrokerConfig
    ha_config: HAConfig = field(factory=HAConfig)
    server_config: ServerConfig = field(factory=ServerConfig)
    acl_config: AclConfig = field(factory=AclConfig)
    tls_config: TlsConfig = field(factory=TlsConfig)
    config_file: Path | None = None  # Changes by request are written to it.
    address: str = field(init=False)  # For clients. Final once the ports are bound.
    ha_address: str = field(init=False)  # For slaves. Likewise.
    boot_ms: int = field(factory=wall_clock_ms, init=False)
    version: DataVersion = field(factory=_version_now, init=False)
    lock: trio.Lock = field(factory=trio.Lock, init=False)  # Held while a request changes the configuration.
    on_change: list[Callable[[], None]] = field(factory=list, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.set_ports(self.config.listen_port, self.ha_config.listen_port)

    def set_ports(self, port: int, ha_port: int) -> None:
        """Set the ports of both addresses."""
        self.address = f"{self.config.broker_ip1}:{port}"
        self.ha_address = f"{self.config.broker_ip2}:{ha_port}"
        self._changed()

    def set_broker_id(self, broker_id: int) -> None:
        """Set the broker id."""
        self.config = attrs.evolve(self.config, broker_id=broker_id)

    def replace(self, config: BrokerConfig, now_ms: int) -> None:
        """Replace the configuration."""
        self.config, self.version = config, self.version.next(now_ms)
        self._changed()

    def _changed(self) -> None:
        for callback in self.on_change:
            callback()
