"""How far a group has come, between two commits. Pure tables, and the file of a broadcasting consumer.

Sources: RemoteBrokerOffsetStore, LocalFileOffsetStore (RocketMQ 4.9.8), whose file this reads and writes:
{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:5}}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from attrs import define, field

from twinlog.cluster.client.route import MessageQueue
from twinlog.cluster.remoting import fastjson


@define(eq=False)
class OffsetTable:
    """Offsets by queue; `changed` are those that nobody else knows yet."""

    offsets: dict[MessageQueue, int] = field(factory=dict)
    _told: dict[MessageQueue, int] = field(factory=dict, init=False)

    def update(self, queue: MessageQueue, offset: int, *, only_up: bool = True) -> None:
        """A late answer must not take a group back; a reset may."""
        if not only_up or offset > self.offsets.get(queue, -1):
            self.offsets[queue] = offset

    def begin(self, queue: MessageQueue, offset: int, *, is_stored: bool = True) -> None:
        """What the store said is nothing to tell it; where a new group begins is, or a restart would begin elsewhere."""
        self.offsets[queue] = offset
        if is_stored:
            self._told[queue] = offset

    def changed(self) -> dict[MessageQueue, int]:
        """What is still to be stored."""
        return {queue: offset for queue, offset in self.offsets.items() if self._told.get(queue) != offset}

    def told(self, offsets: Mapping[MessageQueue, int]) -> None:
        """These were stored; what was forgotten meanwhile stays so."""
        self._told.update((queue, offset) for queue, offset in offsets.items() if queue in self.offsets)

    def tell_all_again(self) -> None:
        """A broker that was restarted may have lost what it was told."""
        self._told.clear()

    def forget(self, queue: MessageQueue) -> None:
        self.offsets.pop(queue, None)
        self._told.pop(queue, None)


def queue_object(queue: MessageQueue) -> dict[str, Any]:
    """A MessageQueue as RocketMQ's bodies have it."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def read_queue(fields: Mapping[str, Any]) -> MessageQueue:
    """Raises KeyError, TypeError and ValueError for what is none."""
    return MessageQueue(str(fields["topic"]), str(fields["brokerName"]), int(fields["queueId"]))


def dump_offsets(offsets: Mapping[MessageQueue, int], name: str = "offsetTable") -> bytes:
    """A body, or file, with offsets by queue."""
    return fastjson.dumps({name: {fastjson.ObjectKey.of(queue_object(queue)): at for queue, at in offsets.items()}})


def load_offsets(data: bytes | memoryview) -> dict[MessageQueue, int]:
    """The reverse, also of the list that brokers send to clients of other languages. Raises ValueError."""
    try:
        table = fastjson.loads(data)["offsetTable"]
        if isinstance(table, list):
            return {read_queue(entry): int(entry["offset"]) for entry in table}
        return {read_queue(orjson.loads(key.encode())): int(offset) for key, offset in table.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no table of offsets: {type(error).__name__}: {error}") from error


def read_offset_file(path: Path) -> dict[MessageQueue, int]:
    """The offsets in a file or, when that is damaged, in its backup; none when there is no file. Raises OSError."""
    for each in (path, path.with_name(path.name + ".bak")):
        try:
            return load_offsets(each.read_bytes())
        except (FileNotFoundError, ValueError):
            continue
    return {}
