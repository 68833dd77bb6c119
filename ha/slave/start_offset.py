"""Where a slave's stream begins, when it is not simply where its log ends.

A RocketMQ master takes a request for 0 as one for its last file. Its oldest file it sends to whoever asks for the byte where
that begins; when that is 0, the first record has to come another way (request 33), so that there is something else to ask for.
"""

import structlog

from twinlog.ha.compare.comparison import answer_of
from twinlog.ha.compare.own_log import OwnReader
from twinlog.ha.compare.tail_overlap import Overlap
from twinlog.ha.errors import HALogError, HAPeerError
from twinlog.ha.log import ReplicatedStore
from twinlog.ha.peer import Peer
from twinlog.store.errors import StoreError
from twinlog.store.record.scan import scan_records

log = structlog.get_logger()


async def overlap_of(own: OwnReader, peer_min: int, size_max: int) -> Overlap | None:
    """The last records of a log that is not empty; None when a single record, at 0, is all there is. Raises HALogError."""
    ends = own.ends()
    lowest = max(ends.max_offset - min(size_max, ends.file_size), ends.min_offset, peer_min, 1)
    try:
        start = await own.first_record(lowest, ends.max_offset)
        if start is None:  # Larger than all that is asked for otherwise.
            start = await own.last_record(max(ends.min_offset, peer_min, 1), ends.max_offset)
        if start is None:
            return None
        return Overlap(start, await own.read(start, ends.max_offset))
    except (OSError, StoreError) as error:
        raise HALogError(f"the end of this log cannot be read: {error}") from error


async def fetch_first_record(peer: Peer, store: ReplicatedStore) -> None:
    """Put the record at 0 into an empty log, if the master gives a sound one; otherwise the master decides where to begin.

    Raises HALogError.
    """
    try:
        record = await answer_of(peer.record(0))
    except HAPeerError as error:
        log.warning("the first record of the master's log is not to be had", why=str(error))
        return
    if record is None:
        return
    scan = scan_records(record, 0, store.commit_log.file_size, check_crc=True, delays_ms=store.delays_ms)
    if len(scan.entries) != 1 or scan.consumed != len(record):
        log.warning("the first record of the master's log is not sound", why=scan.error)
        return
    try:
        store.append_replicated(memoryview(record), scan.entries)
    except (OSError, StoreError) as error:
        raise HALogError(f"appending the first record failed: {error}") from error
