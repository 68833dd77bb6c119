"""One broker's snapshot, put together in its own loop: sums over tables, no I/O, no walk over messages."""

import time

from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.broker.status import state_word
from twinlog.cluster.metrics import consumption
from twinlog.cluster.metrics.first_waiting import stored_ms_at
from twinlog.cluster.metrics.replicas import replicas
from twinlog.cluster.metrics.snapshot import BrokerSnapshot, HANumbers, StoreNumbers
from twinlog.cluster.observe.members import NO_MASTERS, state_in_words
from twinlog.cluster.remoting.names import member_name
from twinlog.ha.master.group_transfer import OUTCOMES
from twinlog.ha.statistics import HAStatistics
from twinlog.store.config import BrokerRole
from twinlog.store.util.histogram import Counts


def broker_snapshot(broker: Broker) -> BrokerSnapshot:
    """Everything as it is now. To be called in the broker's own loop, once it serves."""
    began = time.perf_counter()
    config, watchdog = broker.config, broker.watchdog.statistics()
    return BrokerSnapshot(
        cluster=config.broker_cluster_name,
        group=config.broker_name,
        member=member_name(config.broker_name, config.broker_id, broker.store.config.root.expanduser().name),
        permission=config.broker_permission,
        topics=len(broker.topics.table),
        groups=len(broker.groups.table),
        puts=consumption.puts(broker),
        gets=consumption.gets(broker),
        dead=consumption.dead(broker),
        lags=tuple(consumption.lags(broker)),
        producers=consumption.producers(broker),
        consumers=consumption.consumers(broker),
        held_pulls=len(broker.held_pulls),
        requests=sum(server.dispatcher.under_way for server in broker.servers),
        store=_store(broker),
        ha=_ha(broker, broker.ha.statistics()),
        stalls=watchdog.stalls,
        longest_stall=watchdog.longest_ms / 1000,
        cpu_waits=watchdog.cpu_waits,
        cpu_wait_seconds=watchdog.cpu_wait_seconds,
        now_ms=broker.now_ms(),
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
        reserve_ms=None if oldest is None else max(broker.now_ms() - oldest, 0),
        fsync=store.flusher.times.taken(),
        sync_errors=store.sync_errors,
        readonly=bool(store.flags.why_not_appendable if broker.is_slave else store.flags.why_not_writable),
        disk_used_ratio=store.retention.disk.ratio,
        damaged=store.damaged.total,
        unscrubbed=store.scrub.unscrubbed_bytes,
    )


def _size(broker: Broker) -> int:
    """Of files as they lie on the disk, which are made whole at once."""
    log = broker.store.commit_log.files
    queues = sum(len(queue.files.files) * queue.files.file_size for _, _, queue in broker.store.queues())
    return len(log.files) * log.file_size + queues


def _ha(broker: Broker, ha: HAStatistics) -> HANumbers:
    client, state = broker.ha.client, _state(broker)
    synchronous = broker.store.config.broker_role is BrokerRole.SYNC_MASTER
    finding = client.finding
    return HANumbers(
        role=_role(broker, state),
        state=state,
        epoch=broker.roles.epochs()[-1].epoch,
        paused=bool(broker.roles.paused()),
        confirmed_offset=broker.confirmed_offset(),
        synchronous=synchronous,
        acks_configured=broker.ha_config.in_sync_replicas if synchronous else 1,
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
    )


def _ack_waits(broker: Broker, need: int) -> tuple[tuple[int, str, Counts], ...]:
    """What can happen now is there from the start: of a counter that begins at 1 Prometheus sees no growth."""
    found = {(need, outcome): Counts() for outcome in OUTCOMES if need > 1} | broker.ha.group_transfer.waits.taken()
    return tuple((members, outcome, counts) for (members, outcome), counts in found.items())


def _state(broker: Broker) -> str:
    """The word of `twinlog list`."""
    role_state, _ = broker.roles.words()
    return state_in_words(state_word(broker, broker.ha.client.state), role_state)


def _role(broker: Broker, state: str) -> str:
    if broker.is_slave:
        return "slave"
    return "none" if state in NO_MASTERS else "master"
