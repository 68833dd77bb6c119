"""The configuration of replication: one frozen class, every option declared once.

Names and defaults are RocketMQ's (MessageStoreConfig, 4.9.8) where it has one.
"""

import re
from enum import Enum

from attrs import frozen, validators

from twinlog.ha.policy.ack_policy import AckRule
from twinlog.ha.policy.admission import parse_allowed
from twinlog.ha.policy.in_sync import Limits
from twinlog.ha.wire.protocol import BODY_SIZE_MAX, BUFFER_SIZE
from twinlog.store.config import option

_PORT = validators.and_(validators.ge(0), validators.le(65_535))
_FRAME = validators.and_(validators.ge(1), validators.le(BODY_SIZE_MAX))
_POSITIVE = validators.ge(1)


class AutoFailoverMode(Enum):
    """Beginner of a failover: a person, or the members by themselves; with etcd, which keeps the group's record, or without."""

    off = "off"
    members = "members"
    etcd = "etcd"


class AckMode(Enum):
    """Meaning of a slave's acknowledgement: written to its log, or flushed to its disk."""

    written = "written"
    flushed = "flushed"


def _are_allowed(_instance: object, _attribute: object, value: str) -> None:
    parse_allowed(value)


def _are_addresses(_instance: object, _attribute: object, value: str) -> None:
    for part in filter(None, map(str.strip, value.split(";"))):
        if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:;\[\]]+):[1-9][0-9]{0,4}", part):
            raise ValueError(f"addresses of name servers, HOST:PORT;HOST:PORT: {part!r}")


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
    max_gap_not_in_sync: int = option(
        256 * 1024 * 1024,
        key="haMaxGapNotInSync",
        doc="5.x's name for haSlaveFallbehindMax; the smaller one counts",
        validator=_POSITIVE,
    )
    max_time_slave_not_catchup_ms: int = option(
        15_000,
        key="haMaxTimeSlaveNotCatchup",
        doc="a slave that has not held the whole log for so long is not in sync",
        validator=_POSITIVE,
    )
    stalled_after_ms: int = option(
        10_000,
        key="haStalledAfter",
        doc="a slave that lacks bytes, and has acknowledged none for so long, is shown as stalled",
        validator=_POSITIVE,
    )
    in_sync_replicas: int = option(
        2,
        key="inSyncReplicas",
        doc="members, a SYNC_MASTER included, that must hold a message before its producer hears SEND_OK. RocketMQ 5 "
        "defaults to 1: a SYNC_MASTER that asks no slave; here 1 must be set, and causes a warning",
        validator=_POSITIVE,
    )
    min_in_sync_replicas: int = option(
        1,
        key="minInSyncReplicas",
        doc="members, a SYNC_MASTER included, that must be in sync: with fewer, messages are refused before they are stored",
        validator=_POSITIVE,
    )
    auto_in_sync_replicas: bool = option(
        False,
        key="enableAutoInSyncReplicas",
        doc="ask for no more members than are in sync, nor for fewer than minInSyncReplicas; it is shown when it does",
    )
    all_ack_in_sync_state_set: bool = option(
        False,
        key="allAckInSyncStateSet",
        doc="ask all members that are in sync, and inSyncReplicas at least",
    )
    flow_control_enable: bool = option(
        False, key="haFlowControlEnable", doc="bound what a slave is sent to maxHaTransferByteInSecond"
    )
    max_transfer_byte_in_second: int = option(
        100 * 1024 * 1024,
        key="maxHaTransferByteInSecond",
        doc="bytes per second, frame headers included, for each connection; only with haFlowControlEnable",
        validator=validators.ge(1024),
    )
    ack_mode: AckMode = option(
        AckMode.written,
        key="haAckMode",
        doc="what a slave acknowledges: written, bytes that it has verified and put into its log; flushed, bytes that are on "
        "its disk",
    )
    slave_timeout_ms: int = option(3_000, key="slaveTimeout", doc="longest wait of a producer for a slave")
    connections_max: int = option(
        256,
        key="haConnectionsMax",
        doc="most connections at a time, those of untrusted peers included",
        validator=_POSITIVE,
    )
    connections_per_address_max: int = option(
        16, key="haConnectionsPerAddressMax", doc="most connections of one IP at a time", validator=_POSITIVE
    )
    allowed_slaves: str = option(
        "",
        key="haAllowedSlaves",
        doc="IPs, networks and host names, as 10.0.0.0/8, 192.168.1.7, slave-2, that may follow besides the registered slaves of "
        "the group",
        validator=_are_allowed,
    )
    members: str = option(
        "",
        key="haMembers",
        doc="who belongs to the group, HOST:PORT of each remoting port, with ';' between; its master forgets all others for "
        "good. Empty: whoever was ever seen to follow",
    )
    tls: bool = option(
        False,
        key="haTls",
        doc="the HA stream uses TLS: this member follows with TLS, and serves no slave without it, RocketMQ's included, which "
        "have none. false: a master serves both kinds, and a slave uses TLS where its master asks for it",
    )
    admission_timeout_ms: int = option(
        5_000,
        key="haAdmissionTimeout",
        doc="how long a slave that is not yet known to be registered is held before it is refused",
        validator=_POSITIVE,
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
    retention_bytes_max: int = option(
        32 << 30,
        key="haRetentionMaxBytes",
        doc="most bytes of the log that are kept, however old, for a disconnected slave, unless the disk demands room; 0: none",
    )
    repair_enable: bool = option(
        True,
        key="haRepairEnable",
        doc="repair bytes of the log that became damaged on the disk, with those of another member, if a digest proves them",
    )
    auto_resync: bool = option(
        False,
        key="haAutoResync",
        doc="a slave whose log does not fit its master's cuts off what the master lacks, or begins anew when the master has "
        "deleted what it needs; what it had is kept in twinlog/divergent/",
    )
    auto_resync_bytes_max: int = option(
        256 * 1024 * 1024,
        key="haAutoResyncBytesMax",
        doc="so much haAutoResync cuts off at most: a master that lost more may have lost its disk, and its slaves are the "
        "last copies",
    )
    lease_ms: int = option(
        3_000,
        key="haLeaseMs",
        doc="a master that has heard from too few members for so long says SEND_OK to nobody",
        validator=_POSITIVE,
    )
    auto_failover: AutoFailoverMode = option(
        AutoFailoverMode.off,
        key="autoFailover",
        doc="off, members or etcd: the members of a group that begins elect another master by themselves when theirs is gone. "
        "With etcd, which etcdEndpoints names, the group also goes on with fewer members, down to one. Once there is a group, "
        "twinlog auto-failover changes it for all",
    )
    auto_failover_after_ms: int = option(
        5_000,
        key="autoFailoverAfterMs",
        doc="a master that was not heard for so long is suspected; at least haLeaseMs",
        validator=_POSITIVE,
    )
    auto_failover_restart_ms: int = option(
        0,
        key="autoFailoverRestartMs",
        doc="a master whose process has ended may take so long to be started again before it is suspected; at most "
        "autoFailoverAfterMs. 0: it is suspected at once. Set it where something starts members again that died",
    )
    auto_failover_max_loss_bytes: int = option(
        0,
        key="autoFailoverMaxLossBytes",
        doc="known bytes of acknowledged messages that an automatic failover may give up, where only the master has to hold a "
        "message. It never gives up what nobody knows",
    )
    auto_failover_witness: str = option(
        "",
        key="autoFailoverWitness",
        doc="name servers, HOST:PORT;HOST:PORT, that a member asks whether they hear the master, where its own vote alone "
        "elects; the group has to register there, too; empty: those of namesrvAddr",
        validator=_are_addresses,
    )
    switchover_pause_max_ms: int = option(
        2_500,
        key="haSwitchoverPauseMax",
        doc="longest write pause of a switchover; one that takes longer is given up, and the old master resumes writes",
        validator=_POSITIVE,
    )
    auto_rewind: bool = option(
        True,
        key="haAutoRewind",
        doc="a slave cuts off what its master's history proves to be given up, and keeps it in twinlog/divergent/; false: it "
        "waits for twinlog rewind",
    )
    receive_body_size_max: int = option(
        BODY_SIZE_MAX, key="haReceiveBodySizeMax", doc="largest frame that a slave takes", validator=_POSITIVE
    )
    receive_buffer_size: int = option(
        BUFFER_SIZE,
        key="haReceiveBufferSize",
        doc="what a slave takes from the socket at once; grows for larger records",
        validator=validators.ge(4096),
    )

    verify_trail_max: int = option(
        4 << 30,
        key="haVerifyTrailMax",
        doc="bytes of the log that a slave far behind takes before it has verified them; only what is verified is part of its "
        "log. 0: each byte is verified before the next one is taken",
    )

    def __attrs_post_init__(self) -> None:
        if self.auto_failover_restart_ms > self.auto_failover_after_ms:
            raise ValueError(
                f"autoFailoverRestartMs={self.auto_failover_restart_ms} is more than "
                f"autoFailoverAfterMs={self.auto_failover_after_ms}: a master is suspected by then"
            )
        if self.auto_failover is not AutoFailoverMode.off and self.auto_failover_after_ms < self.lease_ms:
            raise ValueError(
                f"autoFailoverAfterMs={self.auto_failover_after_ms} is less than haLeaseMs={self.lease_ms}: a master that is "
                "only cut off would still take itself for one. Set it to haLeaseMs or more"
            )

    @property
    def named_members(self) -> frozenset[str]:
        """The members that haMembers names, HOST:PORT each."""
        return frozenset(self.members.replace(";", " ").split())

    @property
    def ack_rule(self) -> AckRule:
        """Number of members that must hold a message."""
        return AckRule(
            in_sync_replicas=self.in_sync_replicas,
            min_in_sync_replicas=self.min_in_sync_replicas,
            auto=self.auto_in_sync_replicas,
            all_ack=self.all_ack_in_sync_state_set,
        )

    @property
    def limits(self) -> Limits:
        """Limits beyond which a slave is not in sync."""
        return Limits(
            gap_max=min(self.slave_fallbehind_max, self.max_gap_not_in_sync),
            level_seconds_max=self.max_time_slave_not_catchup_ms / 1000,
            stalled_seconds=self.stalled_after_ms / 1000,
            mark_seconds_max=self.slave_timeout_ms / 2000,
        )
