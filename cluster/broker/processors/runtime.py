"""28, 907 and our own 20001: how a broker is.

Sources: AdminBrokerProcessor.java, StoreStatsService.java (RocketMQ 4.9.8), HARuntimeInfo.java (5.3.3).
"""

from typing import Any

from twinlog.cluster.broker import status
from twinlog.cluster.broker.wiring import BrokerParts
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.headers.broker_admin import GetBrokerHaStatus, GetBrokerRuntimeInfo
from twinlog.cluster.remoting.headers.members import GetMemberStatus
from twinlog.cluster.remoting.request import Reply, Request
from twinlog.ha.statistics import HAClientStatistics


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
    get_broker_runtime_info,
    get_broker_ha_status,
    member_status,
)
