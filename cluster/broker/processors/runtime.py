"""Status of a broker (28, 907, and 20001 of twinlog) and its statistics (303, 315, 317).

Sources: AdminBrokerProcessor.java, StoreStatsService.java (RocketMQ 4.9.8), HARuntimeInfo.java (5.3.3).
"""

import time
from typing import Any

import trio
from attrs import define

from twinlog.cluster.broker.consume.queues import Queues
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.processors.consume_stats import GroupProgress, lag
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.status import BrokerStatus
from twinlog.cluster.broker.tables.tables import BrokerTables
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.headers import broker_admin as h
from twinlog.cluster.remoting.headers.members import GetMemberStatus
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.ha.service import HAService
from twinlog.ha.statistics import HAClientStatistics
from twinlog.store.message_store import MessageStore

_SHOWN_MAX = 80  # Characters of an unknown name.


@define(eq=False)
class RuntimeProcessor:
    """Status and statistics."""

    settings: Settings
    store: MessageStore
    tables: BrokerTables
    stats: BrokerStatsManager
    queues: Queues
    ha: HAService
    status: BrokerStatus
    consume_stats: GroupProgress

    def view_broker_stats_data(self, header: h.ViewBrokerStatsData, request: Request) -> Reply:
        """Return a statistic over the last minute, hour and day; code 1 until something is counted."""
        found = self.stats.view(header.stats_name, header.stats_key)
        if found is None:
            name, key = header.stats_name[:_SHOWN_MAX], header.stats_key[: 2 * names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        minute, hour, day = (snapshot.to_json() for snapshot in found)
        return shared.json_reply({"statsDay": day, "statsHour": hour, "statsMinute": minute})

    async def get_broker_consume_stats(self, header: h.GetBrokerConsumeStats, request: Request) -> Reply:
        """Return the progress of all groups in each topic; with isOrder only in ordered topics."""
        groups, total = [], 0
        for group in list(self.tables.groups.table):
            topics = self.consume_stats.topics_of(group, self.tables.offsets.topics_of(group))
            stats = [
                self.consume_stats.of(group, [topic], written=True)
                for topic in topics
                if topic.order or not header.is_order
            ]
            total += sum(map(lag, stats))
            groups.append({group: stats})
            await trio.lowlevel.checkpoint()  # There may be thousands of groups.
        return shared.json_reply({"brokerAddr": self.settings.address, "consumeStatsList": groups, "totalDiff": total})

    def query_consume_time_span(self, header: h.QueryConsumeTimeSpan, request: Request) -> Reply:
        """Return the times of each queue's first and last message, and of the last one that the group consumed."""
        topic = shared.find_topic(self.tables.topics, header.topic)
        spans = [self._span(topic.name, header.group, queue_id) for queue_id in range(topic.write_queues)]
        return shared.json_reply({"consumeTimeSpanSet": spans})

    def _span(self, topic: str, group: str, queue_id: int) -> dict[str, Any]:
        """Return a QueueTimeSpan. Times are ms, -1 for none.

        RocketMQ reports a delay of more than fifty years if nothing is consumed yet; here it is that of the first message.
        """
        begin, end = self.store.queue(topic, queue_id).min_offset, self.queues.shown_end(topic, queue_id)
        consumed = self.tables.offsets.query(group, topic, queue_id)

        def stored(offset: int) -> int:
            return self.store.store_timestamp(topic, queue_id, offset)

        first = stored(begin) if end > begin else -1
        last = stored(consumed - 1) if consumed > 0 else first
        waiting = stored(max(consumed, begin)) if consumed < end else -1
        times = {
            "consumeTimeStamp": last,
            "maxTimeStamp": stored(end - 1) if end > begin else -1,
            "minTimeStamp": first,
        }
        span: dict[str, Any] = {
            "delayTime": self.store.now_ms() - waiting if waiting >= 0 else 0,
            "messageQueue": {"brokerName": self.settings.config.broker_name, "queueId": queue_id, "topic": topic},
            **times,
            **{f"{name}Str": time_text(ms) for name, ms in times.items()},
        }
        return dict(sorted(span.items()))

    def get_broker_runtime_info(self, header: h.GetBrokerRuntimeInfo, request: Request) -> Reply:
        """Return a table of strings for mqadmin brokerStatus and clusterList."""
        return shared.json_reply({"table": self.status.runtime_table()})

    def get_broker_ha_status(self, header: h.GetBrokerHaStatus, request: Request) -> Reply:
        """Return the replication status for mqadmin haStatus of 5.x: a master's slaves, or a slave's link."""
        ha = self.ha.statistics()
        slaves = () if self.store.config.is_slave else ha.connections
        ha_status = {
            "haClientRuntimeInfo": _link(ha.client if self.store.config.is_slave else None),
            "haConnectionInfo": [
                {
                    "addr": slave.address,
                    "diff": self.store.max_offset - slave.ack_offset,
                    "inSync": slave.in_sync,
                    "slaveAckOffset": slave.ack_offset,
                    "transferFromWhere": slave.sent_offset,
                    "transferredByteInSecond": round(slave.transferred_bytes_per_second),
                }
                for slave in slaves
            ],
            "inSyncSlaveNums": sum(slave.in_sync for slave in slaves),
            "master": not self.store.config.is_slave,
            "masterCommitLogMaxOffset": 0 if self.store.config.is_slave else self.store.max_offset,
        }
        return shared.json_reply(ha_status)

    def member_status(self, header: GetMemberStatus, request: Request) -> Reply:
        """Return the status for `twinlog list` and other members."""
        return shared.json_reply(self.status.member().to_json())


def time_text(ms: int) -> str:
    """Format a time in this machine's time zone, as mqadmin does."""
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(ms // 1000))}:{ms % 1000:03}"


def _link(client: HAClientStatistics | None) -> dict[str, Any]:
    """Return HAClientRuntimeInfo. Its field isActivated has no accessor, so RocketMQ's JSON does not contain it."""
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
