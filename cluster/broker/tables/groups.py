"""The consumer groups this broker knows, with what they may do: a pure table.

Sources: SubscriptionGroupConfig.java, SubscriptionGroupManager.java (RocketMQ 4.9.8).
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

import structlog
from attrs import define, field, fields, frozen

from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.names import DataVersion

log = structlog.get_logger(__name__)

BUILT_IN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)


def _wire(name: str, default: Any) -> Any:
    return field(default=default, metadata={"wire": name})


@frozen(kw_only=True)
class SubscriptionGroupConfig:
    """Fields in the order in which fastjson writes them."""

    broker_id: int = _wire("brokerId", 0)
    consume_broadcast_enable: bool = _wire("consumeBroadcastEnable", True)
    consume_enable: bool = _wire("consumeEnable", True)
    consume_from_min_enable: bool = _wire("consumeFromMinEnable", True)
    name: str = _wire("groupName", "")
    notify_consumer_ids_changed_enable: bool = _wire("notifyConsumerIdsChangedEnable", True)
    retry_times_max: int = _wire("retryMaxTimes", 16)
    retry_queues: int = _wire("retryQueueNums", 1)
    which_broker_when_consume_slowly: int = _wire("whichBrokerWhenConsumeSlowly", 1)

    def plain(self) -> dict[str, Any]:
        return {wire: getattr(self, name) for wire, name, _kind in _FIELDS}

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        """What is missing takes the default. Raises ValueError for a bad name, TypeError for a wrong type."""
        config = cls(**{name: kind(value[wire]) for wire, name, kind in _FIELDS if value.get(wire) is not None})
        if fault := names.group_fault(config.name):
            raise ValueError(fault)
        return config


_FIELDS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = tuple(
    (item.metadata["wire"], item.name, type(item.default)) for item in fields(SubscriptionGroupConfig)
)


@define(eq=False)
class SubscriptionGroupManager:
    """`changed` is called after each change of ours with the group's name: it persists the table."""

    now_ms: Callable[[], int]
    auto_create: bool = True
    changed: Callable[[str], None] = lambda _group: None
    table: dict[str, SubscriptionGroupConfig] = field(init=False)
    version: DataVersion = field(init=False)

    @table.default
    def _built_in(self) -> dict[str, SubscriptionGroupConfig]:
        return {name: SubscriptionGroupConfig(name=name) for name in BUILT_IN_GROUPS}

    @version.default
    def _first_version(self) -> DataVersion:
        return DataVersion(self.now_ms())

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, made on its first use where that is allowed."""
        config = self.table.get(group)
        if config is not None or not (self.auto_create or group.startswith(names.SYSTEM_GROUP_PREFIX)):
            return config
        if names.group_fault(group) is not None:
            return None
        log.info("consumer group created on its first use", group=group)
        return self.update(SubscriptionGroupConfig(name=group))

    def update(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """Add or replace. Raises RequestError for a name that cannot be, or one too many."""
        if config.name not in self.table:
            names.require_group(config.name)
            names.require_room("consumer groups", len(self.table), names.GROUPS_MAX)
        self.table[config.name] = config
        self._next_version(config.name)
        return config

    def delete(self, group: str) -> bool:
        """Whether there was one."""
        if self.table.pop(group, None) is None:
            return False
        self._next_version(group)
        return True

    def _next_version(self, group: str) -> None:
        self.version = self.version.next(self.now_ms())
        self.changed(group)

    def plain(self) -> dict[str, Any]:
        """subscriptionGroup.json, and the body of 201."""
        return {
            "dataVersion": self.version.to_json(),
            "subscriptionGroupTable": {name: config.plain() for name, config in self.table.items()},
        }

    def merge(self, value: Mapping[str, Any]) -> None:
        """Put what was saved over the built-in groups. Raises ValueError, TypeError."""
        table, version = read_groups(value), value.get("dataVersion")
        self.version = DataVersion.read(version) if version else self.version
        self.table.update(table)

    def fill(self, value: Mapping[str, Any], built_in: Mapping[str, SubscriptionGroupConfig]) -> None:
        """Take another member's table where this one was lost: all but what was changed here since. `built_in` is what this
        one began with. Raises ValueError, TypeError.
        """
        told, version = read_groups(value), DataVersion.read(value.get("dataVersion") or {})
        self.table.update({name: each for name, each in told.items() if self.table.get(name) == built_in.get(name)})
        if not self.version.counter:
            self.version = version
        else:  # It is neither table any more.
            newest = version if version.counter > self.version.counter else self.version
            self.version = newest.next(self.now_ms())

    def replace(self, value: Mapping[str, Any]) -> bool:
        """Take a master's table when its version is another; whether it was. Raises ValueError, TypeError."""
        version = DataVersion.read(value.get("dataVersion") or {})
        if version == self.version:
            return False
        self.table = read_groups(value)
        self.version = version
        return True


def read_groups(value: Mapping[str, Any]) -> dict[str, SubscriptionGroupConfig]:
    """Raises ValueError, TypeError."""
    table = value.get("subscriptionGroupTable") or {}
    if not isinstance(table, dict):
        raise ValueError("subscriptionGroupTable is no table")
    return {name: SubscriptionGroupConfig.read({**entry, "groupName": name}) for name, entry in table.items()}
