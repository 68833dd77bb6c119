"""Subscriptions to topics, start positions of new groups, and heartbeats, which name both. Pure.

Sources: HeartbeatData, SubscriptionData, FilterAPI, PullAPIWrapper, RebalancePushImpl.computePullFromWhere (RocketMQ 4.9.8).
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from attrs import field, frozen

from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.names import SQL92, TAG
from twinlog.store.record.properties import java_hash

ALL = "*"
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"  # Sends copies of failed messages to retry topics.


@frozen
class Sql:
    """A filter on properties that the broker evaluates, such as ``Sql("price > 10 AND colour = 'red'")``.

    RocketMQ's brokers refuse it (code 1) unless they run with `enablePropertyFilter=true`.
    """

    expression: str


def _tags(expression: str) -> tuple[str, ...]:
    if expression.strip() in ("", ALL):
        return ()
    return tuple(dict.fromkeys(part.strip() for part in expression.split("||") if part.strip()))


@frozen
class Subscription:
    """A topic and its filter. `version`: its creation time in ms; brokers keep the latest."""

    topic: str
    expression: str = ALL
    kind: str = TAG
    version: int = 0
    tags: tuple[str, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "tags", _tags(self.expression) if self.kind == TAG else ())

    @classmethod
    def of(cls, topic: str, wanted: "str | Sql", version: int) -> "Subscription":
        """Raises ValueError for a filter that names no tag."""
        if isinstance(wanted, Sql):
            return cls(topic, wanted.expression, SQL92, version)
        subscription = cls(topic, wanted.strip() or ALL, TAG, version)
        if not subscription.tags and subscription.expression != ALL:
            raise ValueError(f"the filter {wanted!r} names no tag: use * or `TagA || TagB`")
        return subscription

    def matches(self, tags: str) -> bool:
        """True for wanted tags: the broker compares only their hashes. It has evaluated SQL92 filters itself."""
        return not self.tags or tags in self.tags

    @property
    def tag_filter(self) -> Callable[[str], bool] | None:
        """matches(), or None when all tags are wanted."""
        return self.matches if self.tags else None

    def to_json(self) -> dict[str, Any]:
        """The subscription's entry in a heartbeat."""
        return {
            "classFilterMode": False,
            "codeSet": sorted({java_hash(tag) for tag in self.tags}),
            "expressionType": self.kind,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }


class From(Enum):
    """Start position in a queue without a committed offset."""

    FIRST = "first"
    LAST = "last"


@frozen
class FromTime:
    """Start position near a store time; ms since 1970."""

    timestamp_ms: int


def as_heartbeat(start: From | FromTime) -> str:
    """RocketMQ's name of the start position."""
    if isinstance(start, FromTime):
        return "CONSUME_FROM_TIMESTAMP"
    return f"CONSUME_FROM_{start.name}_OFFSET"


@frozen(kw_only=True)
class ConsumerData:
    """One consumer group of a client."""

    group: str
    subscriptions: tuple[Subscription, ...]
    broadcasting: bool = False
    start: str = "CONSUME_FROM_LAST_OFFSET"
    consume_type: str = "CONSUME_PASSIVELY"

    def to_json(self) -> dict[str, Any]:
        """The group's entry in a heartbeat."""
        return {
            "consumeFromWhere": self.start,
            "consumeType": self.consume_type,
            "groupName": self.group,
            "messageModel": "BROADCASTING" if self.broadcasting else "CLUSTERING",
            "subscriptionDataSet": [each.to_json() for each in self.subscriptions],
            "unitMode": False,
        }


def heartbeat(client_id: str, producers: Iterable[str], consumers: Iterable[ConsumerData]) -> bytes:
    """The body of request 34."""
    return fastjson.dumps(
        {
            "clientID": client_id,
            "consumerDataSet": [each.to_json() for each in consumers],
            "producerDataSet": [{"groupName": group} for group in sorted({*producers, INNER_PRODUCER})],
        }
    )
