"""Snapshots of brokers and name servers, made in their own event loop: sums over tables, without I/O or walks over messages."""

import errno
import os
import time
from collections import Counter
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import trio

from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.metrics.replicas import replicas
from twinlog.cluster.metrics.snapshot import (
    BrokerSnapshot,
    GroupLag,
    HANumbers,
    NamesrvSnapshot,
    RegisteredGroup,
    StoreNumbers,
)
from twinlog.cluster.mqadmin.text import version_name
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.observe.members import NO_MASTERS, state_text
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.names import member_name
from twinlog.cluster.remoting.route import MASTER_ID
from twinlog.ha.election.in_sync_set import floor_of
from twinlog.ha.master.group_transfer import OUTCOMES
from twinlog.ha.statistics import HAStatistics
from twinlog.store.config import CONSUME_QUEUE_UNIT, BrokerRole
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.message import STORED_MS_END, record_stored_ms
from twinlog.store.role_file import GroupRecord
from twinlog.store.util.histogram import HistogramCounts


def broker_snapshot(broker: Broker) -> BrokerSnapshot:
    """Everything as it is now. To be called in the broker's own loop, once it serves."""
    began = time.perf_counter()
    config, watchdog = broker.config, broker.watchdog.statistics()
    return BrokerSnapshot(
        cluster=config.broker_cluster_name,
        group=config.broker_name,
        member=member_name(config.broker_name, config.broker_id, broker.store.config.root.expanduser().name),
        permission=config.broker_permission,
        topics=len(broker.tables.topics.table),
        groups=len(broker.tables.groups.table),
        puts=puts(broker),
        gets=gets(broker),
        dead=dead(broker),
        lags=tuple(lags(broker)),
        producers=producers(broker),
        consumers=consumers(broker),
        held_pulls=len(broker.held_pulls),
        requests=sum(server.dispatcher.under_way for server in broker.servers),
        store=_store(broker),
        ha=_ha(broker, broker.ha.statistics()),
        stalls=watchdog.stalls,
        longest_stall=watchdog.longest_ms / 1000,
        cpu_waits=watchdog.cpu_waits,
        cpu_wait_seconds=watchdog.cpu_wait_seconds,
        now_ms=broker.store.now_ms(),
        audit_file=config.audit_metrics_file or None,
        seconds=time.perf_counter() - began,
    )


def _store(broker: Broker) -> StoreNumbers:
    store = broker.store
    oldest = stored_ms_at(store, store.min_offset) if store.max_offset > store.min_offset else None
    return StoreNumbers(
        size=_size(broker),
        min_offset=store.min_offset,
        max_offset=store.max_offset,
        flushed_offset=store.flushed_offset,
        dispatched_offset=store.dispatched_offset,
        reserve_ms=None if oldest is None else max(broker.store.now_ms() - oldest, 0),
        fsync=store.flusher.times.taken(),
        sync_errors=store.sync_errors,
        readonly=bool(store.flags.why_not_appendable if broker.is_slave else store.flags.why_not_writable),
        disk_used_ratio=store.retention.disk.ratio,
        damaged=store.damaged.total,
        unscrubbed=store.scrub.unscrubbed_bytes,
    )


def _size(broker: Broker) -> int:
    """Size of files on the disk, which are allocated in full."""
    log = broker.store.commit_log.files
    queues = sum(len(queue.files.files) * queue.files.file_size for _, _, queue in broker.store.queues())
    return len(log.files) * log.file_size + queues


