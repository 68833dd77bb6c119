"""Options from environment variables, as containers use them: TWINLOG_ and the option's name in capitals.

    brokerName        TWINLOG_BROKER_NAME=broker-a
    tls.server.mode   TWINLOG_TLS_SERVER_MODE=enforcing
    aclEnable         TWINLOG_ACL_ENABLE_FILE=/run/secrets/acl    the value is in that file, for secrets of Docker

Underscores are ignored: only letters and digits count. An empty variable counts as not set. Pure, except for the files that
`_FILE` variables name.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from attrs import frozen

from twinlog.cluster.config.config_file import Setting, did_you_mean
from twinlog.cluster.config.properties_file import ConfigError

PREFIX, FILE = "TWINLOG_", "_FILE"
# Variables of twinlog that are not options of a broker or name server, with their purpose.
OTHERS: Mapping[str, str] = {
    "TWINLOG_ACCESS_KEY": "access key of the tools",
    "TWINLOG_SECRET_KEY": "secret key of the tools",
    "TWINLOG_SECURITY_TOKEN": "security token of the tools",
    "TWINLOG_CONTEXT": "context of the tools",
    "TWINLOG_DELTA_JARS": "directory of Delta's jars for Spark",
    "TWINLOG_LOG": "log format",
    "TWINLOG_PYTHON": "the Python below an archive for Spark",
    "TWINLOG_TLS": "TLS of the tools",
    "TWINLOG_TLS_CONFIG": "TLS configuration of the tools",
    "TWINLOG_ADDRESS": "docker-compose.yml: address for clients outside",
    "TWINLOG_BASE": "docker-compose.yml: the base image",
    "TWINLOG_IMAGE": "docker-compose.yml: the image",
    "TWINLOG_PUBLISH": "docker-compose.yml: address of published ports",
    "TWINLOG_SPARK_IMAGE": "docker-compose.yml: the image of Spark",
}

# Variables that Kubernetes sets for services called twinlog or twinlog-..., and Docker for links.
_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT)=|_SERVICE_PORT_\w+=|_PORT_\d+_(TCP|UDP)[_=]|_PORT\w*=(tcp|udp)://")


@frozen
class FromEnvironment:
    """The settings in the environment, and one sentence for each unknown variable."""

    settings: tuple[Setting, ...]
    unknown: tuple[str, ...]


def variable_of(key: str) -> str:
    """Return the variable of an option: TWINLOG_HA_LISTEN_PORT for haListenPort."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "_", key)
    return PREFIX + words.upper()


def read_environment(
    environment: Mapping[str, str], keys: Collection[str], elsewhere: Collection[str] = ()
) -> FromEnvironment:
    """Return the settings of `keys`; `elsewhere` are keys of other processes, which may share the environment.

    Raises ConfigError for an unreadable file, and for an option that is set twice.
    """
    by_letters = {_letters(variable_of(key)): key for key in (*elsewhere, *keys)}
    others = {_letters(name) for name in OTHERS}
    found: dict[str, Setting] = {}
    unknown = []
    for name, value in sorted(environment.items()):
        is_foreign = _letters(name) in others or _KUBERNETES.search(f"{name}={value}")
        if not value or not name.startswith(PREFIX) or is_foreign:
            continue
        key, is_file = _key_of(name, by_letters)
        if key is None:
            if not is_file or _letters(name.removesuffix(FILE)) not in others:
                known = [*map(variable_of, by_letters.values()), *OTHERS]
                unknown.append(f"unknown variable {name}{did_you_mean(name, known, cutoff=0.7)}")
        elif key in keys:
            if key in found:
                raise ConfigError(f"{found[key].source} and {name} both set {key}: remove one")
            found[key] = Setting(key, _content(name, value) if is_file else value, name)
    return FromEnvironment(tuple(found.values()), tuple(unknown))


def without_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without options, for members that get their options in another way."""
    others = {_letters(name) for name in OTHERS}
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(PREFIX) or {_letters(name), _letters(name.removesuffix(FILE))} & others
    }


def _letters(name: str) -> str:
    return name.replace("_", "")


def _key_of(name: str, by_letters: Mapping[str, str]) -> tuple[str | None, bool]:
    """Return the option of a variable, and whether its value is the name of a file."""
    if (key := by_letters.get(_letters(name))) is not None:
        return key, False  # httpTokenFile is an option itself.
    is_file = name.endswith(FILE)
    return (by_letters.get(_letters(name.removesuffix(FILE))) if is_file else None), is_file


def _content(name: str, path: str) -> str:
    try:
        return Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}={path}: cannot be read: {error}") from error
