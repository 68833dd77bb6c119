"""When the message was stored that a consumer group needs next, without ever waiting for a disk.

A metric must not bring a broker's loop to a halt over a cold page: a master that stalls loses its lease. So the kernel is asked
for what it has in memory (RWF_NOWAIT), and what it has not is not known. A file system that lies in memory cannot be asked so.
"""

import errno
import os

from twinlog.store.config import CONSUME_QUEUE_UNIT
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.message_store import MessageStore
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.message import STORED_MS_END, record_stored_ms


def stored_ms(store: MessageStore, queue: ConsumeQueue, queue_offset: int) -> int | None:
    """ms since 1970; None: it is not in memory, or not there."""
    at = queue_offset * CONSUME_QUEUE_UNIT
    unit = _in_memory(queue.files.file_at(at), at, CONSUME_QUEUE_UNIT)
    if unit is None:
        return None
    phy_offset, size, _ = UNIT.unpack(unit)
    return stored_ms_at(store, phy_offset) if size >= STORED_MS_END else None


def stored_ms_at(store: MessageStore, phy_offset: int) -> int | None:
    """The same of the record at an offset of the log."""
    record = _in_memory(store.commit_log.files.file_at(phy_offset), phy_offset, STORED_MS_END)
    return record_stored_ms(record, phy_offset) if record is not None else None


def _in_memory(file: MappedFile | None, offset: int, size: int) -> bytes | None:
    if file is None or offset + size > file.end:
        return None
    if (late := file.read_late(offset - file.start, size)) is not None:
        return late
    found = bytearray(size)
    try:
        read = os.preadv(file.fd, [found], offset - file.start, os.RWF_NOWAIT)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            return None
        try:
            read = os.preadv(file.fd, [found], offset - file.start)
        except OSError:
            return None
    return bytes(found) if read == size else None
