"""Options of the connection to a cluster, which source and sink share: name servers, access keys, TLS, time limit.

Names are case-insensitive, as everywhere in Spark. Files of TLS are read where the connection is opened, so they have to be on
every machine that runs tasks. Readers and writers go to tasks by pickle: a Connection holds texts only.
"""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import field, frozen

from twinlog.cluster.client.api import ClientApi, name_servers
from twinlog.cluster.client.client import Client
from twinlog.cluster.pipeline.sources.limits import ReadRefusedError
from twinlog.cluster.pipeline.tables.texts import flag_of, lowered, number_of
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.names import split_address
from twinlog.cluster.remoting.signing import Credentials, make_signer
from twinlog.cluster.remoting.tls.config import TlsConfig

OPTIONS = ("nameServer", "accessKey", "secretKey", "securityToken", "tls", "tlsCa", "tlsCert", "tlsKey", "timeoutMs")
TIMEOUT_MS = 10_000
_FILES = ("tlsCa", "tlsCert", "tlsKey")


@frozen(kw_only=True)
class Connection:
    """Way to reach a cluster. `tls_ca` None: any server is trusted. It can be sent to tasks."""

    name_servers: tuple[str, ...]
    credentials: Credentials | None = None
    tls: bool = False
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = field(default=None, repr=False)
    timeout_ms: int = TIMEOUT_MS

    def tls_context(self) -> ssl.SSLContext | None:
        """Context of new connections; None without TLS. Raises ReadRefusedError for files that cannot be used."""
        if not self.tls:
            return None
        from twinlog.cluster.remoting.tls.contexts import client_context  # 60 ms, and few clients use TLS.

        is_checked = self.tls_ca is not None
        config = TlsConfig(
            auth_server=is_checked, client_trust=self.tls_ca, client_cert=self.tls_cert, client_key=self.tls_key
        )
        try:
            return client_context(config)
        except (OSError, ValueError) as error:
            raise ReadRefusedError(
                f"the files of options tlsCa, tlsCert and tlsKey cannot be used on this machine: {error}. They have to be on "
                "each machine that runs tasks, as PEM."
            ) from error

    def client(self) -> Client:
        """A client with heartbeats, for producers. Raises ReadRefusedError."""
        return Client(self.name_servers, timeout_ms=self.timeout_ms, sign=self._sign(), tls=self.tls_context())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ClientApi]:
        """Requests without heartbeats, as long as the block lasts. Raises ReadRefusedError.

        An error of the block comes out as it is, not in a group.
        """
        remoting = RemotingClient(sign=self._sign(), tls=self.tls_context())
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            await nursery.start(remoting.run)
            try:
                yield ClientApi(remoting, self.name_servers, self.timeout_ms)
            except Exception as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def _sign(self) -> Callable[[RemotingCommand], None] | None:
        return None if self.credentials is None else make_signer(self.credentials)


def read_connection(texts: Mapping[str, str]) -> Connection:
    """Parse the options of the connection. Raises ReadRefusedError, naming the option."""
    options = lowered(texts)
    servers = name_servers(options.get("nameserver", ""))
    if not servers:
        raise ReadRefusedError(
            "option nameServer is missing: name the name servers as HOST:PORT, several separated by semicolons"
        )
    for each in servers:
        try:
            split_address(each)
        except ValueError as error:
            raise ReadRefusedError(f"option nameServer has {each!r}, which is no HOST:PORT: {error}") from error
    uses_tls = flag_of(options, "tls", False)
    files = {name: options.get(name.lower(), "").strip() for name in _FILES}
    named = [name for name in _FILES if files[name]]
    if named and not uses_tls:
        raise ReadRefusedError(f"option {named[0]} is set without TLS: set option tls=true, or leave {named[0]} out")
    if bool(files["tlsCert"]) != bool(files["tlsKey"]):
        raise ReadRefusedError("options tlsCert and tlsKey belong together: set both, or neither")
    paths = {name: Path(path) if path else None for name, path in files.items()}
    return Connection(
        name_servers=servers,
        credentials=_credentials(options),
        tls=uses_tls,
        tls_ca=paths["tlsCa"],
        tls_cert=paths["tlsCert"],
        tls_key=paths["tlsKey"],
        timeout_ms=number_of(options, "timeoutMs", TIMEOUT_MS),
    )


def _credentials(options: Mapping[str, str]) -> Credentials | None:
    key, secret = options.get("accesskey", ""), options.get("secretkey", "")
    token = options.get("securitytoken") or None
    if bool(key) != bool(secret) or (token and not key):
        raise ReadRefusedError("options accessKey and secretKey belong together: set both, or neither")
    return Credentials(key, secret, token) if key else None
