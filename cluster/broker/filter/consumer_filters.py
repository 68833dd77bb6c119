"""Filter expressions by group and topic: a pure table, kept in consumerFilter.json.

    heartbeat with SQL92 -> compiled, with its version; the same expression again only updates the version
    topic no longer listed, or the group's last consumer gone -> dead; a heartbeat revives it, after 24 h it is dropped
    invalid expression -> not stored, so pulls are answered FILTER_DATA_NOT_EXIST

Sources: ConsumerFilterManager.java, ConsumerFilterData.java (RocketMQ 4.9.7). Unlike there, expressions that cannot be
compiled are dropped when the file is loaded; RocketMQ would send such a group all messages.

bloom_positions computes the bits that RocketMQ gives each subscription: without them RocketMQ ignores the file. The hash is
the first half of Austin Appleby's murmur3 (x64, 128 bits) with seed 0. Source: BloomFilter.java (RocketMQ 4.9.7).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
from attrs import define, field

from twinlog.cluster.broker.filter.expression import SelectorError
from twinlog.cluster.broker.filter.sql import RawFilter, SqlFilter, compile_sql
from twinlog.cluster.broker.filter.tags import SubscriptionData
from twinlog.cluster.remoting import names
from twinlog.store.record.properties import parse_properties

_M64 = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
# Of maxErrorRateOfBloomFilter=20 and expectConsumerNumUseFilter=32, RocketMQ's defaults: twinlog has no bit maps.
BLOOM_BITS, _BLOOM_HASHES = 112, 3


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _M64


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _M64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _M64
    return value ^ value >> 33


def murmur3_64(data: bytes) -> int:
    """Return the first 64 bits of murmur3 x64 128, unsigned."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        k1 = int.from_bytes(data[at : at + 8], "little")
        k2 = int.from_bytes(data[at + 8 : at + 16], "little")
        h1 ^= _rotated(k1 * _C1 & _M64, 31) * _C2 & _M64
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _M64
        h2 ^= _rotated(k2 * _C2 & _M64, 33) * _C1 & _M64
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _M64
    tail = data[whole:]
    h2 ^= _rotated(int.from_bytes(tail[8:], "little") * _C2 & _M64, 33) * _C1 & _M64
    h1 ^= _rotated(int.from_bytes(tail[:8], "little") * _C1 & _M64, 31) * _C2 & _M64
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _M64
    h2 = (h2 + h1) & _M64
    return (_final(h1) + _final(h2)) & _M64


def bloom_positions(text: str) -> list[int]:
    """Return the bits of a subscription, `group#topic`."""
    hash64 = murmur3_64(text.encode())
    low, high = hash64 & 0xFFFFFFFF, hash64 >> 32
    sums = ((low + i * high) & 0xFFFFFFFF for i in range(1, _BLOOM_HASHES + 1))
    return [(value ^ 0xFFFFFFFF if value >> 31 else value) % BLOOM_BITS for value in sums]


log = structlog.get_logger(__name__)

DEAD_MS_MAX = 24 * 3_600_000
HEARTBEAT_CHARACTERS_MAX = 32 * 1024  # Ours: of new expressions in all groups of a heartbeat.
FILTERS_MAX = 10_000  # Ours: pairs of group and topic; a file may have more.
_DEAD_BEFORE_LOAD_MS = 30_000
RETRY_TOPIC = "RETRY_TOPIC"


def compile_expression(expression: str, expression_type: str) -> SqlFilter:
    """Compile an expression. Raises SelectorError for an invalid one or an unknown type."""
    if expression_type != names.SQL92:
        raise SelectorError(f"{expression_type[:40]} is not a type of expression; types are TAG and {names.SQL92}")
    return compile_sql(expression)


@define(eq=False)
class ConsumerFilterData:
    """Expression of a group for a topic. Times in ms since 1970."""

    topic: str
    group: str
    filter: SqlFilter
    expression_type: str
    client_version: int
    born_ms: int
    dead_ms: int = 0

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms

    def to_json(self) -> dict[str, Any]:
        return {
            "bloomFilterData": {"bitNum": BLOOM_BITS, "bitPos": bloom_positions(f"{self.group}#{self.topic}")},
            "bornTime": self.born_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.is_dead,
            "deadTime": self.dead_ms,
            "expression": self.filter.text,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }


