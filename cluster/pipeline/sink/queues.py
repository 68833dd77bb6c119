"""Choice of the queue for a row. Pure.

With a sharding key, the queue that Java's SelectMessageQueueByHash takes. Without, one by the row's digest, so that a repeated
row goes to the queue of its first copy. Each of SLOTS slots of digests has the queue that scores highest there (rendezvous
hashing): when queues come or go, only the rows of these move.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from twinlog.cluster.remoting.route import PERM_WRITE, MessageQueue, TopicRoute
from twinlog.store.record.properties import java_hash

SLOTS = 8192

Slots = NDArray[np.intp]


def slots_of(digests: bytes) -> Slots:
    """Slots of rows by the second halves of their digests, of 16 bytes each: ids count equal rows by the first."""
    return (np.frombuffer(digests, "<u8")[1::2] % SLOTS).astype(np.intp)


def slot_table(queues: Sequence[MessageQueue]) -> Slots:
    """The number of the queue for each slot."""
    slots = _mixed(np.arange(SLOTS, dtype=np.uint64))
    best, found = np.zeros(SLOTS, np.uint64), np.zeros(SLOTS, np.intp)
    for number, queue in enumerate(queues):
        salt = np.uint64(xxh3_64_intdigest(f"{queue.broker_name}/{queue.queue_id}".encode()))
        score = _mixed(slots ^ salt)
        is_better = score >= best
        best[is_better], found[is_better] = score[is_better], number
    return found


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finalizer. Source: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def number_of_key(key: str, count: int) -> int:
    """Number of the queue for a sharding key, of `count` queues."""
    return abs(java_hash(key)) % count


def write_queues(route: TopicRoute) -> list[MessageQueue]:
    """All queues that may be written, also those whose broker has no master at the moment."""
    return [
        MessageQueue(route.topic, data.broker_name, number)
        for data in route.queue_data
        if data.perm & PERM_WRITE and data.broker_name in route.brokers
        for number in range(data.write_queues)
    ]
