"""Locks of queues that a group consumes in order: one client for each queue, as long as it renews. Not saved. Pure.

A master gives them; a slave has a copy of its master's (ha/election/queue_locks.py), from which it goes on when it becomes
master. There every lock lasts as if it was renewed then. Source: RebalanceLockManager.java (RocketMQ 4.9.8).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from attrs import define, field

from twinlog.cluster.remoting.route import MessageQueue
from twinlog.ha.election.queue_locks import LockTable, QueueLock
from twinlog.store.epoch_file import FIRST, EpochId

LOCK_SECONDS_MAX = 60.0
BELIEF_SECONDS = (
    30.0  # A client consumes so long after it was told so: REBALANCE_LOCK_MAX_LIVE_TIME, RocketMQ's ProcessQueue.
)
ANSWER_SECONDS_MAX = (
    1.0  # A client waits so long for the answer: MQClientAPIImpl.lockBatchMQ's callers, RocketMQ 4.9.8 and 5.3.3.
)


class _Lock(NamedTuple):
    client_id: str
    renewed: float
    version: int  # Of the table when this client got it.


_Key = tuple[str, MessageQueue]  # Consumer group and queue.


@define(eq=False)
class RebalanceLockManager:
    """`version` counts changes of holders; `epoch`: of the master that gave the locks.

    `is_known`: False: what this member, or its master, gave is not known here, and nothing is given.
    """

    now: Callable[[], float]  # Seconds, monotonic.
    epoch: EpochId = field(default=FIRST.id, init=False)
    version: int = field(default=0, init=False)
    is_known: bool = field(default=True, init=False)
    _locks: dict[str, dict[MessageQueue, _Lock]] = field(factory=dict, init=False)
    _released: dict[_Key, tuple[int, float]] = field(factory=dict, init=False)  # Version and time.
    _whole_since: int = field(default=0, init=False)  # Releases up to this version may be missing in `_released`.
    _closed_until: float = field(default=-math.inf, init=False)

    @property
    def why_closed(self) -> str:
        """Reason why nothing is given now; "" while it is. Who has a lock from before may believe in it."""
        if not self.is_known:
            return "this member was restarted, and asks others which it has given"
        left = self._closed_until - self.now()
        return f"those of the last master may be unknown, and end within {left:.0f} s" if left > 0 else ""

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Lock queues that are free, the client's own, or whose lock has expired. Returns those that are the client's now, each
        with the version in which it became so.
        """
        if self.why_closed:
            return {}
        now, held = self.now(), self._locks.setdefault(group, {})
        granted = {}
        for queue in queues:
            lock = held.get(queue)
            if lock is None or (lock.client_id != client_id and now - lock.renewed > LOCK_SECONDS_MAX):
                self.version += 1
                self._released.pop((group, queue), None)
                held[queue] = _Lock(client_id, now, self.version)
            elif lock.client_id == client_id:
                held[queue] = lock._replace(renewed=now)
            else:
                continue
            granted[queue] = held[queue].version
        if not held:
            del self._locks[group]
        return granted

    def still(self, group: str, granted: Mapping[MessageQueue, int], up_to: float) -> list[MessageQueue]:
        """Those of the granted locks that nobody else has got since, and that are of a version up to this one."""
        held = self._locks.get(group, {})
        return [
            queue for queue, version in granted.items() if version <= up_to and _version(held.get(queue)) == version
        ]

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the client's own locks among `queues`."""
        held = self._locks.get(group, {})
        self._release(group, [queue for queue in queues if queue in held and held[queue].client_id == client_id])

    def expire(self) -> None:
        """Remove expired locks, so that groups that are gone use no memory."""
        now = self.now()
        for group, held in list(self._locks.items()):
            self._release(group, [queue for queue, lock in held.items() if now - lock.renewed > LOCK_SECONDS_MAX])
        for key, (version, at) in list(self._released.items()):
            if now - at > LOCK_SECONDS_MAX:
                self._whole_since = max(self._whole_since, version)
                del self._released[key]

    def _release(self, group: str, queues: Iterable[MessageQueue]) -> None:
        held = self._locks.get(group, {})
        for queue in queues:
            self.version += 1
            del held[queue]
            self._released[group, queue] = self.version, self.now()
        if not held:
            self._locks.pop(group, None)

    def __len__(self) -> int:
        return sum(len(held) for held in self._locks.values())

    # Copies

    def table(self, since: int = 0) -> LockTable | None:
        """Changes after a version, for a member that has that one; all of it for 0, or if that is not known any more.

        None: the locks are not known here.
        """
        if not self.is_known:
            return None
        since = since if self._whole_since <= since <= self.version else 0
        held = ((group, queue, lock) for group, of_group in self._locks.items() for queue, lock in of_group.items())
        changed = [_told(group, queue, lock.client_id) for group, queue, lock in held if lock.version > since]
        gone = self._released.items() if since else ()
        changed += [_told(group, queue, "") for (group, queue), (version, _) in gone if version > since]
        return LockTable(epoch=self.epoch, version=self.version, since=since, locks=tuple(changed))

    def take(self, table: LockTable) -> int:
        """Take the locks that the master tells. Returns the version that is here now; 0: all of them are needed."""
        if table.since and (not self.is_known or (self.epoch, self.version) != (table.epoch, table.since)):
            return 0
        if not table.since:
            self._forget(table.epoch)
        self._put(table.locks, table.version)
        return self.version

    def forget(self) -> None:
        """Nothing is known: this process was started after they were given."""
        self._forget(self.epoch)
        self.is_known = False

    def take_over(self, epoch: EpochId, table: LockTable | None, closed_seconds: float) -> None:
        """Go on as the master of an epoch from the last table. Nothing is given before `closed_seconds` are over."""
        version = max(self.version, table.version if table is not None else 0) + 1
        self._forget(epoch)
        self._put(table.locks if table is not None else (), version)
        self._closed_until = self.now() + closed_seconds

    def _forget(self, epoch: EpochId) -> None:
        self._locks.clear()
        self._released.clear()
        self.epoch, self.version, self._whole_since, self.is_known = epoch, 0, 0, True
        self._closed_until = -math.inf

    def _put(self, locks: Iterable[QueueLock], version: int) -> None:
        """Set these locks. What was released before is not in `_released`, so that `table` tells all of them."""
        now = self.now()
        for each in locks:
            queue, held = (
                MessageQueue(each.topic, each.broker_name, each.queue_id),
                self._locks.setdefault(each.group, {}),
            )
            if each.client:
                held[queue] = _Lock(each.client, now, version)
            else:
                held.pop(queue, None)
            if not held:
                del self._locks[each.group]
        self.version = self._whole_since = version


def _version(lock: _Lock | None) -> int:
    return lock.version if lock is not None else 0


def _told(group: str, queue: MessageQueue, client_id: str) -> QueueLock:
    return QueueLock(group, queue.topic, queue.broker_name, queue.queue_id, client_id)