def _ha(broker: Broker, ha: HAStatistics) -> HANumbers:
    client, state = broker.ha.client, _state(broker)
    synchronous = broker.store.config.broker_role is BrokerRole.SYNC_MASTER
    finding, elector = client.finding, broker.roles.elector
    auto, kept, outside = broker.status.auto_failover(), _kept_in_etcd(broker), broker.roles.outside
    return HANumbers(
        member_id=broker.roles.member.own,
        secret_ids=broker.secrets.ids,
        address=broker.address,
        role=_role(broker, state),
        state=state,
        epoch=broker.roles.member.epochs()[-1].epoch,
        paused=bool(broker.roles.member.paused()),
        confirmed_offset=broker.group.confirmed_offset(),
        synchronous=synchronous,
        acks_configured=broker.settings.ha_config.in_sync_replicas if synchronous else 1,
        acks_needed=ha.decision.need if synchronous else 1,
        in_sync=ha.decision.alive,
        waiting=ha.waiting_messages + broker.store.flusher.waiting,
        ack_waits=_ack_waits(broker, ha.decision.need if synchronous else 0),
        replicas=replicas(broker, ha),
        rejected=tuple(ha.refused.items()),
        received=client.statistics().transferred_bytes if broker.is_slave else None,
        reconnects=tuple(client.ends.items()),
        divergences=client.divergences,
        divergent=max(broker.store.max_offset - finding.offset, 0)
        if finding is not None and finding.kind in ("diverged", "ahead", "given up")
        else 0,
        auto_failover=auto.mode != "off" if auto is not None else None,
        could_elect=auto.why_nobody is None if auto is not None and broker.roles.member.is_serving else None,
        suspected=auto is not None and auto.suspected,
        heard_seconds=auto.heard_ms / 1000 if auto is not None and auto.heard_ms is not None else None,
        elections=(("tried", elector.tried), ("won", elector.won), ("given_up", elector.given_up)),
        held_off_seconds=auto.held_off_ms / 1000 if auto is not None else 0.0,
        in_sync_set=len(kept.in_sync) if kept is not None else None,
        in_sync_version=kept.version if kept is not None else None,
        in_sync_changed_seconds=max(broker.store.now_ms() - outside.changed_ms, 0) / 1000
        if kept is not None and outside.changed_ms
        else None,
        etcd_usable=view.why == "" if (view := outside.view()) is not None else None,
    )


def _kept_in_etcd(broker: Broker) -> GroupRecord | None:
    """The record in force by which this member acknowledges; None: it is no master, or etcd does not keep the record."""
    group = broker.roles.member.group
    record = floor_of(group) if group is not None and broker.roles.member.is_serving else None
    return record if record is not None and record.is_in_etcd else None


def _ack_waits(broker: Broker, need: int) -> tuple[tuple[int, str, HistogramCounts], ...]:
    """All outcomes, from 0 on: Prometheus would not see the growth of a counter that begins at 1."""
    found = {
        (need, outcome): HistogramCounts() for outcome in OUTCOMES if need > 1
    } | broker.ha.group_transfer.waits.taken()
    return tuple((members, outcome, counts) for (members, outcome), counts in found.items())


def _state(broker: Broker) -> str:
    """The state as `twinlog list` shows it."""
    role_state, _ = broker.roles.member.status()
    return state_text(broker.status.state_word(broker.ha.client.state), role_state)


def _role(broker: Broker, state: str) -> str:
    if broker.is_slave:
        return "slave"
    return "none" if state in NO_MASTERS else "master"


READS_MAX = 500  # Messages whose age is looked up for one snapshot; whoever waits longer is looked up in the next.

Place = tuple[str, int, int]  # Key of the offset table, queue, offset.
_ages: "WeakKeyDictionary[Broker, dict[Place, int]]" = WeakKeyDictionary()  # When the message there was stored, ms.


def puts(broker: Broker) -> tuple[tuple[str, bool, int, int], ...]:
    """Topic, whether it is the system's, messages and bytes that came since the start."""
    broker.stats.take_puts()
    found: dict[str, list[int]] = {}
    for (topic, _), counter in broker.stats.puts.items():
        sums = found.setdefault(topic, [0, 0])
        sums[0] += counter.nums
        sums[1] += counter.size
    return tuple((topic, broker.tables.topics.is_system(topic), nums, size) for topic, (nums, size) in found.items())


def gets(broker: Broker) -> tuple[tuple[str, str, bool, int, int], ...]:
    """Topic, group, whether one is the system's, messages and bytes that were delivered since the start."""
    found: dict[tuple[str, str], list[int]] = {}
    for (topic, _, group), counter in broker.stats.gets.items():
        sums = found.setdefault((topic, group), [0, 0])
        sums[0] += counter.nums
        sums[1] += counter.size
    return tuple((*key, _is_system(broker, *key), nums, size) for key, (nums, size) in found.items())


def dead(broker: Broker) -> tuple[tuple[str, str, bool, int], ...]:
    """Topic, group, whether one is the system's, messages that became dead letters since the start."""
    return tuple((*key, _is_system(broker, *key), counter.nums) for key, counter in broker.stats.dead.items())


def _is_system(broker: Broker, topic: str, group: str) -> bool:
    return broker.tables.topics.is_system(topic) or group.startswith(names.SYSTEM_GROUP_PREFIX)


