"""Names of topics, groups and members, addresses, and versions of tables: limits, reserved names, checks.

Name servers and slaves compare a table's DataVersion to see whether they have the table already (DataVersion.java).
Sources: TopicValidator.java, Validators.java, MixAll.java, TransactionalMessageUtil.java (RocketMQ 4.9.8).
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Self

from attrs import frozen

from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError

TOPIC_LENGTH_MAX = 127
GROUP_LENGTH_MAX = 255
# Limits of twinlog on what requests add to tables. Tables from disk or from a master are taken unchanged.
TOPICS_MAX = 100_000
GROUPS_MAX = 100_000
OFFSETS_MAX = 1_000_000  # Pairs of topic and group.
QUEUE_ID_MAX = 65_535
HEARTBEAT_BYTES_MAX = 1 << 20
EXPRESSION_LENGTH_MAX = 32_767  # Characters of one subscription.
_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")
_OUT_OF_PLACE = re.compile(r"[^%|a-zA-Z0-9_.-]")

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"  # Its offsets: progress of the transaction service in half and op messages.
FAST_PORT_DISTANCE, HA_PORT_DISTANCE = 2, 1  # Of RocketMQ's fast port below the main one, and of its HA port above it.
TAG, SQL92 = "TAG", "SQL92"  # Kinds of filters.

FORBIDDEN_TO_SEND = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
SYSTEM_TOPICS = FORBIDDEN_TO_SEND | {AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC}


def topic_fault(topic: str) -> str | None:
    """The fault of a topic name, in RocketMQ's text; None for a valid one."""
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if not _ALLOWED.fullmatch(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_LENGTH_MAX:
        return f"The specified topic is longer than topic max length {TOPIC_LENGTH_MAX}."
    return None


def group_fault(group: str) -> str | None:
    """The fault of a group name; None for a valid one."""
    if not group or group.isspace():
        return "the specified group is blank"
    if not _ALLOWED.fullmatch(group):
        return f"the specified group[{group[:40]}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(group) > GROUP_LENGTH_MAX:
        return f"the specified group is longer than group max length {GROUP_LENGTH_MAX}"
    return None


def as_component(text: str) -> str:
    """Make a name safe as one component of a path: it cannot lead to another directory."""
    return _OUT_OF_PLACE.sub("_", text)[:GROUP_LENGTH_MAX].lstrip(".") or "_"


def require_topic(topic: str) -> None:
    """Raise RequestError for an invalid topic name, before a directory or a table entry is made of it."""
    if fault := topic_fault(topic):
        raise RequestError(ResponseCode.SYSTEM_ERROR, fault)


def require_group(group: str) -> None:
    """Raise RequestError for an invalid group name."""
    if fault := group_fault(group):
        raise RequestError(ResponseCode.SYSTEM_ERROR, fault)


def require_room(what: str, count: int, most: int) -> None:
    """Raise RequestError when a table with `count` entries has its maximum, `most`."""
    if count >= most:
        remark = f"this broker has {count} {what}, no more than {most} are possible: delete some that are not needed"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark)


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def member_name(group: str, broker_id: int, directory: str) -> str:
    """The name of a member in `twinlog list`: its store directory if that is GROUP-NUMBER, else the group and brokerId."""
    return directory if directory.startswith(f"{group}-") else f"{group}-{broker_id}"


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 host is in brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    is_host = colon and host and host.isprintable() and " " not in host and (bracketed or ":" not in host)
    if not (is_host and port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) <= 65_535):
        raise ValueError(f"{address!r:.80} is not host:port")
    return host, int(port)


def shifted(address: str, distance: int) -> str:
    """The address of another port of the same host, so many above it; "" for none."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + distance}" if host and port.isdecimal() and 0 < int(port) + distance <= 65_535 else ""


def ip_of(address: str) -> str:
    """The host of HOST:PORT, an IP without brackets. See host_names.py for the IP of a name."""
    return address.rpartition(":")[0].strip("[]")


@lru_cache(maxsize=4096)
def is_ip(host: str) -> bool:
    """True for an IP without brackets."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@frozen
class DataVersion:
    """Version of a table; equal when timestamp and counter are."""

    timestamp: int  # ms
    counter: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        return DataVersion(now_ms, self.counter + 1)

    def to_json(self) -> dict[str, int]:
        return {"counter": self.counter, "timestamp": self.timestamp}

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        """Raises ValueError, TypeError for values that are not numbers."""
        return cls(timestamp=int(value.get("timestamp", 0)), counter=int(value.get("counter", 0)))
