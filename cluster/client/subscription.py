"""What a consumer wants of a topic. Pure. Sources: SubscriptionData, FilterAPI, PullAPIWrapper (RocketMQ 4.9.8)."""

from enum import Enum
from typing import Any

from attrs import field, frozen

from twinlog.store.record.properties import java_hash

ALL = "*"
TAG, SQL92 = "TAG", "SQL92"


@frozen
class Sql:
    """A filter over properties, such as ``Sql("price > 10 AND colour = 'red'")``. The broker evaluates it.

    RocketMQ's brokers refuse it (code 1) unless they run with `enablePropertyFilter=true`.
    """

    expression: str


def _tags(expression: str) -> tuple[str, ...]:
    if expression.strip() in ("", ALL):
        return ()
    return tuple(dict.fromkeys(part.strip() for part in expression.split("||") if part.strip()))


@frozen
class Subscription:
    """One topic and its filter. `version` is when it was made, in ms: brokers keep the latest."""

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
            raise ValueError(f"the filter {wanted!r} names no tag: allowed is * or `TagA || TagB`")
        return subscription

    def matches(self, tags: str) -> bool:
        """The broker compared hashes of tags; this compares words. SQL92 it has evaluated itself."""
        return not self.tags or tags in self.tags

    def to_json(self) -> dict[str, Any]:
        """As it stands in a heartbeat."""
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
    """Where to begin in a queue that says nothing else."""

    FIRST = "first"
    LAST = "last"


@frozen
class FromTime:
    """Begin near a store time; ms since 1970."""

    timestamp_ms: int


def as_heartbeat(start: From | FromTime) -> str:
    """RocketMQ's word for it."""
    if isinstance(start, FromTime):
        return "CONSUME_FROM_TIMESTAMP"
    return f"CONSUME_FROM_{start.name}_OFFSET"
