"""Options by environment variables, as containers are told what to be: TWINLOG_ and the option's name in capitals.

    brokerName        TWINLOG_BROKER_NAME=broker-a
    tls.server.mode   TWINLOG_TLS_SERVER_MODE=enforcing
    aclEnable         TWINLOG_ACL_ENABLE_FILE=/run/secrets/acl    the value is what that file holds: Docker's secrets

Where the underscores stand does not matter: letters and digits decide. An empty variable counts as not set. Pure, but for
the files that `_FILE` names.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from attrs import frozen

from twinlog.cluster.config.config_file import Setting
from twinlog.cluster.config.properties_file import ConfigError

PREFIX, FILE = "TWINLOG_", "_FILE"
# Variables of twinlog's that are no options of a broker or name server, each with its reader.
OTHERS: Mapping[str, str] = {
    "TWINLOG_ACCESS_KEY": "who the tools ask as",
    "TWINLOG_SECRET_KEY": "and with what secret",
    "TWINLOG_SECURITY_TOKEN": "and token",
    "TWINLOG_CONTEXT": "which cluster the tools ask",
    "TWINLOG_LOG": "how the log is written",
    "TWINLOG_TLS": "whether the tools use TLS",
    "TWINLOG_TLS_CONFIG": "with what certificates",
    "TWINLOG_ADDRESS": "docker-compose.yml: what clients are told",
    "TWINLOG_BASE": "docker-compose.yml: the base image",
    "TWINLOG_IMAGE": "docker-compose.yml: the image",
    "TWINLOG_NETWORK": "docker-compose.yml: the network's addresses",
    "TWINLOG_PUBLISH": "docker-compose.yml: where ports are published",
}

# What Kubernetes tells every container of a service called twinlog or twinlog-..., and Docker of links.
_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT)=|_SERVICE_PORT_\w+=|_PORT_\d+_(TCP|UDP)[_=]|_PORT\w*=(tcp|udp)://")


@frozen
class FromEnvironment:
    """What the variables say, and one sentence for each that nobody knows."""

    settings: tuple[Setting, ...]
    unknown: tuple[str, ...]


def variable_of(key: str) -> str:
    """The variable of an option: TWINLOG_HA_LISTEN_PORT of haListenPort."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "_", key)
    return PREFIX + words.upper()


def read_environment(
    environment: Mapping[str, str], keys: Collection[str], elsewhere: Collection[str] = ()
) -> FromEnvironment:
    """The settings of `keys` in it; `elsewhere` are keys of other processes, which may share the variables.

    Raises ConfigError for a file that cannot be read, and for an option that is given twice.
    """
    by_letters = {_letters(variable_of(key)): key for key in (*elsewhere, *keys)}
    others = {_letters(name) for name in OTHERS}
    found: dict[str, Setting] = {}
    unknown = []
    for name, value in sorted(environment.items()):
        if (
            not name.startswith(PREFIX)
            or not value
            or _letters(name) in others
            or _KUBERNETES.search(f"{name}={value}")
        ):
            continue
        key, is_file = _key_of(name, by_letters)
        if key is None:
            if not is_file or _letters(name.removesuffix(FILE)) not in others:
                unknown.append(_unknown(name, [*map(variable_of, by_letters.values()), *OTHERS]))
        elif key in keys:
            if key in found:
                raise ConfigError(f"{found[key].source} and {name} both set {key}: remove one")
            found[key] = Setting(key, _content(name, value) if is_file else value, name)
    return FromEnvironment(tuple(found.values()), tuple(unknown))


def without_options(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for members whose options are told otherwise."""
    others = {_letters(name) for name in OTHERS}
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(PREFIX) or {_letters(name), _letters(name.removesuffix(FILE))} & others
    }


def _letters(name: str) -> str:
    return name.replace("_", "")


def _key_of(name: str, by_letters: Mapping[str, str]) -> tuple[str | None, bool]:
    """The option that a variable is about, and whether its value is a file's name."""
    if (key := by_letters.get(_letters(name))) is not None:
        return key, False  # httpTokenFile is an option itself.
    is_file = name.endswith(FILE)
    return (by_letters.get(_letters(name.removesuffix(FILE))) if is_file else None), is_file


def _content(name: str, path: str) -> str:
    try:
        return Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}={path}: cannot be read: {error}") from error


def _unknown(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"unknown variable {name}" + (f"; did you mean {near[0]}?" if near else "")
