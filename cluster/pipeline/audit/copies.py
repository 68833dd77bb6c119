"""One member's log, on any kind of storage, with the operations that a comparison needs."""

from collections.abc import Iterator
from functools import cached_property

from attrs import define, field

from twinlog.cluster.pipeline.audit.cells import LogPiece, log_pieces
from twinlog.cluster.pipeline.audit.compare import LogBounds
from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.log_end import PlaceReader, QueueFiles
from twinlog.cluster.pipeline.sources.places import UnreadableError, read_all
from twinlog.store.integrity.digest import Decoded, LogDigests, decode, digest
from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.queue_view import QueueKey
from twinlog.store.queue.consume_queue_ext import EXT_ADDRESS_MAX
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.message import QUEUELESS, TRANSACTION_MASK
from twinlog.store.record.scan import SCHEDULE_TOPIC, DispatchEntry

_AHEAD = 1 << 20  # Read-ahead: records are read in order.
_DIGEST_FILE_MAX = 1 << 30


def side_of(name: str, files: StoreFiles) -> LogBounds:
    """Bounds of a store's log."""
    return LogBounds(
        name,
        files.first,
        files.end,
        files.confirmed,
        files.epochs,
        files.file_size,
        files.is_running,
        claimed=files.claimed,
    )


@define(eq=False)
class StoreCopy:
    """Implementation of cells.Copy. Close it after use."""

    side: LogBounds
    files: StoreFiles
    _reader: PlaceReader = field(factory=PlaceReader, init=False)
    _log: FileSeries = field(init=False)
    _ahead: tuple[int, bytes] = field(default=(0, b""), init=False)

    def __attrs_post_init__(self) -> None:
        self._log = self._reader.series(self.files.log, self.files.file_size, self.files.first)

    def read(self, offset: int, size: int) -> bytes:
        """Read these bytes; zeros where a file is missing or short. Raises OSError."""
        start, data = self._ahead
        if not start <= offset <= offset + size <= start + len(data):
            in_file = self._log.file_size - offset % self._log.file_size  # The next file may not be readable.
            start, data = offset, self._read(offset, max(size, min(_AHEAD, in_file)))
            self._ahead = start, data
        return data[offset - start : offset - start + size]

    def _read(self, offset: int, size: int) -> bytes:
        pieces = []
        while size:
            piece = self._log.read(offset, size) or bytes(min(size, self._log.file_size - offset % self._log.file_size))
            pieces.append(piece)
            offset += len(piece)
            size -= len(piece)
        return b"".join(pieces)

    def pieces(self, start: int, end: int) -> Iterator[LogPiece]:
        """Pieces that begin in bytes `start` to `end`. Raises OSError."""
        return log_pieces(self._log, start, end)

    def as_digested(self, start: int, end: int) -> bool | None:
        """True if all blocks of these bytes match twinlog's digests. Raises OSError."""
        if self._digested is None:
            return None
        digests = self._digested.digests
        if not digests.start <= start < end <= digests.end:
            return None
        answers = [self._is_as_digested(block.start, block.end, block.digest) for block in digests.blocks(start, end)]
        if all(answers):
            return True
        # The end is sure after a clean stop, if nothing was written since.
        is_left = not self.files.has_abort and digests.end >= self.side.last
        is_sure = self._digested.stopped_ms > 0 and is_left
        return None if not is_sure and self._is_doubtful(digests, end) else False

    def _is_as_digested(self, start: int, end: int, expected: bytes) -> bool:
        return digest(self.read(start, end - start)) == expected

    def _is_doubtful(self, digests: LogDigests, end: int) -> bool:
        """True if no later block matches its digest: another broker may have truncated the end and written it again."""
        behind = (block for block in digests.blocks(end, digests.end) if block.start >= end)
        return not any(self._is_as_digested(block.start, block.end, block.digest) for block in behind)

    @cached_property
    def _digested(self) -> Decoded | None:
        """The digests that twinlog kept, if any that can be decoded. Raises OSError."""
        raw = read_all(self.files.digests, _DIGEST_FILE_MAX) if self.files.digests is not None else None
        found = decode(raw) if raw is not None else None
        return None if isinstance(found, str) else found

    @cached_property
    def _queues(self) -> dict[QueueKey, QueueFiles]:
        return {(queue.topic, queue.queue_id): queue for queue in self.files.queues()}

    def as_queued(self, entry: DispatchEntry) -> bool | None:
        """True if the record's unit in the consume queue points to it. Raises OSError."""
        if entry.sys_flag & TRANSACTION_MASK in QUEUELESS or entry.queue_offset < 0:
            return None
        queue = self._queues.get((entry.topic, entry.queue_id))
        if queue is None:
            return None
        series = self._reader.series(queue.files, queue.file_size)
        try:
            raw = series.read_across(entry.queue_offset * UNIT.size, UNIT.size)
        except UnreadableError:
            return None
        if len(raw) < UNIT.size or not any(raw):
            return None
        phy_offset, size, code = UNIT.unpack(raw)
        if (phy_offset, size) != (entry.phy_offset, entry.size):
            return False
        return code == entry.tags_code or code <= EXT_ADDRESS_MAX or entry.topic == SCHEDULE_TOPIC

    def close(self) -> None:
        """Close the files."""
        self._reader.close()
