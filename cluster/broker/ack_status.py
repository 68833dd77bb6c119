"""When a producer hears SEND_OK, put together from the broker's parts."""

from typing import TYPE_CHECKING, Any

from twinlog.ha.policy.ack_policy_text import AckPolicy, MasterSide, SlaveSide, effective_policy
from twinlog.ha.statistics import HAStatistics
from twinlog.store.config import BrokerRole

if TYPE_CHECKING:
    from twinlog.cluster.broker.wiring import BrokerParts


def effective(broker: "BrokerParts", ha: HAStatistics) -> AckPolicy | None:
    """When a producer hears SEND_OK now; None on a slave, which takes no messages."""
    if broker.is_slave:
        return None
    master = MasterSide(
        synchronous=broker.store.config.broker_role is BrokerRole.SYNC_MASTER,
        sync_flush=broker.store.flusher.is_synchronous,
        write_buffers=broker.store.config.transient_store_pool_enable,
    )
    kinds = broker.slave_kinds.kinds
    slaves = [
        SlaveSide(
            in_sync=slave.in_sync,
            verified=slave.address in kinds,
            flushed=slave.address in kinds and kinds[slave.address].flushes,
        )
        for slave in ha.connections
        if slave.counted
    ]
    return effective_policy(master, broker.ha_config.ack_rule, ha.decision, slaves, registered=len(ha.registered))


def plain(broker: "BrokerParts", policy: AckPolicy) -> dict[str, Any]:
    """Its part of the member status."""
    return {
        "words": policy.words,
        "level": policy.level,
        "inSyncReplicas": broker.ha_config.in_sync_replicas,
        "minInSyncReplicas": broker.ha_config.min_in_sync_replicas,
        "needed": policy.need,
        "inSync": policy.in_sync,
        "members": policy.members,
        "warnings": list(policy.warnings),
    }
