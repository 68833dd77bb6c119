"""The slaves of a member by names that stay: a connection has another port each time, and one that is gone still lags.

A slave has one name from the moment it connects: that of the group's member at its IP; else what it says itself, if it is one of
twinlog's; else its IP. When a slave that was called by its IP says its name, what was noted under the IP becomes its own. Who
left is remembered, so that its lag goes on rising where it can be seen: members of the group's record for as long as they are in
it, others for FORGOTTEN_AFTER_SECONDS.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakKeyDictionary

import trio
from attrs import define, evolve, field, frozen

from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.metrics.snapshot import ReplicaNumbers
from twinlog.cluster.remoting.names import ip_of, member_name
from twinlog.ha.statistics import HAConnectionStatistics, HAStatistics
from twinlog.store.role_file import GroupMember

NAMED_AFTER_SECONDS = 10.0  # Slaves are asked for their names every five.
FORGOTTEN_AFTER_SECONDS = 3600.0  # From when on a slave that left, and is no member of the group, is shown no more.


@frozen
class _Seen:
    """A slave's last acknowledgement, and when it was connected last, in seconds of the loop's clock."""

    ack_offset: int
    at: float


@define
class _Memory:
    """`names`: of the connections that there are, by IP:PORT. `seen`: by name."""

    names: dict[str, str] = field(factory=dict)
    seen: dict[str, _Seen] = field(factory=dict)


_memories: "WeakKeyDictionary[Broker, _Memory]" = WeakKeyDictionary()


def replicas(broker: Broker, ha: HAStatistics) -> tuple[ReplicaNumbers, ...]:
    """All slaves: those that are connected, those that were, and those of the group's record."""
    memory = _memories.setdefault(broker, _Memory())
    if broker.is_slave:
        memory.seen.clear()  # Whoever becomes master next begins anew; a slave's own slaves are told while they are there.
    members = _members(broker)
    memory.names = names = _names(broker, ha, members, memory.names)
    connected = {names[each.address]: each for each in ha.connections if each.address in names}
    _note(memory, connected, members, trio.current_time())
    for name, offset in _away(ha, members, connected.keys() | memory.seen.keys(), broker.settings.hosts.ip_of):
        memory.seen[name] = _Seen(offset, trio.current_time())
    found = [_connected(broker, name, each) for name, each in connected.items()]
    gone = [name for name in dict.fromkeys([*memory.seen, *members]) if name not in connected]
    found += [_gone(broker, name, memory.seen.get(name)) for name in gone]
    return tuple(sorted(found, key=lambda each: each.name))


def _names(
    broker: Broker, ha: HAStatistics, members: Mapping[str, GroupMember], before: Mapping[str, str]
) -> dict[str, str]:
    """By IP:PORT of the connection. Missing: one that has made no request, or is so new that it has not been asked.

    `before`: what each was called; only what a slave says itself replaces that.
    """
    slaves = [each for each in ha.connections if each.ack_offset >= 0]
    names = {each.address: name for each in slaves if (name := _own_name(broker, each.address)) is not None}
    names |= {each.address: name for each in slaves for name, known in members.items() if each.member == known.id}
    for each in slaves:
        if before.get(each.address, each.address) not in (each.address, ip_of(each.address)):
            names.setdefault(each.address, before[each.address])
    unnamed = [each for each in slaves if each.address not in names]
    of_ip = Counter(ip_of(each.address) for each in unnamed)
    for each in unnamed:
        ip = ip_of(each.address)
        fitting = [name for name, member in members.items() if ip in broker.settings.hosts.ips_of(member.ha_address)]
        registered = ha.registered.count(ip) - sum(name in fitting for name in names.values())
        left = [name for name in fitting if name not in names.values()]
        if each.address not in before and len(left) == of_ip[ip] == 1 and registered <= 1:
            names[each.address] = left[0]
        elif trio.current_time() - each.connected_since >= NAMED_AFTER_SECONDS:
            alone = sum(ip_of(other.address) == ip for other in ha.connections) == 1
            names[each.address] = ip if alone else each.address
    return names


def _own_name(broker: Broker, address: str) -> str | None:
    """The name that the slave reports; None: it reports none."""
    kind = broker.slave_kinds.kinds.get(address)
    return member_name(broker.config.broker_name, kind.broker_id, kind.directory) if kind is not None else None


def _note(
    memory: _Memory, connected: Mapping[str, HAConnectionStatistics], members: Mapping[str, GroupMember], now: float
) -> None:
    """The memory of a replica, by name; replicas that are gone for long are removed."""
    for name, each in connected.items():
        if name != ip_of(each.address):
            # It was called by its IP before. Of several behind one IP nobody can tell which of them was.
            memory.seen.pop(ip_of(each.address), None)
        if name != each.address:
            memory.seen[name] = _Seen(each.ack_offset, now)
    for name in list(memory.seen):
        if name in members and name not in connected:
            memory.seen[name] = evolve(memory.seen[name], at=now)
        elif now - memory.seen[name].at > FORGOTTEN_AFTER_SECONDS:
            del memory.seen[name]


def _members(broker: Broker) -> dict[str, GroupMember]:
    """The others of the group's record, by name, where this one is its master."""
    record, own = broker.roles.member.group, broker.config.broker_name
    if broker.is_slave or record is None:
        return {}
    others = [each for each in record.members if each.id != broker.roles.member.own]
    return {member_name(own, each.broker_id, each.name): each for each in others}


def _away(
    ha: HAStatistics,
    members: Mapping[str, GroupMember],
    known: Iterable[str],
    ip_of: Callable[[str], str],
) -> list[tuple[str, int]]:
    """Members that were disconnected already when this process started, if their IP identifies them."""
    known = set(known)
    offsets = {each.ip: each.offset for each in ha.away}
    absent = {name: each for name, each in members.items() if name not in known}
    by_id = [(name, offsets[each.id]) for name, each in absent.items() if each.id in offsets]
    others = [(name, ip_of(each.ha_address)) for name, each in absent.items() if each.id not in offsets]
    ips, away = Counter(ip for _, ip in others), Counter(each.ip for each in ha.away)
    return by_id + [(name, offsets[ip]) for name, ip in others if ips[ip] == away[ip] == 1]


def _connected(broker: Broker, name: str, slave: HAConnectionStatistics) -> ReplicaNumbers:
    return ReplicaNumbers(
        name=name,
        connected=True,
        tls=slave.tls,
        in_sync=slave.in_sync,
        lag_bytes=slave.lag_bytes,
        lag_seconds=slave.lag_seconds,
        lag_messages=_messages(broker, slave.lag_bytes),
    )


def _gone(broker: Broker, name: str, seen: _Seen | None) -> ReplicaNumbers:
    ack_offset = seen.ack_offset if seen is not None else None
    lag = None if ack_offset is None else max(broker.store.max_offset - ack_offset, 0)
    return ReplicaNumbers(
        name=name,
        connected=False,
        tls=None,
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
