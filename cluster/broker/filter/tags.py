"""Subscriptions of groups to topics, by tag.

Sources: SubscriptionData.java, FilterAPI.java, ExpressionMessageFilter.java (RocketMQ 4.9.8). Only tag hashes are
compared here; the client compares the tags themselves.
"""

from collections.abc import Mapping
from typing import Any, Self

from attrs import field, frozen

from twinlog.cluster.remoting.names import EXPRESSION_LENGTH_MAX, SQL92, TAG
from twinlog.store.record.properties import java_hash

ALL = "*"


class SubscriptionError(ValueError):
    """The expression is invalid; the client receives code 23."""


@frozen(kw_only=True)
class SubscriptionData:
    """Subscription of a group to a topic, as clients send it in heartbeats."""

    topic: str
    sub_string: str = ALL
    tags: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()  # Java hashes, signed 32 bits.
    sub_version: int = 0  # The latest version counts.
    expression_type: str = TAG
    class_filter_mode: bool = False
    wanted: frozenset[int] | None = field(init=False, eq=False, repr=False)  # None: everything.

    @wanted.default
    def _wanted(self) -> frozenset[int] | None:
        if self.class_filter_mode or self.expression_type == SQL92 or self.sub_string == ALL:
            return None
        return frozenset(self.codes) or frozenset(java_hash(tag) for tag in split_tags(self.sub_string))

    @property
    def is_tag(self) -> bool:
        return self.expression_type == TAG

    def to_json(self) -> dict[str, Any]:
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": list(self.codes),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        """Read a subscription of a heartbeat. Raises ValueError, TypeError."""
        _check_length(str(value.get("subString") or ALL))
        return cls(
            topic=str(value["topic"]),
            sub_string=str(value.get("subString") or ALL),
            tags=tuple(str(tag) for tag in value.get("tagsSet") or ()),
            codes=tuple(int(code) for code in value.get("codeSet") or ()),
            sub_version=int(value.get("subVersion") or 0),
            expression_type=str(value.get("expressionType") or TAG),
            class_filter_mode=value.get("classFilterMode") is True,
        )


def _check_length(expression: str) -> None:
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise SubscriptionError(
            f"an expression of {len(expression)} characters; at most {EXPRESSION_LENGTH_MAX} are allowed"
        )


def split_tags(expression: str) -> list[str]:
    """Split `TagA || TagB` into a list, each tag once."""
    return list(dict.fromkeys(tag.strip() for tag in expression.split("||") if tag.strip()))


def build_subscription(topic: str, expression: str | None, expression_type: str | None = None) -> SubscriptionData:
    """Make the subscription of a pull request that has its own. Raises SubscriptionError."""
    _check_length(expression or "")
    if expression_type and expression_type != TAG:
        if not expression:
            raise SubscriptionError("Expression can't be null! " + expression_type)
        return SubscriptionData(topic=topic, sub_string=expression, expression_type=expression_type)
    if not expression or expression == ALL:
        return SubscriptionData(topic=topic)
    if not expression.replace("|", ""):  # Java's split returns nothing for it.
        raise SubscriptionError("subString split error")
    tags = split_tags(expression)
    return SubscriptionData(
        topic=topic, sub_string=expression, tags=tuple(tags), codes=tuple(java_hash(tag) for tag in tags)
    )
