"""RocketMQ's tls.properties, and the TLS settings of the tools in the environment.

Servers read the file in `tls.config.file`. Its keys override broker.conf, as they override properties of the Java process in
RocketMQ (TlsHelper, 4.9.7), and --set overrides it. The tools read these variables, unless their context sets TLS:

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
    """Read the file that these settings name, or the default file. Raises ConfigError if the named file cannot be read."""
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
    """Return the TLS context for RemotingClient; None without TLS. Raises ConfigError, TlsFilesError."""
    wanted = environment.get(ENABLE, "").lower()
    if wanted in ("", "false"):
        return None
    if wanted != "true":
        raise ConfigError(f"{ENABLE}={wanted}: expected true or false")
    path = environment.get(CONFIG)
    named = [Setting(_FILE_KEY, path, CONFIG)] if path else []
    return _context(configure((TlsConfig,), file_settings(named)).of(TlsConfig))


def trusting_tls(trust: Path | None) -> ssl.SSLContext:
    """Return the TLS context of a client that checks servers by a file of certificates; None: it trusts any."""
    return _context(TlsConfig(auth_server=trust is not None, client_trust=trust))


def _context(config: TlsConfig) -> ssl.SSLContext:
    from twinlog.cluster.remoting.tls.contexts import client_context  # 60 ms, and few clients use TLS.

    return client_context(config)
