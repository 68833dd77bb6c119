"""Formats of mqadmin. Pure. Sources: UtilAll, PermName, TopicConfig, SubscriptionGroupConfig (RocketMQ 4.9.7)."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import orjson

from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting.route import PERM_INHERIT, PERM_READ, PERM_WRITE


def lines(found: Iterable[str]) -> str:
    """Join lines, each with a line feed."""
    return "".join(f"{line}\n" for line in found)


def moment(milliseconds: int) -> str:
    """Local time, 2026-11-22 07:30:00,123."""
    return f"{second(milliseconds)},{milliseconds % 1000:03}"


def second(milliseconds: int) -> str:
    """Local time without milliseconds."""
    return f"{datetime.fromtimestamp(milliseconds / 1000):%Y-%m-%d %H:%M:%S}"


def parse_moment(text: str) -> int:
    """Parse `now` (-1), milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS local time into milliseconds. Raises ValueError."""
    if text == "now":
        return -1
    try:
        return int(text)
    except ValueError:
        pass
    try:
        day, _, milliseconds = text.rpartition(":")
        return int(datetime.strptime(day, "%Y-%m-%d#%H:%M:%S").timestamp()) * 1000 + int(milliseconds)
    except ValueError:
        raise ValueError("expected now, milliseconds since 1970, or yyyy-MM-dd#HH:mm:ss:SSS") from None


def boolean(value: bool) -> str:
    return "true" if value else "false"


def perm(bits: int) -> str:
    """RWX, with a dash for each missing permission."""
    return "".join(
        letter if bits & bit else "-" for letter, bit in (("R", PERM_READ), ("W", PERM_WRITE), ("X", PERM_INHERIT))
    )


def topic_config(config: TopicConfig) -> str:
    return (
        f"TopicConfig [topicName={config.name}, readQueueNums={config.read_queues}, "
        f"writeQueueNums={config.write_queues}, perm={perm(config.perm)}, topicFilterType={config.filter_type}, "
        f"topicSysFlag={config.sys_flag}, order={boolean(config.order)}]"
    )


def group_config(config: SubscriptionGroupConfig) -> str:
    return (
        f"SubscriptionGroupConfig [groupName={config.name}, consumeEnable={boolean(config.consume_enable)}, "
        f"consumeFromMinEnable={boolean(config.consume_from_min_enable)}, "
        f"consumeBroadcastEnable={boolean(config.consume_broadcast_enable)}, retryQueueNums={config.retry_queues}, "
        f"retryMaxTimes={config.retry_times_max}, brokerId={config.broker_id}, "
        f"whichBrokerWhenConsumeSlowly={config.which_broker_when_consume_slowly}, "
        f"notifyConsumerIdsChangedEnable={boolean(config.notify_consumer_ids_changed_enable)}]"
    )


def version_name(number: int) -> str:
    """V4_9_7 for 407: since V4_5_0 (313) a release has two numbers, snapshot and final, ten to a minor version (MQVersion)."""
    if number < 312:
        return f"V{number}"
    step, is_final = divmod(number - 312, 2)
    minor, patch = divmod(step, 10)
    major, minor = divmod(45 + minor, 10)
    return f"V{major}_{minor}_{patch}{'' if is_final else '_SNAPSHOT'}"


def json(value: Any, indent: str = "\n") -> str:
    """Write fastjson's PrettyFormat: a line for each key and each element, but number keys side by side."""
    deeper = f"{indent}\t"
    if isinstance(value, dict) and value and isinstance(next(iter(value)), int):
        return "{" + ",".join(f"{key}:{json(each, deeper)}" for key, each in value.items()) + indent + "}"
    if isinstance(value, dict) and value:
        pairs = (f'{deeper}"{key}":{json(each, deeper)}' for key, each in value.items())
        return "{" + ",".join(pairs) + indent + "}"
    if isinstance(value, list) and value:
        return "[" + ",".join(deeper + json(each, deeper) for each in value) + indent + "]"
    return orjson.dumps(value).decode()
