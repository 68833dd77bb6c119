"""Locks of queues that a group consumes in order: one client for each queue. A pure table, not saved.

Source: RebalanceLockManager.java (RocketMQ 4.9.8).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from attrs import define, field

from twinlog.cluster.remoting.route import MessageQueue

LOCK_SECONDS_MAX = 60.0


class _Lock(NamedTuple):
    client_id: str
    renewed: float


@define(eq=False)
class RebalanceLockManager:
    now: Callable[[], float]  # Seconds, monotonic.
    _locks: dict[str, dict[MessageQueue, _Lock]] = field(factory=dict, init=False)

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Lock queues that are free, the client's own, or whose lock has expired; return those that the client now holds."""
        now = self.now()
        held = self._locks.setdefault(group, {})
        granted = []
        for queue in queues:
            lock = held.get(queue)
            if lock is None or lock.client_id == client_id or now - lock.renewed > LOCK_SECONDS_MAX:
                held[queue] = _Lock(client_id, now)
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the client's own locks among `queues`."""
        held = self._locks.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.client_id == client_id:
                del held[queue]
        if not held:
            self._locks.pop(group, None)

    def expire(self) -> None:
        """Remove expired locks, so that groups that are gone use no memory."""
        now = self.now()
        for group, held in list(self._locks.items()):
            for queue in [queue for queue, lock in held.items() if now - lock.renewed > LOCK_SECONDS_MAX]:
                del held[queue]
            if not held:
                del self._locks[group]

    def __len__(self) -> int:
        return sum(len(held) for held in self._locks.values())
