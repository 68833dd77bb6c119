"""25, 26, 28, 306, 315, 316, 329, 907, 20001: configuration, status and statistics of a broker, cleaning of unused files.

Sources: AdminBrokerProcessor.java, Configuration.java, StoreStatsService.java (RocketMQ 4.9.8), HARuntimeInfo.java (5.3.3).
"""

from collections.abc import Coroutine
from typing import Any

import trio
from attrs import define, evolve

from twinlog.cluster.broker.config_changes import read_changes
from twinlog.cluster.broker.peers.etcd_check import EtcdCheck
from twinlog.cluster.broker.peers.reach import Reach
from twinlog.cluster.broker.processors import shared
from twinlog.cluster.broker.reconfigure import Reconfiguration, save_changes
from twinlog.cluster.broker.settings import Settings
from twinlog.cluster.broker.stats.stats import BrokerStatsManager
from twinlog.cluster.broker.status import BrokerStatus
from twinlog.cluster.broker.tables.topics import TopicConfigManager
from twinlog.cluster.config.config_file import format_value
from twinlog.cluster.config.redaction import shown
from twinlog.cluster.remoting import fastjson, names
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
class BrokerAdminProcessor:
    """Configuration, status, statistics, cleaning."""

    settings: Settings
    store: MessageStore
    topics: TopicConfigManager
    stats: BrokerStatsManager
    ha: HAService
    status: BrokerStatus
    reconfiguration: Reconfiguration
    reach: Reach
    etcd: EtcdCheck

    async def update_broker_config(self, header: h.UpdateBrokerConfig, request: Request) -> Reply:
        """Apply `key=value` lines and write them to the configuration file: all of them, or none."""
        if not request.body:
            return Reply()
        async with self.settings.lock:
            known = self.status.options()
            changes = read_changes(request.body, self.settings.config, self.store.config, known)
            if self.settings.config_file is not None and changes.texts:
                try:
                    await save_changes(self.settings.config_file, changes)
                except OSError as error:
                    remark = f"nothing was changed: the configuration file cannot be written: {error.strerror}"
                    raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error
            self.reconfiguration.apply(changes)
        return Reply()

    def get_broker_config(self, header: h.GetBrokerConfig, request: Request) -> Reply:
        """Return all options as `key=value` lines, without secrets."""
        options = self.status.rocketmq_options() | self.status.options()
        lines = sorted(f"{key}={shown(key, format_value(value))}\n" for key, value in options.items())
        return Reply.success("".join(lines).encode(), version=fastjson.dumps(self.settings.version.to_json()).decode())

    def delete_expired_commit_log(self, header: h.DeleteExpiredCommitLog, request: Request) -> Reply:
        """mqadmin deleteExpiredCommitLog: delete old enough files now and in the next rounds, whatever the hour."""
        self.store.retention.request()
        return Reply()

    async def clean_expired_consume_queue(self, header: h.CleanExpiredConsumeQueue, request: Request) -> Reply:
        """mqadmin cleanExpiredCQ: delete queue files whose messages are all gone from the log.

        RocketMQ removes queues without messages as a whole and then reuses their offsets, so consumers that were further skip
        messages. Here the last file of a queue stays.
        """
        await self.store.retention.clean_queues()
        return Reply()

    async def clean_unused_topic(self, header: h.CleanUnusedTopic, request: Request) -> Reply:
        """mqadmin cleanUnusedTopic: remove what is left of deleted topics.

        Their statistics are removed at once, their queues file by file as their messages leave the log: RocketMQ deletes queues
        whose messages are still there, a start after a crash restores some of them, and their offsets are reused.
        """
        for topic in self.stats.topics():
            if topic not in self.topics.table and not self.topics.is_system(topic):
                self.stats.topic_deleted(topic)
        await self.store.retention.clean_queues()
        return Reply()

    def view_broker_stats_data(self, header: h.ViewBrokerStatsData, request: Request) -> Reply:
        """Return a statistic over the last minute, hour and day; code 1 until something is counted."""
        found = self.stats.view(header.stats_name, header.stats_key)
        if found is None:
            name, key = header.stats_name[:_SHOWN_MAX], header.stats_key[: 2 * names.GROUP_LENGTH_MAX]
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        minute, hour, day = (snapshot.to_json() for snapshot in found)
        return shared.json_reply({"statsDay": day, "statsHour": hour, "statsMinute": minute})

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

    def member_status(self, header: GetMemberStatus, request: Request) -> Reply | Coroutine[Any, Any, Reply]:
        """Return the status for `twinlog list` and other members."""
        return self._with_reach() if header.reach else shared.json_reply(self.status.member().to_json())

    async def _with_reach(self) -> Reply:
        async with trio.open_nursery() as nursery:  # Both take up to three seconds.
            nursery.start_soon(self.etcd.look)
            reach = await self.reach.look()
        status = evolve(self.status.member(), reach=reach)
        if status.etcd is not None:
            status = evolve(status, etcd=evolve(status.etcd, findings=self.etcd.found))
        return shared.json_reply(status.to_json())


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
