"""Metrics of processes, of name servers, and of audits, whose results a broker shows if their file is configured."""

from collections.abc import Iterable

from twinlog.cluster.metrics import audit_file
from twinlog.cluster.metrics.row import DISK, PROCESS, Metric, Sample, one
from twinlog.cluster.metrics.snapshot import BrokerSnapshot, NamesrvSnapshot

EVERYBODY = (BrokerSnapshot, NamesrvSnapshot)


def _registered(snapshot: NamesrvSnapshot) -> Iterable[Sample]:
    for each in snapshot.groups:
        yield (each.cluster, each.group, "master"), each.masters
        yield (each.cluster, each.group, "slave"), each.slaves


def _silent(snapshot: NamesrvSnapshot) -> Iterable[Sample]:
    return (((each.cluster, each.group), each.silent_seconds) for each in snapshot.groups)


def _own(name: str, kind: str, text: str) -> Metric:
    assert kind in ("gauge", "counter")
    return Metric(name=name, kind="gauge" if kind == "gauge" else "counter", help=text, scope=PROCESS, of=EVERYBODY)


NAMESRV = (
    Metric(
        name="rocketmq_namesrv_registered_brokers",
        kind="gauge",
        help="Brokers that are registered with this name server, by the role that their ids stand for",
        scope=PROCESS,
        labels=("cluster", "group", "role"),
        of=(NamesrvSnapshot,),
        read=_registered,
    ),
    Metric(
        name="rocketmq_namesrv_silent_seconds",
        kind="gauge",
        help="Seconds since the member of a group registered that has been silent for longest",
        scope=PROCESS,
        labels=("cluster", "group"),
        of=(NamesrvSnapshot,),
        read=_silent,
    ),
    Metric(
        name="rocketmq_namesrv_topic_number",
        kind="gauge",
        help="Topics that this name server has a route to",
        scope=PROCESS,
        of=(NamesrvSnapshot,),
        read=one(lambda snapshot: snapshot.topics),
    ),
)
AUDIT = (
    Metric(
        name=audit_file.LAST_RUN,
        kind="gauge",
        help="When the last audit of these members ended, seconds since 1970 (auditMetricsFile)",
        scope=PROCESS,
        labels=("group", "pair"),
        read=lambda snapshot: audit_file.samples(snapshot.audit_file, audit_file.LAST_RUN),
    ),
    Metric(
        name=audit_file.DIVERGENT,
        kind="gauge",
        help="Things that it found not to be as they should be; 0: the copies are equal up to lag (auditMetricsFile)",
        scope=PROCESS,
        labels=("group", "pair"),
        read=lambda snapshot: audit_file.samples(snapshot.audit_file, audit_file.DIVERGENT),
    ),
)
OWN_PROCESS = (
    Metric(
        name="twinlog_event_loop_stalls_total",
        kind="counter",
        help="Times that the broker's event loop stood still for more than a second",
        read=one(lambda snapshot: snapshot.stalls),
    ),
    Metric(
        name="twinlog_event_loop_stall_seconds_max",
        kind="gauge",
        help="The longest of these, since the start",
        read=one(lambda snapshot: snapshot.longest_stall),
    ),
    Metric(
        name="twinlog_event_loop_cpu_waits_total",
        kind="counter",
        help="Times that the broker's event loop was ready to run and had no CPU for more than a second: the machine is busy",
        read=one(lambda snapshot: snapshot.cpu_waits),
    ),
    Metric(
        name="twinlog_event_loop_cpu_wait_seconds_total",
        kind="counter",
        help="All that it waited for a CPU, short waits too",
        read=one(lambda snapshot: snapshot.cpu_wait_seconds),
    ),
    Metric(
        name="twinlog_snapshot_seconds",
        kind="gauge",
        help="How long the event loop worked for these metrics",
        scope=PROCESS,
        of=EVERYBODY,
        read=one(lambda snapshot: snapshot.seconds),
    ),
    Metric(
        name="twinlog_event_loop_stalled_seconds",
        kind="gauge",
        help="How long the event loop has not run, because it stands still or has no CPU; 0 while it runs",
        scope=PROCESS,
        of=EVERYBODY,
        read=one(lambda snapshot: snapshot.stalled_seconds),
    ),
    Metric(
        name="twinlog_snapshot_age_seconds",
        kind="gauge",
        help="Age of the other values: above 0 while the event loop stands still",
        scope=PROCESS,
        of=EVERYBODY,
        read=one(lambda snapshot: snapshot.age_seconds),
    ),
    _own("process_start_time_seconds", "gauge", "When the process started, seconds since 1970"),
    _own("process_cpu_seconds_total", "counter", "CPU time that it used, user and system"),
    _own("process_resident_memory_bytes", "gauge", "Its memory, with pages of mapped files that lie in memory"),
    _own("process_virtual_memory_bytes", "gauge", "Its address space, with mapped files"),
    _own("process_open_fds", "gauge", "File descriptors that are open"),
    _own("process_max_fds", "gauge", "File descriptors that may be open"),
)


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
