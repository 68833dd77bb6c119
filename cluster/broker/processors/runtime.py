"""Status of a broker (28, 907, and 20001 of twinlog) and its statistics (303, 315, 317).

Sources: AdminBrokerProcessor.java, StoreStatsService.java (RocketMQ 4.9.8), HARuntimeInfo.java (5.3.3).
"""

import time
from typing import Any

import trio

from twinlog.cluster.broker import status
from twinlog.cluster.broker.processors.consume_stats import consume_stats, consumed_topics, lag
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting import fastjson, names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers.broker_admin import (
    GetBrokerConsumeStats,
    GetBrokerHaStatus,
    GetBrokerRuntimeInfo,
    QueryConsumeTimeSpan,
    ViewBrokerStatsData,
)
from twinlog.cluster.remoting.headers.members import GetMemberStatus
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.ha.statistics import HAClientStatistics

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


def get_broker_runtime_info(broker: BrokerParts, header: GetBrokerRuntimeInfo, request: Request) -> Reply:
    """A table of texts for mqadmin brokerStatus and clusterList."""
    return Reply(ext=None, body=fastjson.dumps({"table": status.runtime_table(broker)}))


def get_broker_ha_status(broker: BrokerParts, header: GetBrokerHaStatus, request: Request) -> Reply:
    """For mqadmin haStatus of 5.x: a master tells of its slaves, a slave of its link. What is not told is there, empty."""
    ha = broker.ha.statistics()
    slaves = () if broker.is_slave else ha.connections
    ha_status = {
        "haClientRuntimeInfo": _link(ha.client if broker.is_slave else None),
        "haConnectionInfo": [
            {
                "addr": slave.address,
                "diff": broker.store.max_offset - slave.ack_offset,
                "inSync": slave.in_sync,
                "slaveAckOffset": slave.ack_offset,
                "transferFromWhere": slave.sent_offset,
                "transferredByteInSecond": round(slave.transferred_bytes_per_second),
            }
            for slave in slaves
        ],
        "inSyncSlaveNums": sum(slave.in_sync for slave in slaves),
        "master": not broker.is_slave,
        "masterCommitLogMaxOffset": 0 if broker.is_slave else broker.store.max_offset,
    }
    return Reply(ext=None, body=fastjson.dumps(ha_status))


def _link(client: HAClientStatistics | None) -> dict[str, Any]:
    """HAClientRuntimeInfo. Its field isActivated has no accessor: RocketMQ's JSON never holds it."""
    link: dict[str, Any] = {
        "lastReadTimestamp": client.last_read_ms if client else 0,
        "lastWriteTimestamp": client.last_write_ms if client else 0,
        "masterFlushOffset": 0,
        "maxOffset": client.max_offset if client else 0,
        "transferredByteInSecond": round(client.transferred_bytes_per_second) if client else 0,
    }
    if client is not None and client.master_address is not None:
        link["masterAddr"] = client.master_address
    return link


def member_status(broker: BrokerParts, header: GetMemberStatus, request: Request) -> Reply:
    """What `twinlog list` shows of a member."""
    return Reply(ext=None, body=fastjson.dumps(status.member_status(broker).to_json()))


HANDLERS = (
    view_broker_stats_data,
    get_broker_consume_stats,
    query_consume_time_span,
    get_broker_runtime_info,
    get_broker_ha_status,
    member_status,
)
