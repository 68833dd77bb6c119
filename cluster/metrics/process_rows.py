"""Metrics of processes, of name servers, and of audits, whose results a broker shows if their file is configured."""

from collections.abc import Iterable
from functools import partial

from twinlog.cluster.metrics import audit_file
from twinlog.cluster.metrics.row import DISK, PROCESS, Metric, Sample, counter, gauge, histogram
from twinlog.cluster.metrics.snapshot import BrokerSnapshot, NamesrvSnapshot


def _registered(snapshot: NamesrvSnapshot) -> Iterable[Sample]:
    for each in snapshot.groups:
        yield (each.cluster, each.group, "master"), each.masters
        yield (each.cluster, each.group, "slave"), each.slaves


def _silent(snapshot: NamesrvSnapshot) -> Iterable[Sample]:
    return (((each.cluster, each.group), each.silent_seconds) for each in snapshot.groups)


_everybody = partial(Metric, scope=PROCESS, of=(BrokerSnapshot, NamesrvSnapshot))
_namesrv_gauge = partial(gauge, scope=PROCESS, of=(NamesrvSnapshot,))
_audit_gauge = partial(gauge, scope=PROCESS, labels=("group", "pair"))
_disk_gauge = partial(gauge, scope=DISK)
NAMESRV = (
    _namesrv_gauge(
        name="rocketmq_namesrv_registered_brokers",
        help="Brokers that are registered with this name server, by the role that their ids stand for",
        labels=("cluster", "group", "role"),
        read=_registered,
    ),
    _namesrv_gauge(
        name="rocketmq_namesrv_silent_seconds",
        help="Seconds since the member of a group registered that has been silent for longest",
        labels=("cluster", "group"),
        read=_silent,
    ),
    _namesrv_gauge(
        name="rocketmq_namesrv_topic_number",
        help="Topics that this name server has a route to",
        read=lambda snapshot: snapshot.topics,
    ),
)
AUDIT = (
    _audit_gauge(
        name=audit_file.LAST_RUN,
        help="When the last audit of these members ended, seconds since 1970 (auditMetricsFile)",
        read=lambda snapshot: audit_file.samples(snapshot.audit_file, audit_file.LAST_RUN),
    ),
    _audit_gauge(
        name=audit_file.DIVERGENT,
        help="Things that it found not to be as they should be; 0: the copies are equal up to lag (auditMetricsFile)",
        read=lambda snapshot: audit_file.samples(snapshot.audit_file, audit_file.DIVERGENT),
    ),
    _audit_gauge(
        name=audit_file.PROVED,
        help="All members are proved equal up to this offset, by an audit with a ledger (auditMetricsFile)",
        read=lambda snapshot: audit_file.samples(snapshot.audit_file, audit_file.PROVED),
    ),
    _audit_gauge(
        name=audit_file.UNPROVED,
        help="Bytes of the longest log behind that, when it was audited (auditMetricsFile)",
        read=lambda snapshot: audit_file.samples(snapshot.audit_file, audit_file.UNPROVED),
    ),
    _audit_gauge(
        name=audit_file.OLDEST,
        help="Time of the oldest proof that holds, seconds since 1970: every byte is proved again in turn (auditMetricsFile)",
        read=lambda snapshot: audit_file.samples(snapshot.audit_file, audit_file.OLDEST),
    ),
)
OWN_PROCESS = (
    counter(
        name="twinlog_event_loop_stalls_total",
        help="Times that the broker's event loop stood still for more than a second",
        read=lambda snapshot: snapshot.stalls,
    ),
    gauge(
        name="twinlog_event_loop_stall_seconds_max",
        help="The longest of these, since the start",
        read=lambda snapshot: snapshot.longest_stall,
    ),
    counter(
        name="twinlog_event_loop_cpu_waits_total",
        help="Times that the broker's event loop was ready to run and had no CPU for more than a second: the machine is busy",
        read=lambda snapshot: snapshot.cpu_waits,
    ),
    counter(
        name="twinlog_event_loop_cpu_wait_seconds_total",
        help="All that it waited for a CPU, short waits too",
        read=lambda snapshot: snapshot.cpu_wait_seconds,
    ),
    _everybody(
        kind="gauge",
        name="twinlog_snapshot_seconds",
        help="How long the event loop worked for these metrics",
        read=lambda snapshot: snapshot.seconds,
    ),
    _everybody(
        kind="gauge",
        name="twinlog_event_loop_stalled_seconds",
        help="How long the event loop has not run, because it stands still or has no CPU; 0 while it runs",
        read=lambda snapshot: snapshot.stalled_seconds,
    ),
    _everybody(
        kind="gauge",
        name="twinlog_snapshot_age_seconds",
        help="Age of the other values: above 0 while the event loop stands still",
        read=lambda snapshot: snapshot.age_seconds,
    ),
    _everybody(kind="gauge", name="process_start_time_seconds", help="When the process started, seconds since 1970"),
    _everybody(kind="counter", name="process_cpu_seconds_total", help="CPU time that it used, user and system"),
    _everybody(
        kind="gauge",
        name="process_resident_memory_bytes",
        help="Its memory, with pages of mapped files that lie in memory",
    ),
    _everybody(kind="gauge", name="process_virtual_memory_bytes", help="Its address space, with mapped files"),
    _everybody(kind="gauge", name="process_open_fds", help="File descriptors that are open"),
    _everybody(kind="gauge", name="process_max_fds", help="File descriptors that may be open"),
)


