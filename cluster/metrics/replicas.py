"""The slaves of a member by names that stay: a connection has another port each time, and one that is gone still lags.

A slave of twinlog says its name; one of RocketMQ is called by its IP. Who left is remembered for as long as this member serves,
so that its lag goes on rising where it can be seen.
"""

from collections import Counter
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import trio

from cluster.broker.broker import Broker
from cluster.broker.names import member_name
from cluster.metrics.snapshot import ReplicaNumbers
from cluster.remoting.address import ip_of
from ha.statistics import HAConnectionStatistics, HAStatistics

NAMED_AFTER_SECONDS = 10.0  # Slaves are asked for their names every five.

_seen: "WeakKeyDictionary[Broker, dict[str, int]]" = WeakKeyDictionary()  # Each slave's last acknowledgement.


def replicas(broker: Broker, ha: HAStatistics) -> tuple[ReplicaNumbers, ...]:
    """All slaves: those that are connected, those that were, and those of the group's record."""
    seen = _seen.setdefault(broker, {})
    if broker.is_slave:
        seen.clear()  # Whoever becomes master next begins anew; a slave's own slaves are told while they are there.
    connected = {name: each for each in ha.connections if (name := _name(broker, each, ha.connections)) is not None}
    for name, each in connected.items():
        if name != each.address:
            seen[name] = each.ack_offset
        else:  # One of several behind an IP: nobody can tell which of them comes back, or was called by it before.
            seen.pop(ip_of(each.address), None)
    for name, offset in _away(broker, ha, connected.keys() | seen.keys()):
        seen[name] = offset
    members = [] if broker.is_slave else _members(broker)
    found = [_connected(broker, name, each) for name, each in connected.items()]
    found += [_gone(broker, name, seen.get(name)) for name in dict.fromkeys([*seen, *members]) if name not in connected]
    return tuple(sorted(found, key=lambda each: each.name))


def _name(
    broker: Broker, connection: HAConnectionStatistics, connections: Iterable[HAConnectionStatistics]
) -> str | None:
    """None: it has made no request, or is so new that it has not been asked."""
    if connection.ack_offset < 0:
        return None
    kind = broker.slave_kinds.kinds.get(connection.address)
    if kind is not None:
        return member_name(broker.config.broker_name, kind.broker_id, kind.directory)
    if trio.current_time() - connection.connected_since < NAMED_AFTER_SECONDS:
        return None
    ip = ip_of(connection.address)
    alone = sum(ip_of(each.address) == ip for each in connections) == 1
    return ip if alone else connection.address


def _members(broker: Broker) -> list[str]:
    """The others of the group's record."""
    record, own = broker.roles.group, broker.config.broker_name
    others = record.members if record is not None else ()
    return [member_name(own, each.broker_id, each.name) for each in others if each.address != broker.address]


def _away(broker: Broker, ha: HAStatistics, known: Iterable[str]) -> list[tuple[str, int]]:
    """Members that were away already when this process started, where their IP says who it is."""
    record, known = broker.roles.group, set(known)
    if broker.is_slave or record is None or not ha.away:
        return []
    absent = [
        (member_name(broker.config.broker_name, each.broker_id, each.name), ip_of(each.ha_address))
        for each in record.members
        if each.address != broker.address
    ]
    absent = [(name, ip) for name, ip in absent if name not in known]
    ips, away = Counter(ip for _, ip in absent), Counter(each.ip for each in ha.away)
    offsets = {each.ip: each.offset for each in ha.away}
    return [(name, offsets[ip]) for name, ip in absent if ips[ip] == away[ip] == 1]


def _connected(broker: Broker, name: str, slave: HAConnectionStatistics) -> ReplicaNumbers:
    return ReplicaNumbers(
        name=name,
        connected=True,
        in_sync=slave.in_sync,
        lag_bytes=slave.lag_bytes,
        lag_seconds=slave.lag_seconds,
        lag_messages=_messages(broker, slave.lag_bytes),
    )


def _gone(broker: Broker, name: str, ack_offset: int | None) -> ReplicaNumbers:
    lag = None if ack_offset is None else max(broker.store.max_offset - ack_offset, 0)
    return ReplicaNumbers(
        name=name,
        connected=False,
        in_sync=False,
        lag_bytes=lag,
        lag_seconds=None if ack_offset is None else broker.ha.age_of(ack_offset),
        lag_messages=_messages(broker, lag),
    )


def _messages(broker: Broker, lag_bytes: int | None) -> int | None:
    """About so many messages: by the mean size of those that came since the start."""
    if lag_bytes is None or lag_bytes == 0:
        return lag_bytes
    messages, size = broker.store.put_counts
    return max(round(lag_bytes * messages / size), 1) if size else None
