"""TLS configuration of brokers, name servers and clients. Source: TlsSystemConfig.java, RocketMQ 4.9.7.

There these are properties of the Java process and of the file `tls.config.file`; here broker.conf and namesrv.conf may set
them, too. The file takes precedence over both, as it does over properties there.
"""

from enum import Enum
from pathlib import Path
from typing import Any

from attrs import field, fields_dict, frozen

from twinlog.store.config import option

DEFAULT_FILE = Path("/etc/rocketmq/tls.properties")


class TlsMode(Enum):
    """The kinds of connections that a server accepts."""

    disabled = "disabled"
    permissive = "permissive"
    enforcing = "enforcing"


class ClientAuth(Enum):
    """A server's request for client certificates."""

    none = "none"
    optional = "optional"
    require = "require"


def _secret(*, key: str, doc: str) -> Any:
    return field(default=None, repr=False, metadata={"key": key, "doc": doc})


@frozen(kw_only=True)
class TlsConfig:
    """Files are PEM. `enable` None: a broker's own requests use TLS where it takes TLS connections only."""

    mode: TlsMode = option(
        TlsMode.permissive,
        key="tls.server.mode",
        doc="disabled: no TLS connections; permissive: both kinds on the same port; enforcing: TLS connections only",
    )
    test_mode: bool | None = option(
        None,
        key="tls.test.mode.enable",
        doc="a server makes itself a certificate, a client trusts every server; false: the files below; none: true, but false "
        "for servers if tls.server.*, and for clients if tls.client.* names a file or asks for a check",
    )
    config_file: Path = option(
        DEFAULT_FILE,
        key="tls.config.file",
        doc="a file with more of these keys, all but tls.server.mode, tls.enable and tls.members.enable; need not be there",
    )
    server_cert: Path | None = option(None, key="tls.server.certPath", doc="the server's certificate and its chain")
    server_key: Path | None = option(None, key="tls.server.keyPath", doc="the server's private key")
    server_key_password: str | None = _secret(key="tls.server.keyPassword", doc="the password of that key")
    need_client_auth: ClientAuth = option(
        ClientAuth.none,
        key="tls.server.need.client.auth",
        doc="whether clients show a certificate: none, optional, require; counts with tls.server.authClient=true",
    )
    auth_client: bool = option(
        False, key="tls.server.authClient", doc="clients' certificates are checked with tls.server.trustCertPath"
    )
    server_trust: Path | None = option(
        None, key="tls.server.trustCertPath", doc="certificates that clients' ones are checked with; none: the system's"
    )
    enable: bool | None = option(
        None,
        key="tls.enable",
        doc="own requests to brokers and name servers use TLS; none: with tls.server.mode=enforcing",
    )
    members: bool = option(
        False,
        key="tls.members.enable",
        doc="own requests to members of the group use TLS, whatever tls.enable says of name servers; members' ports take both "
        "kinds, so it can be set on one member after another",
    )
    client_cert: Path | None = option(None, key="tls.client.certPath", doc="the certificate shown to servers")
    client_key: Path | None = option(None, key="tls.client.keyPath", doc="its private key")
    client_key_password: str | None = _secret(key="tls.client.keyPassword", doc="the password of that key")
    auth_server: bool = option(
        False, key="tls.client.authServer", doc="servers' certificates are checked; the name in them is not, as there"
    )
    client_trust: Path | None = option(
        None, key="tls.client.trustCertPath", doc="certificates that servers' ones are checked with; none: the system's"
    )

    @property
    def server_files(self) -> tuple[str, ...]:
        """The server's keys that are set, and that test mode would ignore."""
        return self._set("server_cert", "server_key", "need_client_auth", "auth_client", "server_trust")

    @property
    def client_files(self) -> tuple[str, ...]:
        """The client's keys that are set, and that test mode would ignore."""
        return self._set("client_cert", "client_key", "auth_server", "client_trust")

    def _set(self, *names: str) -> tuple[str, ...]:
        known = fields_dict(TlsConfig)
        return tuple(known[name].metadata["key"] for name in names if getattr(self, name) != known[name].default)

    @property
    def server_test_mode(self) -> bool:
        """True when a server generates its own certificate."""
        return not self.server_files if self.test_mode is None else self.test_mode

    @property
    def client_test_mode(self) -> bool:
        """True when a client trusts every server."""
        return not self.client_files if self.test_mode is None else self.test_mode

    @property
    def is_client(self) -> bool:
        """True when this process's own requests use TLS (BrokerStartup)."""
        return self.mode is TlsMode.enforcing if self.enable is None else self.enable


NOT_IN_THE_FILE = ("tls.server.mode", "tls.enable", "tls.members.enable", "tls.config.file")
