"""303, 315, 317: how much passes, and how far behind groups are. Source: AdminBrokerProcessor.java (RocketMQ 4.9.8)."""

import time
from typing import Any

import trio

from twinlog.cluster.broker.processors.consume_stats import consume_stats, consumed_topics, lag
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.broker_admin import (
    GetBrokerConsumeStats,
    QueryConsumeTimeSpan,
    ViewBrokerStatsData,
)
from twinlog.cluster.remoting.request import Reply, Request

_SHOWN_MAX = 80  # Characters of a name that we do not know.


def view_broker_stats_data(broker: BrokerParts, header: ViewBrokerStatsData, request: Request) -> Reply:
    """One statistic over the last minute, hour and day; code 1 until something is counted."""
    found = broker.stats.view(header.stats_name, header.stats_key)
    if found is None:
        name, key = header.stats_name[:_SHOWN_MAX], header.stats_key[: 2 * names.GROUP_LENGTH_MAX]
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
    minute, hour, day = (snapshot.plain() for snapshot in found)
    return _json({"statsDay": day, "statsHour": hour, "statsMinute": minute})


async def get_broker_consume_stats(broker: BrokerParts, header: GetBrokerConsumeStats, request: Request) -> Reply:
    """All groups' progress, topic by topic; with isOrder only in ordered topics."""
    groups, total = [], 0
    for group in list(broker.groups.table):
        topics = consumed_topics(broker, group, broker.offsets.topics_of(group))
        stats = [
            consume_stats(broker, group, [topic], written=True)
            for topic in topics
            if topic.order or not header.is_order
        ]
        total += sum(map(lag, stats))
        groups.append({group: stats})
        await trio.lowlevel.checkpoint()  # There may be thousands.
    return _json({"brokerAddr": broker.address, "consumeStatsList": groups, "totalDiff": total})


def query_consume_time_span(broker: BrokerParts, header: QueryConsumeTimeSpan, request: Request) -> Reply:
    """From when to when each queue has messages, and of which time those are that the group consumed last."""
    topic = broker.topics.select(header.topic)
    if topic is None:
        remark = f"topic[{header.topic[: names.TOPIC_LENGTH_MAX]}] not exist"
        raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
    spans = [_span(broker, topic.name, header.group, queue_id) for queue_id in range(topic.write_queues)]
    return _json({"consumeTimeSpanSet": spans})


def _span(broker: BrokerParts, topic: str, group: str, queue_id: int) -> dict[str, Any]:
    """QueueTimeSpan. Times are ms, -1 for none.

    RocketMQ answers a delay of more than fifty years where nothing is consumed yet; here it is that of the first message.
    """
    begin, end = broker.store.queue(topic, queue_id).min_offset, broker.shown_end(topic, queue_id)
    consumed = broker.offsets.query(group, topic, queue_id)

    def stored(offset: int) -> int:
        return broker.store.store_timestamp(topic, queue_id, offset)

    first = stored(begin) if end > begin else -1
    last = stored(consumed - 1) if consumed > 0 else first
    waiting = stored(max(consumed, begin)) if consumed < end else -1
    times = {
        "consumeTimeStamp": last,
        "maxTimeStamp": stored(end - 1) if end > begin else -1,
        "minTimeStamp": first,
    }
    span: dict[str, Any] = {
        "delayTime": broker.now_ms() - waiting if waiting >= 0 else 0,
        "messageQueue": {"brokerName": broker.config.broker_name, "queueId": queue_id, "topic": topic},
        **times,
        **{f"{name}Str": time_text(ms) for name, ms in times.items()},
    }
    return dict(sorted(span.items()))


def time_text(ms: int) -> str:
    """In this machine's time zone, as mqadmin shows it."""
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(ms // 1000))}:{ms % 1000:03}"


def _json(value: object) -> Reply:
    return Reply(ext=None, body=fastjson.dumps(value))


HANDLERS = (view_broker_stats_data, get_broker_consume_stats, query_consume_time_span)