@define(eq=False)
class ConsumerFilterManager:
    """Filter expressions by topic and group. `changed` is called when the file has to be written. `is_by_tag`: True when a group
    now filters a topic by tags, or does not subscribe to it; its dead expression is kept for a while.
    """

    now_ms: Callable[[], int]
    changed: Callable[[], None] = lambda: None
    is_by_tag: Callable[[str, str], bool] = lambda _group, _topic: False
    _topics: dict[str, dict[str, ConsumerFilterData]] = field(factory=dict, init=False)  # By topic and group.
    _groups: dict[str, set[str]] = field(factory=dict, init=False)  # The topics of each group.
    _retry_filters: dict[str, RawFilter] = field(factory=dict, init=False)

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return an expression, also a dead one."""
        return self._topics.get(topic, {}).get(group)

    def register(
        self, group: str, subscriptions: Iterable[SubscriptionData], characters_max: int = HEARTBEAT_CHARACTERS_MAX
    ) -> int:
        """Register the topics of a group's heartbeat; its other topics become dead.

        The size of new expressions per heartbeat is limited, as compiling them blocks the event loop; the rest is compiled at the
        next heartbeats. Returns the number of characters left for the heartbeat's other groups.
        """
        listed, left = set(), characters_max
        for subscription in subscriptions:
            listed.add(subscription.topic)
            if not subscription.is_tag and subscription.sub_string and self._is_newer(group, subscription):
                left -= len(subscription.sub_string)
                if left >= 0:
                    self._register_one(group, subscription)
        if left < 0:
            log.warning("a heartbeat has too many new expressions: the rest waits for the next one", group=group)
        for topic in self._groups.get(group, set()) - listed:
            self._die(self._topics[topic][group])
        return max(left, 0)

    def _is_newer(self, group: str, subscription: SubscriptionData) -> bool:
        """True when a subscription is newer than the known one; the same version revives that."""
        old = self.get(subscription.topic, group)
        if old is not None and subscription.sub_version == old.client_version:
            self._revive(old)
        return old is None or subscription.sub_version > old.client_version

    def _register_one(self, group: str, subscription: SubscriptionData) -> None:
        topic, version = subscription.topic, subscription.sub_version
        old = self.get(topic, group)
        text, kind = subscription.sub_string, subscription.expression_type
        if old is not None and (old.filter.text, old.expression_type) == (text, kind):
            old.client_version = version
            self._revive(old)
            self.changed()
            return
        if old is None and len(self) >= FILTERS_MAX:
            log.warning("too many filters: a new one is not stored", topic=topic, group=group, filters=len(self))
            return
        try:
            compiled = compile_expression(text, kind)
        except SelectorError as error:
            log.warning(
                "a filter expression is invalid", topic=topic, group=group, expression=text[:200], why=str(error)
            )
            if old is not None:
                self._forget(topic, group)
            return
        self._keep(ConsumerFilterData(topic, group, compiled, kind, version, self.now_ms()))
        self.changed()

    def _keep(self, data: ConsumerFilterData) -> None:
        self._topics.setdefault(data.topic, {})[data.group] = data
        self._groups.setdefault(data.group, set()).add(data.topic)

    def _forget(self, topic: str, group: str) -> None:
        for table, key, inner in ((self._topics, topic, group), (self._groups, group, topic)):
            held: Any = table[key]
            held.pop(inner) if isinstance(held, dict) else held.discard(inner)
            if not held:
                del table[key]
        self.changed()

    def _revive(self, data: ConsumerFilterData) -> None:
        if data.is_dead:
            data.dead_ms = 0
            self.changed()

    def _die(self, data: ConsumerFilterData) -> None:
        if not data.is_dead:
            data.dead_ms = self.now_ms()
            self.changed()

    def unregister(self, group: str) -> None:
        """Mark all expressions of a group dead, when its last consumer has left."""
        for topic in self._groups.get(group, ()):
            self._die(self._topics[topic][group])

    def clean(self, dead_ms_max: int = DEAD_MS_MAX) -> None:
        """Drop expressions that have been dead for so long."""
        before = self.now_ms() - dead_ms_max
        for data in [data for groups in self._topics.values() for data in groups.values()]:
            if data.is_dead and data.dead_ms <= before:
                self._forget(data.topic, data.group)

    def retry_filter(self, retry_topic: str) -> RawFilter:
        """Return the filter of an existing retry topic: each message is matched by the group's filter of its original topic."""
        known = self._retry_filters.get(retry_topic)  # One object, so that held pulls share it.
        if known is not None:
            return known
        group = retry_topic.removeprefix(names.RETRY_PREFIX)

        def accepts(raw_properties: bytes) -> bool:
            properties = parse_properties(raw_properties.decode("utf-8", "replace"))
            data = self.get(properties.get(RETRY_TOPIC, ""), group)
            if data is None or data.is_dead or self.is_by_tag(group, data.topic):
                return True
            return data.filter.matches(properties)

        self._retry_filters[retry_topic] = accepts
        return accepts

    def to_json(self) -> dict[str, Any]:
        """Return the content of consumerFilter.json."""
        return {
            "filterDataByTopic": {
                topic: {"groupFilterData": {group: data.to_json() for group, data in groups.items()}, "topic": topic}
                for topic, groups in self._topics.items()
            }
        }

    def merge(self, value: Mapping[str, Any]) -> None:
        """Load a table in the form of to_json(), with or without bits; its expressions are dead until a heartbeat has them.

        Raises ValueError.
        """
        for topic, groups in (value.get("filterDataByTopic") or {}).items():
            for group, item in ((groups or {}).get("groupFilterData") or {}).items():
                if item:
                    self._load(topic, group, item)

    def _load(self, topic: str, group: str, item: Mapping[str, Any]) -> None:
        expression, kind = str(item.get("expression") or ""), str(item.get("expressionType") or "")
        version = int(item.get("clientVersion") or 0)
        born_ms, dead_ms = int(item.get("bornTime") or 0), int(item.get("deadTime") or 0)
        try:
            compiled = compile_expression(expression, kind)
        except SelectorError as error:
            log.warning(
                "a filter was dropped: its expression is invalid",
                topic=topic,
                group=group,
                expression=expression[:200],
                why=str(error),
            )
            return
        dead_ms = dead_ms or max(born_ms, self.now_ms() - _DEAD_BEFORE_LOAD_MS)
        self._keep(ConsumerFilterData(topic, group, compiled, kind, version, born_ms, dead_ms))
