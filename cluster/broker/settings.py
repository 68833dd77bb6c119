"""Settings of a running broker: its configuration and addresses as they are now, and facts of its machine.

They change by request (25), with a new role, and when the ports are bound. Other parts have a reference to Settings and read it
at each use; a part with derived values registers a callback. The store's configuration, with the role, is `MessageStore.config`.
"""

import socket
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import trio
from attrs import define, field

from twinlog.cluster.broker.config import BrokerConfig
from twinlog.cluster.broker.security.config import AclConfig
from twinlog.cluster.etcd.config import EtcdConfig
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.host_names import HostNames
from twinlog.cluster.remoting.names import DataVersion, is_ip
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.ha.config import HAConfig
from twinlog.store.record.message import host_bytes


def own_ip() -> str:
    """Return the first IPv4 address of an interface that is up, without loopback ones; 127.0.0.1 if there is none."""
    import psutil  # Where an address is configured, nobody needs it.

    states = psutil.net_if_stats()
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        for address in addresses:
            if address.family == socket.AF_INET and not address.address.startswith("127.") and states[name].isup:
                return str(address.address)
    return "127.0.0.1"


def machine_boot_id() -> str:
    """Return an id that changes with each start of the machine, after which memory is lost."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@define(eq=False, kw_only=True)
class Settings:
    """Configuration and addresses. `config.broker_ip1` and `broker_ip2` are always set."""

    config: BrokerConfig
    ha_config: HAConfig = field(factory=HAConfig)
    server_config: ServerConfig = field(factory=ServerConfig)
    acl_config: AclConfig = field(factory=AclConfig)
    tls_config: TlsConfig = field(factory=TlsConfig)
    etcd_config: EtcdConfig = field(factory=EtcdConfig)
    config_file: Path | None = None  # Changes by request are written to it.
    address: str = field(init=False)  # For clients. Final once the ports are bound.
    ha_address: str = field(init=False)  # For slaves. Likewise.
    member_address: str = field(init=False)  # Of the remoting port, for other members. Likewise.
    hosts: HostNames = field(factory=HostNames, init=False, repr=False)
    boot_ms: int = field(factory=wall_clock_ms, init=False)
    version: DataVersion = field(factory=lambda: DataVersion(wall_clock_ms()), init=False)
    lock: trio.Lock = field(factory=trio.Lock, init=False)  # Held while a request changes the configuration.
    on_change: list[Callable[[], None]] = field(factory=list, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.hosts.on_change.append(self._changed)
        self.set_ports(self.config.listen_port, self.ha_config.listen_port)

    def set_ports(self, port: int, ha_port: int) -> None:
        """Set the ports of both addresses."""
        config = self.config
        self.address = f"{config.broker_ip1}:{config.broker_port1 or port}"
        self.ha_address = f"{config.broker_ip2}:{config.ha_port or ha_port}"
        self.member_address = f"{config.broker_ip2}:{config.broker_port2 or port}"
        self._changed()

    def set_broker_id(self, broker_id: int) -> None:
        """Set the broker id."""
        self.config = attrs.evolve(self.config, broker_id=broker_id)

    def replace(self, config: BrokerConfig, now_ms: int) -> None:
        """Replace the configuration."""
        self.config, self.version = config, self.version.next(now_ms)
        self._changed()

    @property
    def store_host(self) -> bytes:
        """The address for clients as records and ids of messages have it: with this machine's own IP, while its name has none."""
        ip = self.hosts.ip_of(self.address)
        return host_bytes(f"{ip if is_ip(ip) else own_ip()}:{self.address.rpartition(':')[2]}")

    def _changed(self) -> None:
        for callback in self.on_change:
            callback()
