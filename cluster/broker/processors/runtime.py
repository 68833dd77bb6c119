"""26, 28, 907 and our own 20001: what a broker is told to be, and how it is. 306, 329: old files.

Sources: AdminBrokerProcessor.java, StoreStatsService.java (RocketMQ 4.9.8), HARuntimeInfo.java (5.3.3).
"""

from typing import Any

from cluster.broker import runtime_info
from cluster.broker.parts import BrokerParts
from cluster.config_file import format_value
from cluster.remoting import fastjson
from cluster.remoting.headers import (
    CleanExpiredConsumeQueue,
    DeleteExpiredCommitLog,
    GetBrokerConfig,
    GetBrokerHaStatus,
    GetBrokerRuntimeInfo,
    MemberStatus,
)
from cluster.remoting.server import Reply, Request


def get_broker_config(broker: BrokerParts, header: GetBrokerConfig, request: Request) -> Reply:
    """All options as `key=value` lines."""
    lines = sorted(f"{key}={format_value(value)}\n" for key, value in runtime_info.options(broker).items())
    return Reply.success("".join(lines).encode(), version=fastjson.dumps(broker.topics.version.plain()).decode())


def get_broker_runtime_info(broker: BrokerParts, header: GetBrokerRuntimeInfo, request: Request) -> Reply:
    """A table of texts for mqadmin brokerStatus and clusterList."""
    return Reply(ext=None, body=fastjson.dumps({"table": runtime_info.runtime_table(broker)}))


def get_broker_ha_status(broker: BrokerParts, header: GetBrokerHaStatus, request: Request) -> Reply:
    """For mqadmin haStatus of 5.x."""
    ha = broker.ha.statistics()
    connections = [
        {
            "addr": slave.address,
            "diff": slave.lag_bytes,
            "inSync": slave.counted,
            "slaveAckOffset": slave.ack_offset,
            "transferFromWhere": slave.sent_offset,
            "transferredByteInSecond": round(slave.transferred_bytes_per_second),
        }
        for slave in ha.connections
    ]
    client: dict[str, Any] = {
        "activated": False,
        "lastReadTimestamp": 0,
        "lastWriteTimestamp": 0,
        "masterFlushOffset": 0,
        "maxOffset": 0,
        "transferredByteInSecond": 0,
    }
    if ha.client is not None:
        client.update(
            activated=ha.client.state == "streaming",
            lastReadTimestamp=ha.client.last_read_ms,
            lastWriteTimestamp=ha.client.last_write_ms,
            masterAddr=ha.client.master_address,
            maxOffset=ha.client.max_offset,
            transferredByteInSecond=round(ha.client.transferred_bytes_per_second),
        )
    status = {
        "haClientRuntimeInfo": client,
        "haConnectionInfo": connections,
        "inSyncSlaveNums": sum(slave.counted for slave in ha.connections),
        "master": not broker.is_slave,
        "masterCommitLogMaxOffset": broker.store.max_offset,
    }
    return Reply(ext=None, body=fastjson.dumps(status))


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
