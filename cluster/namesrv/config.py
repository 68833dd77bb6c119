"""Configuration of name servers, and its change while one runs (318): an allow-list with a range for each number. Pure.

RocketMQ sets any key that it finds by reflection, except those in its black list. Here a key that is not in the allow-list
cannot be changed over the network, above all no path, host or port. Sources: NamesrvConfig, NettyServerConfig,
DefaultRequestProcessor.updateConfig, Configuration.update (RocketMQ 4.9.8).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from attrs import evolve, fields, frozen, validators

from twinlog.cluster.config.config_file import format_value, read_value
from twinlog.cluster.config.properties_file import parse_properties
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.store.config import option


@frozen(kw_only=True)
class NamesrvConfig:
    """Options of the name server. Times in milliseconds."""

    listen_port: int = option(
        9876, key="listenPort", doc="TCP port", validator=validators.and_(validators.ge(0), validators.le(65_535))
    )
    outside_listen_port: int = option(
        0,
        key="outsideListenPort",
        doc="a second TCP port, for clients beyond an address translation: they are told outsideAddress for each broker; 0: none",
        validator=validators.and_(validators.ge(0), validators.le(65_535)),
    )
    outside_address: str = option(
        "127.0.0.1",
        key="outsideAddress",
        doc="the IP or host name at which such clients reach each broker, at the port that it announces",
        validator=validators.matches_re(r"[^\s:/]+|\[[0-9a-fA-F:.]+\]"),
    )
    kv_config_path: Path | None = option(
        Path("~/namesrv/kvConfig.json"), key="kvConfigPath", doc="file of the KV configuration; none: in memory only"
    )
    order_message_enable: bool = option(
        False, key="orderMessageEnable", doc="routes carry the topic's orderTopicConf from the KV configuration"
    )
    scan_not_active_broker_interval_ms: int = option(
        10_000,
        key="scanNotActiveBrokerInterval",
        doc="interval of the check for brokers that have stopped registering",
        validator=validators.ge(1),
    )
    broker_not_active_timeout_ms: int = option(
        120_000,
        key="brokerNotActiveTimeoutMillis",
        doc="a broker that has not registered for this long is dropped",
        validator=validators.ge(1),
    )


# Key -> smallest and largest value; None for a boolean. Scans more often than each second would take all CPU time. Brokers
# register every 30 s: with less than a minute, a single missed registration would drop them.
CHANGEABLE: Mapping[str, tuple[int, int] | None] = {
    "orderMessageEnable": None,
    "scanNotActiveBrokerInterval": (1_000, 3_600_000),
    "brokerNotActiveTimeoutMillis": (60_000, 86_400_000),
}
BLACK_LIST = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})

_FIELDS = {each.metadata["key"]: each.name for each in fields(NamesrvConfig)}
_FIXED = {
    each.metadata["key"] for config in (NamesrvConfig, ServerConfig, TlsConfig) for each in fields(config)
} - CHANGEABLE.keys()


def changed(config: NamesrvConfig, body: bytes | memoryview) -> tuple[NamesrvConfig, dict[str, str]]:
    """Apply the `key=value` lines of `body`; returns the new configuration, and the changed values as text by key.

    Raises RequestError, and nothing is changed: code 16 for a key that cannot be changed while the server runs, code 1 for an
    invalid value.
    """
    try:
        given = {entry.key: entry.value.strip() for entry in parse_properties(bytes(body).decode())}
    except UnicodeDecodeError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the configuration is not UTF-8: {error}") from None
    if given.keys() & BLACK_LIST:
        raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    for key in sorted(given.keys() - CHANGEABLE.keys()):
        remark = (
            f"{key:.60} cannot be changed while the name server runs: change its configuration file, then restart it"
        )
        if key not in _FIXED:  # RocketMQ silently ignores unknown keys.
            remark = f"{key:.60} is not an option of name servers"
        raise RequestError(ResponseCode.NO_PERMISSION, remark)
    values = {key: _value(key, given[key]) for key in CHANGEABLE.keys() & given.keys()}
    new = evolve(config, **{_FIELDS[key]: value for key, value in values.items()})
    return new, {key: format_value(value) for key, value in sorted(values.items())}


def _value(key: str, text: str) -> Any:
    limits = CHANGEABLE[key]
    try:
        value = read_value(text, get_type_hints(NamesrvConfig)[_FIELDS[key]])
        if limits and not limits[0] <= value <= limits[1]:
            raise ValueError(f"{limits[0]} to {limits[1]}")
    except ValueError as error:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{key}={text:.60}: expected {error}") from None
    return value
