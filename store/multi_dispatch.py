"""Messages that RocketMQ put into more queues than their own, with `enableMultiDispatch`. No I/O.

Their property INNER_MULTI_DISPATCH lists queues, INNER_MULTI_QUEUE_OFFSET the message's number in each; the broker writes
the latter, so who has both was dispatched that way. `%LMQ%...` has queue 0 only. twinlog makes no such messages, and takes
both properties out of those that it is sent, but keeps these queues whole.
Source: MultiDispatch, CommitLogDispatcherBuildConsumeQueue, ConsumeQueue.multiDispatchLmqQueue; RocketMQ 4.9.8.
"""

import re
from collections.abc import Iterator

from store.properties import DISPATCH_OFFSETS, DISPATCH_QUEUES, parse_properties
from store.record_scan import DispatchEntry

_QUEUES, _OFFSETS, _LMQ = DISPATCH_QUEUES, DISPATCH_OFFSETS, "%LMQ%"
_NAME, _OFFSET = re.compile(r"[%|a-zA-Z0-9_-]{1,255}"), re.compile(r"[0-9]{1,18}")
MULTI_DISPATCHED = _OFFSETS.encode() + b"\x01"  # In the properties of these, and next to never anywhere else.


def more_queues(entries: list[DispatchEntry]) -> Iterator[DispatchEntry]:
    """For each further queue of these messages its entry, which differs in topic, queue id and queue offset."""
    for entry in entries:
        if MULTI_DISPATCHED in entry.properties:
            properties = parse_properties(entry.properties.decode("utf-8", "replace"))
            names, offsets = properties.get(_QUEUES, "").split(","), properties.get(_OFFSETS, "").split(",")
            if len(names) == len(offsets) and all(map(_OFFSET.fullmatch, offsets)):
                for name, offset in zip(names, offsets, strict=True):
                    if _NAME.fullmatch(name):
                        queue_id = 0 if name.startswith(_LMQ) else entry.queue_id
                        yield entry._replace(topic=name, queue_id=queue_id, queue_offset=int(offset))
