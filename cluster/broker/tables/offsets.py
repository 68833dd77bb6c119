"""Consumer offsets, by group and queue: a pure table.

Source: ConsumerOffsetManager.java (RocketMQ 4.9.8). Keys are `topic@group`; an offset is the next one to consume.
"""

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from attrs import define, field

from twinlog.cluster.config.json_file import entries_of
from twinlog.cluster.remoting import names
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError

log = structlog.get_logger(__name__)

NOT_STORED = -1
_GROUPS_IN_TOPICS = "groups with offsets in topics"


@define(eq=False)
class ConsumerOffsetManager:
    table: dict[str, dict[int, int]] = field(factory=dict, init=False)
    dirty: bool = field(default=False, init=False)  # Since the file was written.

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset, also a smaller one: a reset commits such. Callers check that the numbers are not negative.

        Raises RequestError for invalid names or a queue number, or above the limit of groups.
        """
        assert min(queue_id, offset) >= 0, (queue_id, offset)
        queues = self.table.get(key := f"{topic}@{group}")
        if queues is None:
            names.require_topic(topic)
            names.require_group(group)
            names.require_room(_GROUPS_IN_TOPICS, len(self.table), names.OFFSETS_MAX)
            queues = self.table[key] = {}
        if queue_id > names.QUEUE_ID_MAX:
            why = f"queue {queue_id}: queues have numbers up to {names.QUEUE_ID_MAX}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, why)
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.dirty = True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the stored offset, or NOT_STORED."""
        queues = self.table.get(f"{topic}@{group}")
        return NOT_STORED if queues is None else queues.get(queue_id, NOT_STORED)

    def topics_of(self, group: str) -> list[str]:
        return [topic for topic, at, name in (key.rpartition("@") for key in self.table) if at and name == group]

    def groups_of(self, topic: str) -> list[str]:
        return [group for name, at, group in (key.rpartition("@") for key in self.table) if at and name == topic]

    def remove_group(self, group: str) -> None:
        for topic in self.topics_of(group):
            del self.table[f"{topic}@{group}"]
            self.dirty = True

    def clone(self, group: str, other: str, topic: str) -> None:
        """Copy a group's offsets in a topic to another group; nothing happens if there are none.

        Raises RequestError above the limit of groups.
        """
        queues, key = self.table.get(f"{topic}@{group}"), f"{topic}@{other}"
        if queues is not None:
            if key not in self.table:
                names.require_room(_GROUPS_IN_TOPICS, len(self.table), names.OFFSETS_MAX)
            self.table[key] = dict(queues)
            self.dirty = True

    def lower(self, end_of: Callable[[str, int], int]) -> None:
        """Lower offsets to the end of their queue: the log was truncated, and other messages will get these numbers."""
        for key, queues in self.table.items():
            topic = key.rpartition("@")[0]
            for queue_id, offset in queues.items():
                if offset > (end := end_of(topic, queue_id)):
                    queues[queue_id] = end
                    self.dirty = True

    def commit_if_greater(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset if it is greater than the present one."""
        if offset > self.query(group, topic, queue_id):
            self.commit(group, topic, queue_id, offset)

    def fill(self, others: Mapping[str, Mapping[int, int]], *, or_raise: bool = False) -> None:
        """Take missing offsets from another member's table, with `or_raise` also greater ones. Otherwise those committed here are
        newer, even if smaller.
        """
        for key, queues in others.items():
            own = self.table.setdefault(key, {})
            for queue_id, offset in queues.items():
                if queue_id not in own or (or_raise and offset > own[queue_id]):
                    own[queue_id] = offset
                    self.dirty = True

    def to_json(self) -> dict[str, Any]:
        """consumerOffset.json, and the body of 43."""
        return {"offsetTable": {key: dict(queues) for key, queues in self.table.items()}}

    def merge(self, value: Mapping[str, Any]) -> None:
        """Replace entries by those of a table in the form of to_json(); others stay. Raises ValueError."""
        self.update(read_offsets(value))

    def update(self, entries: Mapping[str, dict[int, int]]) -> None:
        """Replace entries; others stay."""
        if any(self.table.get(key) != queues for key, queues in entries.items()):
            self.table.update(entries)
            self.dirty = True


def read_offsets(value: Mapping[str, Any]) -> dict[str, dict[int, int]]:
    """Read a table of offsets; entries with invalid names are dropped and logged once. Raises ValueError."""
    entries, refused = {}, []
    for key, queues in entries_of(value, "offsetTable").items():
        topic, _, group = key.rpartition("@")
        if names.topic_fault(topic) or names.group_fault(group) or not isinstance(queues, dict):
            refused.append(key[:80])
            continue
        entries[key] = {int(queue_id): int(offset) for queue_id, offset in queues.items()}
    if refused:
        log.warning("consumer offsets with invalid names were dropped", count=len(refused), first=refused[0])
    return entries


Offsets = Mapping[str, Mapping[int, int]]  # By TOPIC@GROUP and queue id.


@define(eq=False)
class MasterOffsets:
    """Merges a master's offsets into its slave's. `epoch` counts masters; it may be given if it is known from before.

    A slave serves consumers while its master is down, and stores their offsets. RocketMQ's slave loses these once the master is
    back: it replaces its offsets with the master's older ones, and after the next failover messages are consumed again. Here an
    offset goes back in two cases. The master, running without a restart, reports less than before: an administrator has reset it.
    Another member has become master: consumers have gone on there, and what they committed here since is older.

    Source: SlaveSynchronize.syncConsumerOffset (RocketMQ 4.9.8).
    """

    epoch: int | None = None
    _life: object = field(default=None, init=False)
    _reported: Offsets = field(factory=dict, init=False)

    def merge(
        self, own: Offsets, reported: Offsets, life: object, *, epoch: int | None = None
    ) -> tuple[dict[str, dict[int, int]], int]:
        """Merge what the master reports; return the new entries, and the number of queues whose offset here is newer."""
        before = self._reported if life == self._life else {}
        is_new = epoch is not None and self.epoch is not None and epoch > self.epoch
        self._life, self._reported = life, reported
        self.epoch = epoch if self.epoch is None or is_new else self.epoch
        merged, newer = {}, 0
        for key, queues in reported.items():
            entry = dict(own.get(key, {}))
            for queue_id, offset in queues.items():
                own_offset = 0 if is_new else entry.get(queue_id, 0)
                entry[queue_id] = _merged(own_offset, before.get(key, {}).get(queue_id, 0), offset)
                newer += entry[queue_id] > offset
            merged[key] = entry
        return merged, newer

    def merge_last(self, own: Offsets, reported: Offsets) -> dict[str, dict[int, int]]:
        """Merge the last report of a master that hands over."""
        return self.merge(own, reported, self._life, epoch=self.epoch)[0]


def _merged(own: int, before: int, now: int) -> int:
    return now if now < before else max(own, now)
