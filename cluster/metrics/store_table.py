"""Metrics of the store directory. The first five have RocketMQ 5.3.3's names and labels (DefaultStoreMetricsConstant.java)."""

from twinlog.cluster.metrics.row import DISK, Metric, one

STORE = (
    Metric(
        name="rocketmq_storage_size_bytes",
        kind="gauge",
        help="Files of the commit log and the consume queues, as large as they are on the disk",
        scope=DISK,
        read=one(lambda snapshot: snapshot.store.size),
    ),
    Metric(
        name="rocketmq_storage_flush_behind_bytes",
        kind="gauge",
        help="Bytes of the log that are written and not yet synced to the disk",
        scope=DISK,
        read=one(lambda snapshot: max(snapshot.store.max_offset - snapshot.store.flushed_offset, 0)),
    ),
    Metric(
        name="rocketmq_storage_dispatch_behind_bytes",
        kind="gauge",
        help="Bytes of the log that are not yet in the consume queues",
        scope=DISK,
        read=one(lambda snapshot: max(snapshot.store.max_offset - snapshot.store.dispatched_offset, 0)),
    ),
    Metric(
        name="rocketmq_storage_message_reserve_time_milliseconds",
        kind="gauge",
        help="Age of the oldest message in the log; absent while there is none, or it is not in memory",
        scope=DISK,
        read=one(lambda snapshot: snapshot.store.reserve_ms),
    ),
    Metric(
        name="rocketmq_storage_disk_used_ratio",
        kind="gauge",
        help="Used part of the fullest disk of this store, 0 to 1, rounded up to hundredths as RocketMQ does",
        read=one(lambda snapshot: None if snapshot.store.disk_used_ratio < 0 else snapshot.store.disk_used_ratio),
    ),
    Metric(
        name="rocketmq_storage_fsync_seconds",
        kind="histogram",
        help="How long it took to sync the log to the disk",
        read=one(lambda snapshot: snapshot.store.fsync),
    ),
    Metric(
        name="rocketmq_storage_fsync_errors_total",
        kind="counter",
        help="Times that the disk refused to sync the log or the queues",
        read=one(lambda snapshot: snapshot.store.sync_errors),
    ),
    Metric(
        name="rocketmq_storage_readonly",
        kind="gauge",
        help="1 while this store takes no bytes: from producers on a master, from its master on a slave",
        read=one(lambda snapshot: snapshot.store.readonly),
    ),
    Metric(
        name="rocketmq_storage_damaged_bytes",
        kind="gauge",
        help="Bytes of the log that were found damaged and are not served",
        read=one(lambda snapshot: snapshot.store.damaged),
    ),
    Metric(
        name="rocketmq_storage_unscrubbed_bytes",
        kind="gauge",
        help="Bytes of the log that were neither written nor read and checked since the start",
        read=one(lambda snapshot: snapshot.store.unscrubbed),
    ),
)
