"""The client that operations ask with: in whose name, and with TLS or without."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.command import RemotingCommand

if TYPE_CHECKING:
    import ssl

    from twinlog.cluster.config.contexts import Context


def client_for(context: "Context | None") -> RemotingClient:
    """What a context says comes before what the environment does.

    Raises ConfigError and OSError for credentials and certificates that cannot be used.
    """
    return RemotingClient(sign=_signer_of(context), tls=_tls_of(context))


def _signer_of(context: "Context | None") -> "Callable[[RemotingCommand], None] | None":
    from twinlog.cluster.config.config_file import ConfigError
    from twinlog.cluster.config.credentials import own_signer, read_credentials_file
    from twinlog.cluster.remoting.signing import make_signer

    if context is None or context.credentials is None:
        return own_signer()
    credentials = read_credentials_file(context.credentials)
    if credentials is None:
        raise ConfigError(
            f"{context.credentials} has no accessKey and secretKey, and the context {context.name} names it"
        )
    return make_signer(credentials)


def _tls_of(context: "Context | None") -> "ssl.SSLContext | None":
    if context is None or not context.tls:
        if not os.environ.get("TWINLOG_TLS"):  # Nearly always: then nothing is imported for it.
            return None
        from twinlog.cluster.config.tls_file import own_tls

        return own_tls()
    from twinlog.cluster.remoting.tls.config import TlsConfig
    from twinlog.cluster.remoting.tls.contexts import client_context

    checked = context.trust is not None
    return client_context(TlsConfig(auth_server=checked, client_trust=context.trust))
