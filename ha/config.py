"""The configuration of replication: one frozen class, every option declared once.

Names and defaults are RocketMQ's (MessageStoreConfig, 4.9.8) where it has one.
"""

from attrs import frozen, validators

from ha.protocol import BODY_SIZE_MAX
from store.config import option

_PORT = validators.and_(validators.ge(0), validators.le(65_535))
_FRAME = validators.and_(validators.ge(1), validators.le(BODY_SIZE_MAX))
_POSITIVE = validators.ge(1)


@frozen(kw_only=True)
class HAConfig:
    """Sizes in bytes, times in milliseconds."""

    listen_host: str = option("0.0.0.0", key="haListenHost", doc="address to listen on for slaves")
    listen_port: int = option(0, key="haListenPort", doc="TCP port for slaves; 0: listenPort + 1", validator=_PORT)
    master_address: str = option("", key="haMasterAddress", doc="HOST:PORT of the master; empty: ask the name server")
    send_heartbeat_interval_ms: int = option(
        5_000, key="haSendHeartbeatInterval", doc="silence before a heartbeat, both ways", validator=_POSITIVE
    )
    housekeeping_interval_ms: int = option(
        20_000, key="haHousekeepingInterval", doc="a peer that is silent for so long is dropped", validator=_POSITIVE
    )
    transfer_batch_size: int = option(
        32 * 1024, key="haTransferBatchSize", doc="largest frame to a slave that keeps up", validator=_FRAME
    )
    transfer_batch_size_max: int = option(
        BODY_SIZE_MAX,
        key="haTransferBatchSizeMax",
        doc="largest frame to a slave that is behind; a RocketMQ slave takes no larger ones",
        validator=_FRAME,
    )
    transfer_gather_ms: int = option(
        1,
        key="haTransferGather",
        doc="how long a master whose producers do not wait for slaves gathers bytes before it sends again",
    )
    slave_fallbehind_max: int = option(
        256 * 1024 * 1024,
        key="haSlaveFallbehindMax",
        doc="a slave that is so far behind is not available",
        validator=_POSITIVE,
    )
    slave_timeout_ms: int = option(3_000, key="slaveTimeout", doc="longest wait of a producer for a slave")
    connections_max: int = option(
        256, key="haConnectionsMax", doc="most connections at a time, strangers' included", validator=_POSITIVE
    )
    connect_timeout_ms: int = option(
        5_000, key="haConnectTimeout", doc="longest wait for the master to take a connection", validator=_POSITIVE
    )
    reconnect_wait_max_ms: int = option(
        2_000,
        key="haReconnectWaitMax",
        doc="longest pause between two attempts to reach the master",
        validator=_POSITIVE,
    )
    receive_body_size_max: int = option(
        BODY_SIZE_MAX, key="haReceiveBodySizeMax", doc="largest frame that a slave takes", validator=_POSITIVE
    )
    receive_buffer_size: int = option(
        1024 * 1024,  # Larger ones are slower: what was received has left the processor cache when it is verified.
        key="haReceiveBufferSize",
        doc="what a slave takes from the socket at once; grows for larger records",
        validator=validators.ge(4096),
    )
