"""All consume queues of a store, and the dispatch of records into them.

On disk: consumequeue/<topic>/<queue id>/. Source: DefaultMessageStore.consumeQueueTable, RocketMQ 4.9.8.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import structlog
from attrs import define, field

from twinlog.store.config import CONSUME_QUEUE_UNIT
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.log.mapped_file_queue import MappedFileQueue, file_sizes
from twinlog.store.queue.consume_queue import LATE_BYTES_MAX, ConsumeQueue
from twinlog.store.queue.consume_queue_ext import ConsumeQueueExt
from twinlog.store.record.message import QUEUELESS, TRANSACTION_MASK
from twinlog.store.record.multi_dispatch import is_light
from twinlog.store.record.scan import DispatchEntry, EntryColumns, may_be_topic

log = structlog.get_logger()

_LIGHT_MAX = 20_000  # RocketMQ's maxLmqConsumeQueueNum. One message can name thousands of queues.


@define(eq=False)
class ConsumeQueueTable:
    """The queues by topic and queue id."""

    directory: Path
    file_size: int
    writes_late: bool = field(default=False, init=False)  # True when put() leaves a few units to write_late().
    _queues: dict[tuple[str, int], ConsumeQueue] = field(factory=dict, init=False)
    _light_count: int = field(default=0, init=False)  # Those that only multi dispatch fills.
    _is_reported: bool = field(default=False, init=False)  # That there are too many of them.
    _grown: dict[ConsumeQueue, list[int]] = field(
        factory=dict, init=False
    )  # New tags codes, until all units are written.
    _staged: dict[ConsumeQueue, None] = field(factory=dict, init=False)  # Queues with staged units, in order.
    _late: set[ConsumeQueue] = field(factory=set, init=False)  # Queues of which the disk may lack units.

    def load(self) -> None:
        """Open every queue in the directory and find its end. Raises StoreDirectoryError when one of them is damaged."""
        damaged = self.open(sizes_are_known=False)
        if damaged:
            raise StoreDirectoryError(next(iter(damaged.values())))
        for queue in self:
            queue.recover()

    def open(self, *, sizes_are_known: bool) -> dict[tuple[str, int], str]:
        """Open every queue in the directory; those that cannot be, and why: they have to be rebuilt from the log.

        `sizes_are_known`: the store was last used with files of this size. Otherwise it raises StoreDirectoryError when all files
        have one other size that could be: that says that the configuration is wrong, not the files.
        """
        directories = sorted(self._directories())
        if not sizes_are_known:
            self._check_sizes(path for _, path in directories)
        damaged = {}
        extensions = self.directory.with_name(self.directory.name + "_ext")
        for key, _ in directories:
            queue = self.get(*key)
            queue.ext = ConsumeQueueExt.open(extensions / queue.topic / str(queue.queue_id))
            try:
                queue.files.load()
            except StoreDirectoryError as error:
                damaged[key] = str(error)
        return damaged

    def _directories(self) -> Iterator[tuple[tuple[str, int], Path]]:
        for topic in self.directory.iterdir() if self.directory.is_dir() else ():
            if not topic.is_dir() or not may_be_topic(topic.name):
                log.warning("a foreign entry among the consume queues is ignored", path=str(topic))
                continue
            for queue in topic.iterdir():
                if queue.name.isdecimal() and queue.name == str(int(queue.name)) and queue.is_dir():
                    yield (topic.name, int(queue.name)), queue
                else:
                    log.warning("a foreign entry among the consume queues is ignored", path=str(queue))

    def _check_sizes(self, directories: Iterable[Path]) -> None:
        sizes = {size for directory in directories for size in file_sizes(directory)}
        if len(sizes) == 1 and self.file_size not in sizes:
            (size,) = sizes
            if size and size % CONSUME_QUEUE_UNIT == 0:
                raise StoreDirectoryError(
                    f"All files below {self.directory} have {size} bytes, but mappedFileSizeConsumeQueue is {self.file_size}. "
                    "Set mappedFileSizeConsumeQueue to the size that this store was made with."
                )

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; one that does not exist yet has no messages and no file."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            directory = self.directory / topic / str(queue_id)
            files = MappedFileQueue(directory, self.file_size, "mappedFileSizeConsumeQueue")
            queue = self._queues[topic, queue_id] = ConsumeQueue(topic, queue_id, files)
            self._light_count += is_light(topic)
        return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if anybody wrote to it or asked for it before."""
        return self._queues.get((topic, queue_id))

    def admits(self, topic: str, queue_id: int) -> bool:
        """True when a unit of multi dispatch may go there: an existing queue, or a new light one below the limit."""
        if (topic, queue_id) in self._queues:
            return True
        if not is_light(topic):
            return False
        if self._light_count >= _LIGHT_MAX:
            if not self._is_reported:
                log.warning(
                    "too many queues of multi dispatch; messages are not put into new ones",
                    queue=topic,
                    why=f"there are {self._light_count} such queues",
                    next="stop the broker and delete unread ones below consumequeue/",
                )
            self._is_reported = True
            return False
        self.get(topic, queue_id)
        return True

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    def put(self, entries: Iterable[DispatchEntry]) -> dict[ConsumeQueue, list[int]]:
        """Append a unit for each record that belongs into a queue; the queues that grew, with the new tags codes.

        Units that are there already are left out. Raises OSError; calling again with the same entries goes on then.
        Readers find the units at once; see `writes_late` for the disk.
        """
        grown, queues, staged, late = self._grown, self._queues, self._staged, self.writes_late
        for entry in entries:
            if entry.sys_flag & TRANSACTION_MASK in QUEUELESS:
                continue
            queue = queues.get((entry.topic, entry.queue_id)) or self.get(entry.topic, entry.queue_id)
            if not (late and queue.put_late(entry)):
                if not queue.stage(entry):
                    continue
                staged[queue] = None
            codes = grown.get(queue)
            if codes is None:
                grown[queue] = [entry.tags_code]
            else:
                codes.append(entry.tags_code)
        return self._write()

    def put_columns(self, columns: EntryColumns) -> dict[ConsumeQueue, list[int]]:
        """Like put(), for many records at once."""
        from twinlog.store.queue.columns import queue_runs

        grown, staged = self._grown, self._staged
        for run in queue_runs(columns):
            queue = self.get(run.topic, run.queue_id)
            if run.is_consecutive and queue.stage_run(run.units, run.queue_offset, run.first_end, run.last_end):
                staged[queue] = None
                grown.setdefault(queue, []).extend(run.tags_codes)
            else:
                for entry in run.entries(columns):
                    if queue.stage(entry):
                        staged[queue] = None
                        grown.setdefault(queue, []).append(entry.tags_code)
        return self._write()

    def _write(self) -> dict[ConsumeQueue, list[int]]:
        return self._write_staged(LATE_BYTES_MAX if self.writes_late else 0)

    def keep_refused(self) -> dict[ConsumeQueue, list[int]]:
        """After a put() that the disk had no room for: leave its units to write_late(). Readers find them.

        Raises OSError where a queue needs a new file, or fills one: a part of the units is not taken then.
        """
        return self._write_staged(sys.maxsize)

    def _write_staged(self, late_max: int) -> dict[ConsumeQueue, list[int]]:
        grown = self._grown
        if late_max:
            self._late.update(grown)
        for queue in self._staged:
            queue.write(late_max=late_max)
        self._forget_staged()
        return grown

    def _forget_staged(self) -> None:
        self._staged, self._grown = {}, {}

    @property
    def late_count(self) -> int:
        """The number of queues with late units."""
        return len(self._late)

    def write_late(self, count_max: int = sys.maxsize) -> None:
        """Write the late units of at most so many queues. Raises OSError; unwritten units are still late then."""
        for queue in list(islice(self._late, count_max)):
            queue.write_late()
            self._late.discard(queue)

    @property
    def is_written(self) -> bool:
        """True when no unit is staged or late."""
        return not self._staged and not self._late and all(queue.is_written for queue in self._queues.values())

    def forget(self, key: tuple[str, int]) -> None:
        """Drop a queue that has neither messages nor files."""
        queue = self._queues.pop(key)
        self._light_count -= is_light(queue.topic)
        assert not queue.files.files

    @property
    def max_phy_offset(self) -> int:
        """The end of the last record in any queue; -1 when there is none."""
        return max((queue.max_phy_offset for queue in self._queues.values()), default=-1)

    def newest_below(self, phy_offset: int) -> int | None:
        """The start of the newest message below an offset of the log that any queue has."""
        found = -1
        for queue in self:
            unit = queue.last_message(queue.first_behind(phy_offset))
            if unit is not None and found < unit.phy_offset < phy_offset:
                found = unit.phy_offset
        return found if found >= 0 else None

    def rewind(self, phy_offset: int) -> None:
        """End all queues before the records at or behind `phy_offset`, which are put again."""
        self._forget_staged()
        for queue in self:
            queue.rewind(phy_offset)

    def truncate(self, phy_offset: int) -> None:
        """Drop the units of records at or behind `phy_offset`."""
        self._forget_staged()
        for queue in self:
            queue.truncate(phy_offset)

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """The next queue offset of each queue, for the commit log."""
        return {(queue.topic, queue.queue_id): queue.max_offset for queue in self}

    def close(self) -> None:
        """Close all files."""
        for queue in self:
            queue.files.close()
        self._queues.clear()
        self._light_count = 0
        self._late.clear()
