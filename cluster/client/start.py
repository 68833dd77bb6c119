"""Where a group begins in a queue for which it has no offset. Source: RebalancePushImpl.computePullFromWhere (4.9.8)."""

from enum import Enum

from attrs import frozen


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
