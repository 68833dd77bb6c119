"""What is told of topics, and of changes of them: frozen results, and the pure functions that make them.

What is not known is None, never 0. Offsets count messages.
"""

from collections.abc import Mapping

from attrs import frozen

from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.client.api.api import QueueOffsets
from twinlog.cluster.client.route import MessageQueue, QueueData
from twinlog.cluster.observe.requests import Consumers
from twinlog.cluster.observe.targets import Target

# Topics that RocketMQ makes for itself. Source: TopicValidator, MixAll (4.9.8).
SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
SYSTEM_PREFIXES = ("rmq_sys_", "%RETRY%", "%DLQ%")


class NoTopicError(Exception):
    """No broker has such a topic."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no broker that is registered now has the topic {name}")
        self.name = name


class TopicExistsError(Exception):
    """It is there already."""

    def __init__(self, name: str, brokers: tuple[str, ...]) -> None:
        super().__init__(f"the topic {name} exists already, on {', '.join(brokers)}")
        self.name = name


@frozen(kw_only=True)
class TopicSummary:
    """One topic over all broker groups. Offsets count messages, summed over queues; None: no answer."""

    name: str
    brokers: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: str
    min_offset_sum: int | None
    max_offset_sum: int | None
    messages: int | None
    last_update_ms: int | None  # When the last message was stored.


@frozen
class TopicList:
    """Every topic that was asked for."""

    topics: tuple[TopicSummary, ...]


@frozen(kw_only=True)
class TopicOnBroker:
    """How a topic is set up on one broker group; None: no answer."""

    broker: str
    address: str
    read_queues: int | None
    write_queues: int | None
    perm: str | None
    order: bool | None


@frozen(kw_only=True)
class QueueState:
    """One queue: the offsets of its first message and of its next one."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    last_update_ms: int | None


@frozen(kw_only=True)
class TopicConsumer:
    """One group that reads the topic; `lag_messages` is None where it never said how far it is."""

    group: str
    clients: int
    message_model: str | None
    lag_messages: int | None


@frozen(kw_only=True)
class TopicDetail:
    """One topic: its set-up on each broker, its queues, and who reads it."""

    name: str
    brokers: tuple[TopicOnBroker, ...]
    queues: tuple[QueueState, ...]
    consumers: tuple[TopicConsumer, ...]


@frozen(kw_only=True)
class TopicSetting:
    """What a topic is on one broker, before and after a change; None: not there."""

    broker: str
    address: str
    before_read_queues: int | None
    before_write_queues: int | None
    before_perm: str | None
    read_queues: int | None
    write_queues: int | None
    perm: str | None


@frozen(kw_only=True)
class TopicChange:
    """A change of a topic, made or (`done` false) only planned."""

    name: str
    settings: tuple[TopicSetting, ...]
    hidden_messages: int | None  # In queues that would not be read any more.
    messages: int | None  # Of the topic, where it is to go.
    consumers: tuple[TopicConsumer, ...]
    silent: tuple[str, ...] = ()  # Brokers that do not tell who reads it, where it is to go.
    done: bool


def planned(name: str, settings: list[TopicSetting]) -> TopicChange:
    """A change that is not yet made."""
    return TopicChange(name=name, settings=tuple(settings), hidden_messages=0, messages=None, consumers=(), done=False)


def setting(target: Target, before: TopicConfig | None, after: TopicConfig | None) -> TopicSetting:
    """One broker of a change."""
    return TopicSetting(
        broker=target.broker,
        address=target.address,
        before_read_queues=before.read_queues if before else None,
        before_write_queues=before.write_queues if before else None,
        before_perm=perm_text(before.perm) if before else None,
        read_queues=after.read_queues if after else None,
        write_queues=after.write_queues if after else None,
        perm=perm_text(after.perm) if after else None,
    )


def queue_state(queue: MessageQueue, offsets: QueueOffsets) -> QueueState:
    """One queue, from what its broker tells."""
    return QueueState(
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        min_offset=offsets.min_offset,
        max_offset=offsets.max_offset,
        messages=offsets.max_offset - offsets.min_offset,
        last_update_ms=offsets.last_update_ms or None,
    )


def consumer_of(
    group: str,
    connected: list[Consumers],
    committed: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, QueueOffsets],
) -> TopicConsumer:
    """One reader of a topic, from what brokers tell of its connections and offsets."""
    lag = sum(
        max(0, offsets.max_offset - max(committed[queue], offsets.min_offset))
        for queue, offsets in ends.items()
        if queue in committed
    )
    return TopicConsumer(
        group=group,
        clients=len({client.client_id for each in connected for client in each.clients}),
        message_model=connected[0].message_model.lower() if connected else None,
        lag_messages=lag if committed else None,
    )


def perm_text(perm: int) -> str:
    """RW, R-, -W or --."""
    return ("R" if perm & 4 else "-") + ("W" if perm & 2 else "-")


def perm_of(text: str) -> int:
    """The reverse, from RW, R or W in either order."""
    return (4 if "R" in text else 0) | (2 if "W" in text else 0)


def summary_of(
    name: str, queue_data: tuple[QueueData, ...], tables: list[Mapping[MessageQueue, QueueOffsets] | None]
) -> TopicSummary:
    """One line of `topic list`, from the route and each broker's offsets (None: no answer)."""
    offsets = [each for table in tables if table is not None for each in table.values()]
    known = None not in tables
    return TopicSummary(
        name=name,
        brokers=tuple(data.broker_name for data in queue_data),
        read_queues=sum(data.read_queues for data in queue_data),
        write_queues=sum(data.write_queues for data in queue_data),
        perm="/".join(sorted({data.perm_text for data in queue_data})),
        min_offset_sum=sum(each.min_offset for each in offsets) if known else None,
        max_offset_sum=sum(each.max_offset for each in offsets) if known else None,
        messages=sum(each.max_offset - each.min_offset for each in offsets) if known else None,
        last_update_ms=max((each.last_update_ms for each in offsets if each.last_update_ms), default=None),
    )


def is_system_topic(name: str, own_names: set[str]) -> bool:
    """Made by RocketMQ itself: fixed names, retry and dead letter topics, one named like each broker and cluster."""
    return (
        name in SYSTEM_TOPICS
        or name in own_names
        or name.startswith(SYSTEM_PREFIXES)
        or (name.endswith("_REPLY_TOPIC") and name.removesuffix("_REPLY_TOPIC") in own_names)
    )