def lags(broker: Broker) -> Iterator[GroupLag]:
    """Each group in each topic for which it has offsets here."""
    ages = _ages.setdefault(broker, {})
    now_ms, reads, kept = broker.store.now_ms(), 0, {}
    for key, queues in broker.tables.offsets.table.items():
        topic, _, group = key.rpartition("@")
        lag = inflight = 0
        oldest: int | None = now_ms  # None: somebody waits, and it is not known for how long.
        for queue_id, offset in queues.items():
            queue = broker.store.find_queue(topic, queue_id)
            behind = (
                broker.queues.shown_end(topic, queue_id) - max(offset, queue.min_offset) if queue is not None else 0
            )
            if queue is None or behind <= 0:
                continue
            lag += behind
            inflight += min(max(broker.stats.pulled_to(group, topic, queue_id) - offset, 0), behind)
            place = key, queue_id, offset
            stored = ages.get(place)
            if stored is None and reads < READS_MAX:
                reads += 1
                stored = stored_ms(broker.store, queue, max(offset, queue.min_offset))
            if stored is not None:
                kept[place] = stored
                oldest = min(oldest, stored) if oldest is not None else None
            else:
                oldest = None
        latency = None if oldest is None else max(now_ms - oldest, 0)
        yield GroupLag(
            topic=topic,
            group=group,
            is_system=_is_system(broker, topic, group),
            lag=lag,
            inflight=inflight,
            latency_ms=latency,
        )
    _ages[broker] = kept


def producers(broker: Broker) -> tuple[tuple[str, str, int], ...]:
    """Language, version, connections."""
    clients = (client for group in broker.tables.producers.groups.values() for client in group.values())
    counted = Counter((client.language, client.version) for client in clients)
    return tuple((language.lower(), _version(version), count) for (language, version), count in counted.items())


def consumers(broker: Broker) -> tuple[tuple[str, str, str, str, int], ...]:
    """Group, language, version, push or pull, connections."""
    counted = Counter(
        (info.group, client.language, client.version, "pull" if info.consume_type == "CONSUME_ACTIVELY" else "push")
        for info in broker.tables.consumers.groups.values()
        for client in info.clients.values()
    )
    return tuple(
        (group, language.lower(), _version(version), mode, count)
        for (group, language, version, mode), count in counted.items()
    )


def _version(number: int) -> str:
    return version_name(number).lower()


def stored_ms(store: MessageStore, queue: ConsumeQueue, queue_offset: int) -> int | None:
    """ms since 1970; None: it is not in memory, or not there."""
    at = queue_offset * CONSUME_QUEUE_UNIT
    unit = _in_memory(queue.files.file_at(at), at, CONSUME_QUEUE_UNIT)
    if unit is None:
        return None
    phy_offset, size, _ = UNIT.unpack(unit)
    return stored_ms_at(store, phy_offset) if size >= STORED_MS_END else None


def stored_ms_at(store: MessageStore, phy_offset: int) -> int | None:
    """Store time of the record at an offset of the log, if it is in memory."""
    record = _in_memory(store.commit_log.files.file_at(phy_offset), phy_offset, STORED_MS_END)
    return record_stored_ms(record, phy_offset) if record is not None else None


def _in_memory(file: MappedFile | None, offset: int, size: int) -> bytes | None:
    if file is None or offset + size > file.end:
        return None
    if (late := file.read_late(offset - file.start, size)) is not None:
        return late
    found = bytearray(size)
    try:
        read = os.preadv(file.fd, [found], offset - file.start, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            return None
        try:
            read = os.preadv(file.fd, [found], offset - file.start)
        except OSError:
            return None
    return bytes(found) if read == size else None


def namesrv_snapshot(namesrv: NameServer) -> NamesrvSnapshot:
    """Everything as it is now."""
    began, now, routes = time.perf_counter(), trio.current_time(), namesrv.routes
    groups = []
    for name, group in routes.brokers.items():
        silent = [now - live.registered_at for each in group.addresses.values() if (live := routes.live.get(each))]
        masters = int(MASTER_ID in group.addresses)
        groups.append(
            RegisteredGroup(
                cluster=group.cluster,
                group=name,
                masters=masters,
                slaves=len(group.addresses) - masters,
                silent_seconds=max(silent, default=0.0),
            )
        )
    return NamesrvSnapshot(
        groups=tuple(groups),
        topics=len(routes.queues),
        now_ms=time.time_ns() // 1_000_000,
        seconds=time.perf_counter() - began,
    )
