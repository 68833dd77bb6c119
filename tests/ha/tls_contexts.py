"""Contexts of TLS for the HA stream, as a broker's wiring gives them."""

import ssl

from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.cluster.remoting.tls.contexts import client_context, server_context
from twinlog.ha.wire.tls import HATls


def contexts(config: TlsConfig, slave: TlsConfig | None = None) -> HATls:
    """Of a master, and of a slave that trusts it or checks it."""

    async def server() -> ssl.SSLContext:
        return server_context(config)

    async def client() -> ssl.SSLContext:
        return client_context(slave or TlsConfig())

    return HATls(client=client, server=server)
