"""Units of consume queues for many records at once. No I/O."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from twinlog.store.config import CONSUME_QUEUE_UNIT
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.columns import Columns, Ints
from twinlog.store.record.message import QUEUELESS, TRANSACTION_MASK
from twinlog.store.record.scan import DispatchEntry

_UNIT = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert _UNIT.itemsize == UNIT.size == CONSUME_QUEUE_UNIT


def of_queues(columns: Columns, keys: Collection[tuple[str, int]]) -> Columns:
    """The records of some queues (topic, queue id), without their keys."""
    queue = columns.topic << 32 | columns.queue_id & 0xFFFFFFFF
    _, firsts, groups = np.unique(queue, return_index=True, return_inverse=True)
    is_wanted = [(columns.topics[columns.topic[at]], int(columns.queue_id[at])) in keys for at in firsts.tolist()]
    if all(is_wanted):
        return columns
    return columns.part(np.array(is_wanted)[groups])


class QueueRun(NamedTuple):
    """All records of one queue, in the order of the log: their numbers among the columns, and their units.

    `is_consecutive`: each has the queue offset behind that of the one before it.
    """

    topic: str
    queue_id: int
    records: Ints
    units: bytes
    queue_offset: int
    first_end: int
    last_end: int
    tags_codes: list[int]
    is_consecutive: bool

    def entries(self, columns: Columns) -> Iterator[DispatchEntry]:
        """The records one by one."""
        return (columns[number] for number in self.records.tolist())


def queue_runs(columns: Columns) -> Iterator[QueueRun]:
    """The records by queue, without those that belong into none."""
    records = np.flatnonzero(~np.isin(columns.sys_flag & TRANSACTION_MASK, QUEUELESS))
    if not len(records):
        return
    queue = columns.topic << 32 | columns.queue_id & 0xFFFFFFFF
    records = records[np.argsort(queue[records], kind="stable")]
    queue, queue_offset = queue[records], columns.queue_offset[records]
    units = np.empty(len(records), _UNIT)
    units["phy_offset"] = columns.phy_offset[records]
    units["size"] = columns.size[records]
    units["tags_code"] = columns.tags_code[records]
    ends, codes, raw = columns.phy_offset[records] + columns.size[records], columns.tags_code[records], units.tobytes()
    jumps = np.concatenate(([0], np.cumsum(np.diff(queue_offset) != 1)))
    bounds = np.flatnonzero(np.diff(queue)) + 1
    for begin, end in zip([0, *bounds.tolist()], [*bounds.tolist(), len(records)], strict=True):
        first = records[begin]
        yield QueueRun(
            columns.topics[columns.topic[first]],
            int(columns.queue_id[first]),
            records[begin:end],
            raw[begin * CONSUME_QUEUE_UNIT : end * CONSUME_QUEUE_UNIT],
            int(queue_offset[begin]),
            int(ends[begin]),
            int(ends[end - 1]),
            codes[begin:end].tolist(),
            bool(jumps[begin] == jumps[end - 1]),
        )
