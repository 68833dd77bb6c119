"""Multi dispatch: messages that RocketMQ put into more queues than their own, with `enableMultiDispatch`. No I/O.

Their property INNER_MULTI_DISPATCH lists queues, INNER_MULTI_QUEUE_OFFSET the message's number in each; the broker writes
the latter, so a message with both was dispatched that way. `%LMQ%...` has queue 0 only. twinlog makes no such messages: like
RocketMQ without `enableMultiDispatch`, a master puts messages into one queue, and it removes both properties. A slave fills the
`%LMQ%` queues of what its master dispatched, and a start and a rebuild make the same units. Other names are those of topics
that have messages of their own, and a RocketMQ master without that option passes on whatever a client claims of them: a slave
puts nothing into their queues, and a start only completes such queues that exist.
Source: MultiDispatch, CommitLogDispatcherBuildConsumeQueue, ConsumeQueue.multiDispatchLmqQueue; RocketMQ 4.9.8.
"""

import re
from collections.abc import Callable, Iterator

from attrs import frozen

from twinlog.store.record.properties import DISPATCH_OFFSETS, DISPATCH_QUEUES, parse_properties
from twinlog.store.record.scan import DispatchEntry, Entries

_QUEUES, _OFFSETS, _LMQ = DISPATCH_QUEUES, DISPATCH_OFFSETS, "%LMQ%"
_NAME, _OFFSET = re.compile(r"[%|a-zA-Z0-9_-]{1,255}"), re.compile(r"[0-9]{1,18}")
MULTI_DISPATCHED = _OFFSETS.encode() + b"\x01"  # In the properties of these, and next to never anywhere else.


@frozen
class MoreQueues:
    """Entries of messages of which at least one may be in further queues; see replicated()."""

    entries: list[DispatchEntry]

    def __len__(self) -> int:
        return len(self.entries)


def replicated(entries: Entries) -> "Entries | MoreQueues":
    """Replicated entries, marked when a message may be in further queues. Columns never are.

    Producers' messages have no further queues, so that only a slave checks.
    """
    return MoreQueues(entries) if isinstance(entries, list) and _is_dispatched_more(entries) else entries


def with_more_queues(
    entries: list[DispatchEntry], takes: Callable[[DispatchEntry], bool] = lambda _: True
) -> list[DispatchEntry]:
    """These entries, and behind each those of more_queues(): in the order of the log, which a queue that has both needs."""
    if not _is_dispatched_more(entries):
        return entries
    return [each for entry in entries for each in (entry, *filter(takes, more_queues([entry])))]


def _is_dispatched_more(entries: list[DispatchEntry]) -> bool:
    return any(MULTI_DISPATCHED in entry.properties for entry in entries)


def is_light(topic: str) -> bool:
    """True for queues that only multi dispatch fills; RocketMQ keeps no topic for them."""
    return topic.startswith(_LMQ)


def more_queues(entries: list[DispatchEntry]) -> Iterator[DispatchEntry]:
    """For each further queue of these messages its entry, which differs in topic, queue id and queue offset."""
    for entry in entries:
        for topic, queue_id, queue_offset in dispatched_queues(entry):
            yield entry._replace(topic=topic, queue_id=queue_id, queue_offset=queue_offset)


def dispatched_queues(entry: DispatchEntry) -> Iterator[tuple[str, int, int]]:
    """Topic and id of each further queue of a message, and its queue offset there. Source: MultiDispatch."""
    if MULTI_DISPATCHED not in entry.properties:
        return
    properties = parse_properties(entry.properties.decode("utf-8", "replace"))
    names, offsets = properties.get(_QUEUES, "").split(","), properties.get(_OFFSETS, "").split(",")
    if len(names) == len(offsets) and all(map(_OFFSET.fullmatch, offsets)):
        for name, offset in zip(names, offsets, strict=True):
            if _NAME.fullmatch(name):
                yield name, 0 if is_light(name) else entry.queue_id, int(offset)
