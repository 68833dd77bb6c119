"""HTTP options of a broker or name server. RocketMQ has none."""

from ipaddress import ip_address
from pathlib import Path

from attrs import frozen, validators

from twinlog.store.config import option

DERIVED = -1


@frozen(kw_only=True)
class HttpConfig:
    """HTTP options; by default loopback only, and read-only."""

    enable: bool = option(True, key="httpEnable", doc="answer health checks, metrics and /v1 over HTTP")
    listen_port: int = option(
        DERIVED,
        key="httpListenPort",
        doc="TCP port; -1: a broker's listenPort + 3, a name server's listenPort + 2, any free one where listenPort is 0",
        validator=validators.and_(validators.ge(-1), validators.le(65_535)),
    )
    bind_address: str = option("127.0.0.1", key="httpBindAddress", doc="the address to listen at for HTTP")
    token_file: Path | None = option(
        None,
        key="httpTokenFile",
        doc="a file with a token on each line, at least 16 characters; whoever sends one may change roles. None: nobody may",
    )
    allow_hosts: tuple[str, ...] = option(
        (),
        key="httpAllowHosts",
        doc="names, with ; between, under which requests may address this port besides IP addresses and names without a dot; "
        "*: any name",
    )
    connections_max: int = option(
        256, key="httpMaxConnections", doc="connections at a time; more are closed at once", validator=validators.ge(1)
    )
    listeners_max: int = option(
        64, key="httpMaxListeners", doc="readers of /events at a time; more are told 503", validator=validators.ge(0)
    )

    def port(self, listen_port: int, distance: int) -> int:
        """The port to listen at for a service that listens at `listen_port`; 0: any."""
        if self.listen_port != DERIVED:
            return self.listen_port
        return listen_port + distance if listen_port else 0

    @property
    def is_port_named(self) -> bool:
        """True if the port was configured: then it is an error that it is taken."""
        return self.listen_port > 0

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect."""
        try:
            return ip_address(self.bind_address).is_loopback
        except ValueError:
            return self.bind_address == "localhost"
