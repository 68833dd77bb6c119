"""Notes recovery points while the store is served: a start after a crash has little to walk then, one after a stop nothing."""

import time
from itertools import islice

import trio
from attrs import define, evolve, field
from xxhash import xxh3_64_intdigest

from twinlog.store.integrity.damage import DamagedRanges
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file_queue import fingerprint
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.queue.layout import QueueEnds
from twinlog.store.recovery.point import PointRecord, RecoveryPoint
from twinlog.store.recovery.side_files import SideFiles

_SLICE = 50  # Queues whose files are read before other threads get their turn.
_PAUSE = 0.0005  # Seconds.


@define(eq=False)
class RecoveryPoints:
    """`take()` snapshots the present state, the caller syncs it, and `save()` makes it the recovery point."""

    log: CommitLog
    queues: ConsumeQueueTable
    side: SideFiles
    damaged: DamagedRanges
    offset: int = 0  # Of the point that was saved last.
    last: PointRecord = field(factory=PointRecord)  # The newest that the queues have; take() makes its digest.
    _truncations: int = field(default=0, init=False)

    def note(self, phy_offset: int, size: int, store_timestamp: int) -> None:
        """The queues have this record, and all before it."""
        self.last = PointRecord(phy_offset, size, 0, store_timestamp)

    def take(self, offset: int) -> RecoveryPoint | None:
        """A point at `offset`, the end of what the queues have; None when there can be none."""
        assert self.offset <= offset <= self.log.max_offset
        last = self.last
        if not self.queues.is_written or last.phy_offset + last.size > offset:
            return None
        raw = self.log.read(last.phy_offset, last.size) if last.size else None
        if raw is not None and not last.digest:
            last = self.last = last._replace(digest=xxh3_64_intdigest(raw))
        if raw is None and offset > self.log.min_offset:
            return None  # Nothing would tie the point to its log.
        return RecoveryPoint(
            offset=offset,
            log_start=self.log.min_offset,
            log_file_size=self.log.file_size,
            queue_file_size=self.queues.file_size,
            last=last,
            damaged=tuple(damaged for damaged in self.damaged if damaged[1] <= offset),
            queues=tuple(queue.state() for queue in self.queues if queue.files.files),
        )

    async def save(self, point: RecoveryPoint) -> None:
        """Make it the recovery point: everything it covers is on the disk now. Raises OSError."""
        truncations = self._truncations
        queues = [self.queues.get(*state.key) for state in point.queues]
        await trio.to_thread.run_sync(self._save, point, [_paths(queue) for queue in queues])
        self.offset = point.offset
        if truncations != self._truncations:
            self.truncated(0)

    def _save(self, point: RecoveryPoint, paths: list[list[str]]) -> None:
        states: list[QueueEnds] = []
        pairs = iter(zip(point.queues, paths, strict=True))
        while some := list(islice(pairs, _SLICE)):
            states += [state._replace(fingerprint=fingerprint(files)) for state, files in some]
            time.sleep(_PAUSE)
        self.side.save_point(evolve(point, queues=tuple(states)))

    def truncated(self, offset: int) -> None:
        """The log was cut at `offset`: no point behind it holds any more. Raises OSError."""
        self._truncations += 1
        if self.last.phy_offset + self.last.size > offset:
            self.last = PointRecord()
        if self.offset > offset:
            self.side.drop_point()
            self.offset = 0


def _paths(queue: ConsumeQueue) -> list[str]:
    return [str(file.path) for file in queue.files.files]
