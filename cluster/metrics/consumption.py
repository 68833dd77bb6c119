"""What consumers and producers do, for metrics: counters by topic and group, and how far behind each group is."""

from collections import Counter
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.metrics.first_waiting import stored_ms
from twinlog.cluster.metrics.snapshot import GroupLag
from twinlog.cluster.mqadmin.text import version_name
from twinlog.cluster.remoting import names

LOOKS_MAX = 500  # Messages whose age is looked up for one snapshot; whoever waits longer is looked up in the next.

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
    return tuple((topic, broker.topics.is_system(topic), nums, size) for topic, (nums, size) in found.items())


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
    return broker.topics.is_system(topic) or group.startswith(names.SYSTEM_GROUP_PREFIX)


def lags(broker: Broker) -> Iterator[GroupLag]:
    """Each group in each topic for which it has offsets here."""
    ages = _ages.setdefault(broker, {})
    now_ms, looks, kept = broker.now_ms(), 0, {}
    for key, queues in broker.offsets.table.items():
        topic, _, group = key.rpartition("@")
        lag = inflight = 0
        oldest: int | None = now_ms  # None: somebody waits, and it is not known for how long.
        for queue_id, offset in queues.items():
            queue = broker.store.find_queue(topic, queue_id)
            behind = broker.shown_end(topic, queue_id) - max(offset, queue.min_offset) if queue is not None else 0
            if queue is None or behind <= 0:
                continue
            lag += behind
            inflight += min(max(broker.stats.pulled_to(group, topic, queue_id) - offset, 0), behind)
            place = key, queue_id, offset
            stored = ages.get(place)
            if stored is None and looks < LOOKS_MAX:
                looks += 1
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
    clients = (client for group in broker.producers.groups.values() for client in group.values())
    counted = Counter((client.language, client.version) for client in clients)
    return tuple((language.lower(), _version(version), count) for (language, version), count in counted.items())


def consumers(broker: Broker) -> tuple[tuple[str, str, str, str, int], ...]:
    """Group, language, version, push or pull, connections."""
    counted = Counter(
        (info.group, client.language, client.version, "pull" if info.consume_type == "CONSUME_ACTIVELY" else "push")
        for info in broker.consumers.groups.values()
        for client in info.clients.values()
    )
    return tuple(
        (group, language.lower(), _version(version), mode, count)
        for (group, language, version, mode), count in counted.items()
    )


def _version(number: int) -> str:
    return version_name(number).lower()
