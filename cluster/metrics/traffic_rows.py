"""Metrics of messages and clients, by the names and labels of RocketMQ 5.3.3 (BrokerMetricsConstant.java).

`message_type` is left out: messages are counted by how much queues grew, which costs producers nothing and has no type.
"""

from collections.abc import Callable, Iterable
from functools import partial

from twinlog.cluster.metrics.row import NODE, Sample, counter, gauge
from twinlog.cluster.metrics.snapshot import BrokerSnapshot, GroupLag
from twinlog.cluster.remoting import names

_TOPIC = ("topic", "is_system")
_TOPIC_AND_GROUP = ("topic", "consumer_group", "is_retry", "is_system")


def _word(value: bool) -> str:
    return "true" if value else "false"


def _topic_and_group(topic: str, group: str, is_system: bool) -> tuple[str, ...]:
    return topic, group, _word(topic.startswith(names.RETRY_PREFIX)), _word(is_system)


def _messages_in(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return (((topic, _word(is_system)), nums) for topic, is_system, nums, _ in snapshot.puts)


def _bytes_in(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return (((topic, _word(is_system)), size) for topic, is_system, _, size in snapshot.puts)


def _messages_out(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return ((_topic_and_group(topic, group, system), nums) for topic, group, system, nums, _ in snapshot.gets)


def _bytes_out(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return ((_topic_and_group(topic, group, system), size) for topic, group, system, _, size in snapshot.gets)


def _dead(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return (((topic, group, _word(is_system)), nums) for topic, group, is_system, nums in snapshot.dead)


def _lags(value: Callable[[GroupLag], int | None]) -> Callable[[BrokerSnapshot], Iterable[Sample]]:
    def read(snapshot: BrokerSnapshot) -> Iterable[Sample]:
        for each in snapshot.lags:
            if (found := value(each)) is not None:
                yield _topic_and_group(each.topic, each.group, each.is_system), found

    return read


def _producers(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return (((language, version, "remoting"), count) for language, version, count in snapshot.producers)


def _consumers(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    for group, language, version, mode, count in snapshot.consumers:
        is_system = _word(group.startswith(names.SYSTEM_GROUP_PREFIX))
        yield (group, language, version, mode, "remoting", is_system), count


def _watermarks(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    """There are no queues of threads here; what waits for disk or slaves is what RocketMQ's async_put would hold."""
    return ((("async_put",), snapshot.ha.waiting), (("pull",), snapshot.held_pulls), (("send",), snapshot.requests))


_counter, _gauge = partial(counter, scope=NODE), partial(gauge, scope=NODE)
TRAFFIC = (
    _counter(
        name="rocketmq_messages_in_total",
        help="Messages that came into a topic's queues while this member was master",
        labels=_TOPIC,
        read=_messages_in,
    ),
    _counter(
        name="rocketmq_throughput_in_total",
        help="Bytes of these, as they are stored",
        labels=_TOPIC,
        read=_bytes_in,
    ),
    _counter(
        name="rocketmq_messages_out_total",
        help="Messages that were delivered to consumers",
        labels=_TOPIC_AND_GROUP,
        read=_messages_out,
    ),
    _counter(
        name="rocketmq_throughput_out_total",
        help="Bytes of these, as they are stored",
        labels=_TOPIC_AND_GROUP,
        read=_bytes_out,
    ),
    _counter(
        name="rocketmq_send_to_dlq_messages_total",
        help="Messages that became dead letters after too many attempts to consume them",
        labels=("topic", "consumer_group", "is_system"),
        read=_dead,
    ),
    _gauge(
        name="rocketmq_consumer_lag_messages",
        help="Messages that a group has not reported as consumed",
        labels=_TOPIC_AND_GROUP,
        read=_lags(lambda each: each.lag),
    ),
    _gauge(
        name="rocketmq_consumer_inflight_messages",
        help="Of these, messages that were fetched",
        labels=_TOPIC_AND_GROUP,
        read=_lags(lambda each: each.inflight),
    ),
    _gauge(
        name="rocketmq_consumer_ready_messages",
        help="Of these, messages that were not fetched",
        labels=_TOPIC_AND_GROUP,
        read=_lags(lambda each: each.lag - each.inflight),
    ),
    _gauge(
        name="rocketmq_consumer_lag_latency_milliseconds",
        help="Age of the oldest message that a group has not consumed; absent while that message is not in memory",
        labels=_TOPIC_AND_GROUP,
        read=_lags(lambda each: each.latency_ms),
    ),
    _gauge(
        name="rocketmq_producer_connections",
        help="Connections of producers, once for each of their groups",
        labels=("language", "version", "protocol_type"),
        read=_producers,
    ),
    _gauge(
        name="rocketmq_consumer_connections",
        help="Connections of consumers",
        labels=("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
        read=_consumers,
    ),
    _gauge(
        name="rocketmq_processor_watermark",
        help="Requests that wait: async_put for slaves or disk, pull for messages, send until their handlers are done",
        labels=("processor",),
        read=_watermarks,
    ),
    _gauge(
        name="rocketmq_broker_permission",
        help="brokerPermission: 4 read + 2 write",
        read=lambda snapshot: snapshot.permission,
    ),
    _gauge(
        name="rocketmq_topic_number",
        help="Topics that are configured here",
        read=lambda snapshot: snapshot.topics,
    ),
    _gauge(
        name="rocketmq_consumer_group_number",
        help="Consumer groups that are configured here",
        read=lambda snapshot: snapshot.groups,
    ),
)