STORE = (
    _disk_gauge(
        name="rocketmq_storage_size_bytes",
        help="Files of the commit log and the consume queues, as large as they are on the disk",
        read=lambda snapshot: snapshot.store.size,
    ),
    _disk_gauge(
        name="rocketmq_storage_flush_behind_bytes",
        help="Bytes of the log that are written and not yet synced to the disk",
        read=lambda snapshot: max(snapshot.store.max_offset - snapshot.store.flushed_offset, 0),
    ),
    _disk_gauge(
        name="rocketmq_storage_dispatch_behind_bytes",
        help="Bytes of the log that are not yet in the consume queues",
        read=lambda snapshot: max(snapshot.store.max_offset - snapshot.store.dispatched_offset, 0),
    ),
    _disk_gauge(
        name="rocketmq_storage_message_reserve_time_milliseconds",
        help="Age of the oldest message in the log; absent while there is none, or it is not in memory",
        read=lambda snapshot: snapshot.store.reserve_ms,
    ),
    gauge(
        name="rocketmq_storage_disk_used_ratio",
        help="Used part of the fullest disk of this store, 0 to 1, rounded up to hundredths as RocketMQ does",
        read=lambda snapshot: None if snapshot.store.disk_used_ratio < 0 else snapshot.store.disk_used_ratio,
    ),
    histogram(
        name="rocketmq_storage_fsync_seconds",
        help="How long it took to sync the log to the disk",
        read=lambda snapshot: snapshot.store.fsync,
    ),
    counter(
        name="rocketmq_storage_fsync_errors_total",
        help="Times that the disk refused to sync the log or the queues",
        read=lambda snapshot: snapshot.store.sync_errors,
    ),
    gauge(
        name="rocketmq_storage_readonly",
        help="1 while this store takes no bytes: from producers on a master, from its master on a slave",
        read=lambda snapshot: snapshot.store.readonly,
    ),
    gauge(
        name="rocketmq_storage_damaged_bytes",
        help="Bytes of the log that were found damaged and are not served",
        read=lambda snapshot: snapshot.store.damaged,
    ),
    gauge(
        name="rocketmq_storage_unscrubbed_bytes",
        help="Bytes of the log that were neither written nor read and checked since the start",
        read=lambda snapshot: snapshot.store.unscrubbed,
    ),
)
