"""26, 28, 907 and our own 20001: what a broker is told to be, and how it is. 306, 329: old files.

Sources: AdminBrokerProcessor.java, StoreStatsService.java (RocketMQ 4.9.8), HARuntimeInfo.java (5.3.3).
"""

from typing import Any

from cluster.broker import runtime_info
from cluster.broker.parts import BrokerParts
from cluster.config_file import format_value
from cluster.redaction import shown
from cluster.remoting import fastjson
from cluster.remoting.headers.broker_admin import (
    CleanExpiredConsumeQueue,
    DeleteExpiredCommitLog,
    GetBrokerConfig,
    GetBrokerHaStatus,
    GetBrokerRuntimeInfo,
)
from cluster.remoting.headers.members import MemberStatus
from cluster.remoting.server import Reply, Request
from ha.statistics import HAClientStatistics


def get_broker_config(broker: BrokerParts, header: GetBrokerConfig, request: Request) -> Reply:
    """All options as `key=value` lines, but for secrets."""
    options = runtime_info.options(broker)
    lines = sorted(f"{key}={shown(key, format_value(value))}\n" for key, value in options.items())
    return Reply.success("".join(lines).encode(), version=fastjson.dumps(broker.topics.version.plain()).decode())


def get_broker_runtime_info(broker: BrokerParts, header: GetBrokerRuntimeInfo, request: Request) -> Reply:
    """A table of texts for mqadmin brokerStatus and clusterList."""
    return Reply(ext=None, body=fastjson.dumps({"table": runtime_info.runtime_table(broker)}))


def get_broker_ha_status(broker: BrokerParts, header: GetBrokerHaStatus, request: Request) -> Reply:
    """For mqadmin haStatus of 5.x: a master tells of its slaves, a slave of its link. What is not told is there, empty."""
    ha = broker.ha.statistics()
    slaves = () if broker.is_slave else ha.connections
    status = {
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
    return Reply(ext=None, body=fastjson.dumps(status))


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


def delete_expired_commit_log(broker: BrokerParts, header: DeleteExpiredCommitLog, request: Request) -> Reply:
    """mqadmin deleteExpiredCommitLog: what is old enough goes now, and in the next rounds, whatever the hour."""
    broker.store.retention.request()
    return Reply(ext=None)


async def clean_expired_consume_queue(broker: BrokerParts, header: CleanExpiredConsumeQueue, request: Request) -> Reply:
    """mqadmin cleanExpiredCQ: queue files whose messages are all gone from the log.

    RocketMQ removes queues without any message as a whole, and gives their offsets a second time, which consumers who were
    further pass over. Here the last file of a queue stays.
    """
    await broker.store.retention.clean_queues()
    return Reply(ext=None)


def member_status(broker: BrokerParts, header: MemberStatus, request: Request) -> Reply:
    """What `twinlog list` shows of a member."""
    return Reply(ext=None, body=fastjson.dumps(runtime_info.member_status(broker)))


HANDLERS = (
    get_broker_config,
    get_broker_runtime_info,
    get_broker_ha_status,
    delete_expired_commit_log,
    clean_expired_consume_queue,
    member_status,
)
