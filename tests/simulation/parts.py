"""A member's store and replication, as a broker would make them of its configuration."""

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from tests.simulation.determinism import wall
from twinlog.ha.config import AckMode, AutoFailoverMode, HAConfig
from twinlog.ha.service import HAService
from twinlog.store.config import BrokerRole, FlushDiskType, StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.message_store import MessageStore

if TYPE_CHECKING:
    from tests.simulation.member import Member


def make_store(member: "Member") -> MessageStore:
    """Small files, and everything that goes on behind comes often."""
    role = BrokerRole.SLAVE
    if member.is_master:
        role = BrokerRole.SYNC_MASTER if member.config.synchronous else BrokerRole.ASYNC_MASTER
    config = StoreConfig(
        root=Path(member.name),
        broker_role=role,
        flush_disk_type=FlushDiskType.SYNC_FLUSH if member.config.sync_flush else FlushDiskType.ASYNC_FLUSH,
        mapped_file_size_commit_log=member.config.file_size,
        mapped_file_size_consume_queue=50 * 20,
        max_hash_slot_num=20,
        max_index_num=60,
        recovery_point_bytes=3 * member.config.file_size,
        flush_consume_queue_thorough_interval_ms=10_000,
        flush_commit_log_thorough_interval_ms=3_000,
        delete_when=";".join(f"{hour:02}" for hour in range(24)),
        delete_commit_log_files_interval_ms=20,
        scrub_interval_hours=1,
        message_index_enable=member.config.index,
    )
    return MessageStore(
        config, StoreHooks(now_ms=lambda: int(wall() * 1000), disk_usage=lambda _: 0.5, clock=trio.current_time)
    )


def make_ha(member: "Member", store: MessageStore) -> HAService:
    """Replication, wired as the broker does it."""
    config = HAConfig(
        listen_port=member.port,
        in_sync_replicas=member.config.need,
        min_in_sync_replicas=member.config.need_min,
        ack_mode=AckMode.flushed if member.config.ack_flushed else AckMode.written,
        auto_resync=member.config.auto_resync,
        verify_trail_max=member.config.trail_max,
        auto_failover=AutoFailoverMode(member.config.auto),
        max_time_slave_not_catchup_ms=round(member.config.leave_seconds * 1000),
        auto_failover_max_loss_bytes=member.config.max_loss,
    )
    ha = HAService(
        store,
        config,
        lambda: member.slaves.answered((), trio.current_time()) if member.is_master else (),
        lambda: member.ask.set(),
        peer_of=member.peer,
    )
    ha.client.connect = member.connect
    store.hooks.retention_floor = ha.lowest_needed
    store.hooks.soft_retention_floor = ha.disconnected_slaves.floor
    store.retention.shortened.append(ha.disconnected_slaves.shortened)
    return ha
