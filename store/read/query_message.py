"""Answers a query by key: the records that the index names, as they are stored.

Source: DefaultMessageStore.queryMessage, RocketMQ 4.9.8. That searches up to three times while no record can be read, with
the same outcome each time.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import trio

from twinlog.store.index.service import IndexService
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.record.message import SIZE_AND_MAGIC

_BYTES_MAX = 12 << 20  # Clients take frames of up to 16 MiB.


class QueryResult(NamedTuple):
    """Records in the order of the log, and how far the index goes: store time of its newest message (ms) and log offset.

    Both are 0 when the index has nothing for the key.
    """

    records: list[memoryview]
    index_timestamp: int = 0
    index_phy_offset: int = 0


async def query_message(
    index: IndexService,
    log: CommitLog,
    record_at: Callable[[int], memoryview | None],
    topic: str,
    key: str,
    count_max: int,
    begin_ms: int,
    end_ms: int,
) -> QueryResult:
    """Up to `count_max` of the newest messages with a key that were stored in a span of time, at most 12 MiB of them.

    As the index keeps hashes only, some may have another key: whoever asks compares. Raises OSError.
    """
    offsets = await index.find(topic, key, count_max, begin_ms, end_ms)
    if not offsets:
        return QueryResult([])
    last_indexed = index.last_indexed
    newest_first = list(dict.fromkeys(offsets))
    there = await trio.to_thread.run_sync(_bring_to_memory, log, newest_first)
    found = (record_at(offset) for offset in sorted(there))
    return QueryResult([record for record in found if record is not None], *last_indexed)


def _bring_to_memory(log: CommitLog, offsets: Iterable[int]) -> list[int]:
    """Read the records once, so that nobody waits for the disk when they are looked at; those that one answer can hold."""
    taken: list[int] = []
    total = 0
    for offset in offsets:
        file = log.files.file_at(offset)
        if file is None or offset + SIZE_AND_MAGIC.size > file.end:
            continue
        position = offset - file.start
        size, _ = SIZE_AND_MAGIC.unpack(file.read(position, SIZE_AND_MAGIC.size))
        if not SIZE_AND_MAGIC.size <= size <= file.end - offset:
            continue
        if taken and total + size > _BYTES_MAX:
            break
        file.read(position, size)
        taken.append(offset)
        total += size
    return taken
