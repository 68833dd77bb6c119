"""Credentials of the tools, from the environment or a file; never from the command line, which other users can read.

    1 TWINLOG_ACCESS_KEY and TWINLOG_SECRET_KEY, TWINLOG_SECURITY_TOKEN if there is one; or the files that
      TWINLOG_SECRET_KEY_FILE and its like name
    2 twinlog/credentials.yml in $XDG_CONFIG_HOME, else ~/.config
    3 conf/tools.yml in $ROCKETMQ_HOME, as for mqadmin

Both files have `accessKey: ...` and `secretKey: ...`. Source of the last: AclUtils.getAclRPCHook (RocketMQ 4.9.8).
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType

from twinlog.cluster.config.properties_file import ConfigError
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.signing import Credentials, make_signer

ACCESS, SECRET, TOKEN = "TWINLOG_ACCESS_KEY", "TWINLOG_SECRET_KEY", "TWINLOG_SECURITY_TOKEN"


def own_signer(environment: Mapping[str, str] = os.environ) -> Callable[[RemotingCommand], None] | None:
    """Return the signer for RemotingClient; None without credentials. Raises ConfigError, OSError."""
    credentials = find_credentials(environment)
    return None if credentials is None else make_signer(credentials)


def has_credentials(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether requests from here are signed, or would be if the file could be read."""
    try:
        return find_credentials(environment) is not None
    except (ConfigError, OSError):
        return True


def find_credentials(environment: Mapping[str, str]) -> Credentials | None:
    """Return the first credentials found. Raises ConfigError for incomplete ones, OSError for an unreadable file."""
    keys = secret_of(environment, ACCESS), secret_of(environment, SECRET)
    if any(keys):
        if not (keys[0] and keys[1]):
            raise ConfigError(
                f"{ACCESS if keys[0] else SECRET} is set without {SECRET if keys[0] else ACCESS}: set both"
            )
        return Credentials(keys[0], keys[1], secret_of(environment, TOKEN) or None)
    for path in credential_files(environment):
        if path.is_file():
            return read_credentials_file(path)
    return None


def credential_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the paths of credential files in the order in which they are tried."""
    configured = environment.get("XDG_CONFIG_HOME") or ""
    base = Path(configured) if configured.startswith("/") else Path(environment.get("HOME") or Path.home()) / ".config"
    home = environment.get("ROCKETMQ_HOME")
    rocketmq = (Path(home) / "conf" / "tools.yml",) if home else ()
    return (base / "twinlog" / "credentials.yml", *rocketmq)


def read_credentials_file(path: Path) -> Credentials | None:
    """Read a file; None for one without keys, as RocketMQ's tools.yml may be. Raises ConfigError without secrets, OSError."""
    # 15 ms that only users of such a file need.
    from twinlog.cluster.config.plain_yaml import PlainYamlError, load_plain

    try:
        value = load_plain(path.read_bytes())
    except PlainYamlError as error:
        raise ConfigError(f"{path} {error}") from None
    if not isinstance(value, dict):
        return None
    key, secret, token = (value.get(name) for name in ("accessKey", "secretKey", "securityToken"))
    if key is None and secret is None:
        return None
    if key in (None, "") or secret in (None, ""):
        raise ConfigError(f"{path}: both accessKey and secretKey are required")
    if not all(isinstance(each, (str, NoneType)) for each in (key, secret, token)):
        raise ConfigError(f"{path}: accessKey, secretKey and securityToken must be strings")
    return Credentials(key, secret, token)


def secret_of(environment: Mapping[str, str], name: str) -> str | None:
    """Return a variable's value, or the content of the file in NAME_FILE. Raises OSError, ConfigError when both are set."""
    if environment.get(name) and environment.get(f"{name}_FILE"):
        raise ConfigError(f"{name} and {name + '_FILE'} are both set: set one of them")
    if path := environment.get(f"{name}_FILE"):
        return Path(path).read_text().rstrip("\r\n")
    return environment.get(name)
