"""Makes consume queues anew from the log: what RocketMQ does when their directory is gone, for those that need it.

The caller has emptied the queues, holds the store's lock, and brings them to the disk afterwards.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from attrs import frozen

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.walk import walk_in_bulk
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.record.multi_dispatch import with_more_queues

if TYPE_CHECKING:
    from twinlog.store.record.columns import Columns  # numpy comes with it: only where there is much to do.


@frozen
class Rebuilt:
    """What a rebuild did: `records` were looked at, `units` written; `damaged` are the ranges of the log that hold no record."""

    records: int
    units: int
    damaged: tuple[tuple[int, int], ...]


def rebuild_queues(
    log: CommitLog,
    queues: ConsumeQueueTable,
    keys: Collection[tuple[str, int]] | None = None,
    *,
    end: int | None = None,
    check_crc: bool = True,
    delays_ms: tuple[int, ...] = (),
) -> Rebuilt:
    """Put every record of the log below `end` into its queue, if that is one of `keys` (topic, queue id); None: all of them.

    Units are written byte for byte as they were: a queue whose first messages the log no longer has begins behind blanks,
    and blanks stand for messages that are damaged. Raises OSError; call again with emptied queues then.
    """
    records = units = 0
    damaged: list[tuple[int, int]] = []
    damage: int | None = None
    for offset, scan in walk_in_bulk(log, log.min_offset, end, check_crc=check_crc, delays_ms=delays_ms):
        if damage is not None:
            damaged.append((damage, offset))
        damage = offset + scan.consumed if scan.error is not None else None
        records += len(scan.entries)
        if not isinstance(scan.entries, list):
            units += _put_columns(queues, scan.entries, keys)
            continue
        wanted = with_more_queues(scan.entries)
        if keys is not None:
            wanted = [entry for entry in wanted if entry[:2] in keys]
        units += sum(map(len, queues.put(wanted).values()))
    if damage is not None and end is not None and damage < end:
        damaged.append((damage, end))
    return Rebuilt(records, units, tuple(damaged))


def _put_columns(queues: ConsumeQueueTable, columns: "Columns", keys: Collection[tuple[str, int]] | None) -> int:
    """How many units these records made."""
    if keys is not None:
        from twinlog.store.queue.columns import of_queues

        columns = of_queues(columns, keys)
    return sum(map(len, queues.put_columns(columns).values()))
