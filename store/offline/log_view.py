"""The end of a log and store times of its messages, without a walk of the whole log."""

from collections.abc import Iterable

from attrs import frozen

from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.queue_view import QueueView
from twinlog.store.offline.walk import Gap, walk_log
from twinlog.store.record.message import MAGIC_V1, MAGIC_V2, RECORD_V4, SIZE_AND_MAGIC, record_stored_ms

_LOOK_BYTES = 4096  # Behind the end.


@frozen
class LogEnd:
    """The log ends behind its last sound record, at `offset`. `is_clear`: zeros follow, as where nothing was ever written."""

    offset: int
    is_clear: bool
    last_stored_ms: int | None


def find_log_end(
    log: FileSeries, views: Iterable[QueueView] = (), *, may_grow: bool = False, after_crash: bool = False
) -> LogEnd:
    """Walk from the last record in a queue, else from the start of the last file that begins with a record.

    `may_grow`, `after_crash`: as walk(). Raises OSError.
    """
    start = log.min_offset
    for file in reversed(log.files):
        if stored_ms(log, file.start) is not None:
            start = file.start
            break
    known = max((view.last.phy_offset for view in views if view.last is not None), default=-1)
    if known > start and stored_ms(log, known) is not None:
        start = known
    end, newest = start, None
    for piece in walk_log(log, start=start, may_grow=may_grow, after_crash=after_crash):
        end = piece.end
        if not isinstance(piece, Gap) and piece.entries:
            newest = piece.entries[-1].store_timestamp
    return LogEnd(end, not log.read(end, _LOOK_BYTES).strip(b"\0"), newest)


def stored_ms(log: FileSeries, offset: int) -> int | None:
    """The store time of the record at an offset; None when none begins there. Reads only its head. Raises OSError."""
    head = log.read(offset, RECORD_V4.size)
    if len(head) < RECORD_V4.size:
        return None
    _, magic = SIZE_AND_MAGIC.unpack_from(head)
    return record_stored_ms(head, offset) if magic in (MAGIC_V1, MAGIC_V2) else None
