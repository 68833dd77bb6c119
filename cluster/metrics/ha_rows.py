"""Metrics of replication, which RocketMQ has none of. `group` is brokerName; replicas have the names of `twinlog list`."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import get_args

from twinlog.cluster.metrics.row import GROUP, OWN, Sample, counter, gauge, histogram
from twinlog.cluster.metrics.snapshot import BrokerSnapshot, ReplicaNumbers
from twinlog.cluster.observe.members import STATE_NAMES
from twinlog.ha.statistics import ClientState

ROLES = ("master", "slave", "none")
# Two words of the program may be one for people.
STATES = tuple(
    dict.fromkeys(
        ("serving", *(STATE_NAMES.get(state, state) for state in get_args(ClientState)), "starting", "holding")
    )
)


def _replicas(value: Callable[[ReplicaNumbers], float | None]) -> Callable[[BrokerSnapshot], Iterable[Sample]]:
    def read(snapshot: BrokerSnapshot) -> Iterable[Sample]:
        for each in snapshot.ha.replicas:
            if (found := value(each)) is not None:
                yield (each.name,), found

    return read


def _offsets(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    store = snapshot.store
    yield ("min",), store.min_offset
    yield ("written",), store.max_offset
    yield ("flushed",), store.flushed_offset
    yield ("confirmed",), snapshot.ha.confirmed_offset


def _states(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return (((state,), state == snapshot.ha.state) for state in STATES)


def _roles(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return (((role,), role == snapshot.ha.role) for role in ROLES)


def _identity(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return [((snapshot.ha.member_id, snapshot.ha.address), 1)] if snapshot.ha.member_id else []


def _secrets(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return (((id, "accepts" if number else "signs"), 1) for number, id in enumerate(snapshot.ha.secret_ids))


def _elections(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return (((outcome,), count) for outcome, count in snapshot.ha.elections)


def _ack_waits(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return (((str(need), outcome), counts) for need, outcome, counts in snapshot.ha.ack_waits)


def _rejected(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return ((("ha", cause), count) for cause, count in snapshot.ha.rejected)


def _reconnects(snapshot: BrokerSnapshot) -> Iterable[Sample]:
    return (((state,), count) for state, count in snapshot.ha.reconnects)


def _if_master(value: Callable[[BrokerSnapshot], float]) -> Callable[[BrokerSnapshot], float | None]:
    return lambda snapshot: value(snapshot) if snapshot.ha.role == "master" else None


def _one_copy(snapshot: BrokerSnapshot) -> float | None:
    return snapshot.ha.in_sync_set == 1 if snapshot.ha.in_sync_set is not None else None


_group_gauge = partial(gauge, scope=GROUP)
_replica_gauge = partial(_group_gauge, labels=("replica",))
HA = (
    gauge(
        name="rocketmq_ha_role_info",
        help="1 for the role that a member has now: master (it serves), slave, or none (fenced, starting, waiting)",
        labels=("role",),
        read=_roles,
    ),
    gauge(
        name="rocketmq_ha_member_info",
        help="1; its labels say who a member is, by an id that stays when its address changes, and where it is now",
        labels=("member_id", "address"),
        read=_identity,
    ),
    gauge(
        name="rocketmq_ha_secret_info",
        help="1 for each group secret that a member accepts, by its id; `use` is signs for the one that it signs with",
        labels=("secret_id", "use"),
        read=_secrets,
    ),
    gauge(
        name="rocketmq_ha_epoch",
        help="Epoch of the last master that this member has followed, or been",
        read=lambda snapshot: snapshot.ha.epoch,
    ),
    gauge(
        name="rocketmq_ha_paused",
        help="1 while somebody has paused role changes in this group",
        read=lambda snapshot: snapshot.ha.paused,
    ),
    gauge(
        name="rocketmq_ha_auto_failover",
        help="1 while this member's record of its group says autoFailover=members or etcd, 0 for off; all should agree",
        read=lambda snapshot: snapshot.ha.auto_failover,
    ),
    _group_gauge(
        name="rocketmq_ha_could_elect",
        help="Told by the master: 1 if the others could elect a master if it died now, by themselves or by command",
        read=lambda snapshot: snapshot.ha.could_elect,
    ),
    gauge(
        name="rocketmq_ha_master_suspected",
        help="1 while a slave takes its master for dead: it was silent for autoFailoverAfterMs, or its process is gone",
        scope=OWN,
        read=lambda snapshot: snapshot.ha.suspected,
    ),
    gauge(
        name="rocketmq_ha_master_heard_seconds",
        help="Told by a slave: seconds since it heard its master last",
        scope=OWN,
        read=lambda snapshot: snapshot.ha.heard_seconds,
    ),
    counter(
        name="rocketmq_ha_elections_total",
        help="Automatic failovers that this member began: tried, and of these won or given_up",
        labels=("outcome",),
        read=_elections,
    ),
    gauge(
        name="rocketmq_ha_elections_held_off_seconds",
        help="So long this member begins no automatic failover, because there were many; 0: it does not hold off",
        read=lambda snapshot: snapshot.ha.held_off_seconds,
    ),
    gauge(
        name="rocketmq_ha_replica_state",
        help="1 for the state that a member is in now, 0 for the others",
        scope=OWN,
        labels=("state",),
        read=_states,
    ),
    gauge(
        name="rocketmq_ha_offset_bytes",
        help="Points of a member's own log: its first byte, the end of what is written, synced and confirmed",
        scope=OWN,
        labels=("point",),
        read=_offsets,
    ),
    _replica_gauge(
        name="rocketmq_ha_replica_connected",
        help="Told by the master: 1 while a slave is connected, 0 for one that was, or that belongs to the group",
        read=_replicas(lambda each: each.connected),
    ),
    _replica_gauge(
        name="rocketmq_ha_replica_tls",
        help="Told by the master: 1 while a slave's HA connection uses TLS, 0 while it is plaintext",
        read=_replicas(lambda each: each.tls),
    ),
    _replica_gauge(
        name="rocketmq_ha_replica_in_sync",
        help="Told by the master: 1 while producers may be answered on this slave's word",
        read=_replicas(lambda each: each.in_sync),
    ),
    _replica_gauge(
        name="rocketmq_ha_replica_lag_bytes",
        help="Told by the master: bytes of its log that a slave has not acknowledged, also of one that is gone",
        read=_replicas(lambda each: each.lag_bytes),
    ),
    _replica_gauge(
        name="rocketmq_ha_replica_lag_seconds",
        help="Age of the oldest of these bytes, by the master's own clock; absent when they came before it started",
        read=_replicas(lambda each: each.lag_seconds),
    ),
    _replica_gauge(
        name="rocketmq_ha_replica_lag_messages",
        help="About so many messages are in these bytes, by the mean size of those since the start",
        read=_replicas(lambda each: each.lag_messages),
    ),
    _group_gauge(
        name="rocketmq_ha_acks_configured",
        help="Told by the master: members that should hold a message before SEND_OK, itself included (inSyncReplicas)",
        read=_if_master(lambda snapshot: snapshot.ha.acks_configured),
    ),
    _group_gauge(
        name="rocketmq_ha_acks_needed",
        help="Told by the master: members that have to hold it now; less than configured where that may adapt",
        read=_if_master(lambda snapshot: snapshot.ha.acks_needed),
    ),
    _group_gauge(
        name="rocketmq_ha_in_sync_members",
        help="Told by the master: members that are in sync, itself included",
        read=_if_master(lambda snapshot: snapshot.ha.in_sync),
    ),
    _group_gauge(
        name="rocketmq_ha_in_sync_set_members",
        help="Told by the master where etcd keeps the group's record: members in the in-sync set, itself included",
        read=lambda snapshot: snapshot.ha.in_sync_set,
    ),
    _group_gauge(
        name="rocketmq_ha_in_sync_set_version",
        help="Told by the master, likewise: version of the record in force, which grows with each change of it",
        read=lambda snapshot: snapshot.ha.in_sync_version,
    ),
    _group_gauge(
        name="rocketmq_ha_in_sync_set_changed_seconds",
        help="Told by the master, likewise: seconds since it saw the set change last; absent before the first change",
        read=lambda snapshot: snapshot.ha.in_sync_changed_seconds,
    ),
    _group_gauge(
        name="rocketmq_ha_one_copy",
        help="Told by the master, likewise: 1 while it alone is in the set, so that the loss of its disk loses messages",
        read=_one_copy,
    ),
    gauge(
        name="rocketmq_ha_etcd_usable",
        help="1 while a member with etcdEndpoints can rely on etcd; 0: elections and changes of the set wait",
        scope=OWN,
        read=lambda snapshot: snapshot.ha.etcd_usable,
    ),
    histogram(
        name="rocketmq_ha_ack_wait_seconds",
        help="How long producers waited for slaves, by members that had to hold the message (policy) and outcome",
        scope=GROUP,
        labels=("policy", "outcome"),
        read=_ack_waits,
    ),
    counter(
        name="rocketmq_ha_transferred_bytes_total",
        help="Told by a slave: bytes of log that it received",
        scope=OWN,
        read=lambda snapshot: snapshot.ha.received,
    ),
    counter(
        name="rocketmq_ha_reconnects_total",
        help="Told by a slave: connections to a master that ended, by the state that this left it in",
        scope=OWN,
        labels=("reason",),
        read=_reconnects,
    ),
    counter(
        name="rocketmq_ha_divergence_detected_total",
        help="Times that a member found its log to hold what its master's does not",
        scope=OWN,
        read=lambda snapshot: snapshot.ha.divergences,
    ),
    gauge(
        name="rocketmq_ha_divergent_bytes",
        help="Bytes of a member's log that its master's does not have, from the first that differs; 0: none are known",
        scope=OWN,
        read=lambda snapshot: snapshot.ha.divergent,
    ),
    counter(
        name="rocketmq_ha_rejected_total",
        help="Connections of slaves that were refused: strangers, forged or impossible requests and acknowledgements",
        labels=("listener", "reason"),
        read=_rejected,
    ),
)
