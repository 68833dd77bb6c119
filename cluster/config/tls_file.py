"""RocketMQ's tls.properties, and what the tools are told of TLS by their environment.

Servers read the file that `tls.config.file` names; its keys win over those of broker.conf, as they win over properties of the
Java process there (TlsHelper, 4.9.7), and --set wins over it. The tools take, above a file of their own:

    TWINLOG_TLS=true            requests use TLS
    TWINLOG_TLS_CONFIG=PATH     such a file, for tls.client.*; without it any server is trusted
"""

import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path

from twinlog.cluster.config.config_file import Setting, configure, options_of, settings_of
from twinlog.cluster.config.properties_file import ConfigError
from twinlog.cluster.remoting.tls.config import DEFAULT_FILE, NOT_IN_THE_FILE, TlsConfig

ENABLE, CONFIG = "TWINLOG_TLS", "TWINLOG_TLS_CONFIG"
_FILE_KEY = "tls.config.file"


def file_settings(settings: Sequence[Setting]) -> list[Setting]:
    """What the file says that these settings name, or the default one. Raises ConfigError when the named one cannot be read."""
    named = [setting for setting in settings if setting.key == _FILE_KEY]
    path = Path(named[-1].value) if named else DEFAULT_FILE
    try:
        text = path.expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        if not named:
            return []
        raise ConfigError(f"{named[-1].source}: {_FILE_KEY}={path}: cannot be read: {error}") from error
    known = options_of((TlsConfig,)).keys() - set(NOT_IN_THE_FILE)
    return [setting for setting in settings_of(text, str(path)) if setting.key in known]


def own_tls(environment: Mapping[str, str] = os.environ) -> ssl.SSLContext | None:
    """What RemotingClient.tls wants; None: no TLS. Raises ConfigError, TlsFilesError."""
    wanted = environment.get(ENABLE, "").lower()
    if wanted in ("", "false"):
        return None
    if wanted != "true":
        raise ConfigError(f"{ENABLE}={wanted}: expected true or false")
    from twinlog.cluster.remoting.tls.contexts import client_context

    path = environment.get(CONFIG)
    named = [Setting(_FILE_KEY, path, CONFIG)] if path else []
    return client_context(configure((TlsConfig,), file_settings(named)).of(TlsConfig))
