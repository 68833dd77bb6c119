"""Consumer groups of a broker and their settings: a pure table.

Sources: SubscriptionGroupConfig.java, SubscriptionGroupManager.java (RocketMQ 4.9.8).
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from attrs import define, field, fields, frozen

from twinlog.cluster.broker.tables.versioned import VersionedTable
from twinlog.cluster.config.json_file import entries_of
from twinlog.cluster.remoting import names
from twinlog.store.util.late_logger import LateLogger

log = LateLogger(__name__)

GROUPS_KEY = "subscriptionGroupTable"
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

    def to_json(self) -> dict[str, Any]:
        return {wire: getattr(self, name) for wire, name, _kind in _FIELDS}

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        """Read a group; missing keys take the default. Raises ValueError for a bad name, TypeError for a wrong type."""
        config = cls(**{name: kind(value[wire]) for wire, name, kind in _FIELDS if value.get(wire) is not None})
        if fault := names.group_fault(config.name):
            raise ValueError(fault)
        return config


_FIELDS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = tuple(
    (item.metadata["wire"], item.name, type(item.default)) for item in fields(SubscriptionGroupConfig)
)


def read_groups(value: Mapping[str, Any]) -> dict[str, SubscriptionGroupConfig]:
    """Read the groups of subscriptionGroup.json. Raises ValueError, TypeError."""
    entries = entries_of(value, GROUPS_KEY)
    return {name: SubscriptionGroupConfig.read({**entry, "groupName": name}) for name, entry in entries.items()}


@define(eq=False)
class SubscriptionGroupManager(VersionedTable[SubscriptionGroupConfig]):
    """Groups by name: subscriptionGroup.json, and the body of 201."""

    KEY: ClassVar[str] = GROUPS_KEY
    read = staticmethod(read_groups)

    def __attrs_post_init__(self) -> None:
        self.table = {name: SubscriptionGroupConfig(name=name) for name in BUILT_IN_GROUPS}

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group, created on its first use if that is allowed."""
        config = self.table.get(group)
        if config is not None or not (self.auto_create or group.startswith(names.SYSTEM_GROUP_PREFIX)):
            return config
        if names.group_fault(group) is not None:
            return None
        log.info("consumer group created on its first use", group=group)
        return self.update(SubscriptionGroupConfig(name=group))

    def update(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """Add or replace a group. Raises RequestError for an invalid name, or above the limit of groups."""
        if config.name not in self.table:
            names.require_group(config.name)
            names.require_room("consumer groups", len(self.table), names.GROUPS_MAX)
        self.table[config.name] = config
        self.renew_version(config.name)
        return config
