"""Streaming reader that follows the logs of stores; its progress is one offset for each log.

A batch holds the records that begin between two offsets: any byte can end a batch, and the same two offsets always give the same
rows. Spark writes both to its checkpoint before it reads: with a sink that takes each batch once, every record comes out once,
also across restarts. limits.py decides how far may be read, and when a reader must stop.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from attrs import evolve
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from twinlog.cluster.pipeline.sources.files import StoreFiles, inspect_store
from twinlog.cluster.pipeline.sources.limits import (
    ReadRefusedError,
    batch_ends,
    epoch_before,
    may_be_old,
    readable_end,
    start_of,
)
from twinlog.cluster.pipeline.sources.log_bytes import Split, splits
from twinlog.cluster.pipeline.sources.walk import Broken, BrokenKind
from twinlog.cluster.pipeline.tables import schemas
from twinlog.cluster.pipeline.tables.bodies import inflated_batches
from twinlog.cluster.pipeline.tables.options import ReadOptions
from twinlog.cluster.pipeline.tables.scan import RecordFilter, record_batches
from twinlog.cluster.pipeline.tables.texts import warn

Place = dict[str, int]  # An `offset` of a log, and the `epoch` of the byte before it.
Places = dict[str, Place]  # By store.


class LogPart(InputPartition):
    """A split of one store's log, with the files it needs."""

    def __init__(self, files: StoreFiles, split: Split, where: RecordFilter) -> None:
        self.files, self.split, self.where = files, split, where


def log_parts(files: StoreFiles, where: RecordFilter, split_size: int) -> list[InputPartition]:
    """The log from `where.start` to `where.end`, one part for each task."""
    end = files.end if where.end is None else min(where.end, files.end)
    found = splits(files.log, split_size, max(where.start, files.first), end)
    return [LogPart(_only(files, split), split, where) for split in found]


def _only(files: StoreFiles, split: Split) -> StoreFiles:
    """The store with only the files of a split: partitions should not carry thousands of names."""
    log_files = tuple(
        file for file in files.log if file.start < split.end and file.start + files.file_size > split.start
    )
    return evolve(files, log=log_files, problems=())


def part_batches(part: LogPart, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of a partition of rocketmq_records, in the columns of `schema`. Damaged bytes are skipped with a warning.

    Raises ReadRefusedError for missing or unreadable bytes: a retry may succeed.
    """
    member = part.files.uri.shown

    def report(broken: Broken) -> None:
        is_lost = broken.kind is not BrokenKind.DAMAGED
        if is_lost and options.fail_on_data_loss:
            raise ReadRefusedError(
                f"{member}: bytes {broken.start} to {broken.end} of the log cannot be read: "
                f"{broken.reason}. Check the disk, and whether retention removed them. To continue without them, set option "
                "failOnDataLoss=false."
            )
        warn(f"{member}: bytes {broken.start} to {broken.end} of the log are skipped: {broken.reason}")

    for batch in record_batches(part.files, part.split, where=part.where, body=options.body, on_broken=report):
        for ready in [batch] if options.inflate is None else inflated_batches(batch, options.inflate):
            yield schemas.with_member(ready, member, schema)


def store_now(options: ReadOptions, number: int, *, warns: bool = True) -> tuple[StoreFiles, int]:
    """Member `number` as it is now, and the end of reading. Raises ReadRefusedError, NotAStoreError, UnreadableError."""
    broker = options.broker_of(number)
    confirmed = None
    if broker is not None and not options.unconfirmed:
        # All workers import this file, and few need a client.
        from twinlog.cluster.pipeline.tables.broker_end import ask_broker

        confirmed = ask_broker(broker)
    files = inspect_store(options.members[number])  # Read after the confirmed offset: the log only grows.
    end = readable_end(files, unconfirmed=options.unconfirmed, reported=confirmed)
    warning = may_be_old(files, unconfirmed=options.unconfirmed, reported=confirmed) if warns else None
    if warning is not None:
        warn(warning)
    return files, end


def place_of(files: StoreFiles, offset: int) -> Place:
    """An offset for the checkpoint, with the epoch of the byte before it, which shows whether that byte is still there."""
    return {"offset": offset, "epoch": epoch_before(files, offset)}


class RecordStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of rocketmq_records as a stream. Lives in its own process as long as the query; read() runs in tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = to_arrow_schema(schema, timezone="UTC")
        self._target: Places | None = None  # With trigger AvailableNow: the end of the query.
        self._latest: Places | None = None  # The readable end at the last inspection.

    def _inspect(self) -> list[tuple[str, StoreFiles, int]]:
        """All stores by name, with the end of reading."""
        numbers = range(len(self.options.members))
        looks = [store_now(self.options, number, warns=self._latest is None) for number in numbers]
        found = [(files.uri.shown, files, end) for files, end in looks]
        self._latest = {name: place_of(files, end) for name, files, end in found}
        return found

    def _start(self, files: StoreFiles, place: Place | None) -> int:
        """Offset to continue from. Raises ReadRefusedError."""
        if place is None:  # A new store.
            return files.first
        fails = self.options.fail_on_data_loss
        return start_of(files, place["offset"], epoch=place["epoch"], fail_on_data_loss=fails)

    def initialOffset(self) -> Places:  # noqa: N802 - Spark's name, as those below.
        """Start of a new query."""
        start = self.options.start
        return {
            name: place_of(files, end if start is None else start or files.first)
            for name, files, end in self._inspect()
        }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Limit from option maxBytesPerTrigger."""
        return ReadMaxBytes(self.options.bytes_per_trigger)

    def latestOffset(self, start: Places, limit: ReadLimit) -> Places:  # noqa: N802
        """End of the next batch."""
        now = self._inspect()
        starts = [self._start(files, start.get(name)) for name, files, _ in now]
        ends = [end if self._target is None else min(end, self._target[name]["offset"]) for name, _, end in now]
        found = batch_ends(starts, ends, _size_max(limit, self.options.bytes_per_trigger))
        places = {name: place_of(files, end) for (name, files, _), end in zip(now, found, strict=True)}
        return {
            name: start[name] if name in start and start[name]["offset"] == place["offset"] else place
            for name, place in places.items()
        }

    def reportLatestOffset(self) -> Places | None:  # noqa: N802
        """End of the readable logs, for the query's progress."""
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the current end."""
        self._inspect()
        self._target = self._latest

    def partitions(self, start: Places, end: Places) -> Sequence[InputPartition]:
        """Records between two offsets; after a restart those of the checkpoint."""
        found: list[InputPartition] = []
        for member in self.options.members:
            name = member.shown
            if name not in end or start.get(name) == end[name]:
                continue
            files = inspect_store(member)
            self._start(files, end[name])
            low = self._start(files, start.get(name))
            if name in start and low > start[name]["offset"]:
                warn(
                    f"{name}: bytes {start[name]['offset']} to {low} of the log are gone: retention removed them unread"
                )
            where = RecordFilter(topics=self.options.topics, start=low, end=end[name]["offset"])
            found += log_parts(files, where, self.options.split_size)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of a part."""
        if isinstance(partition, LogPart):
            yield from part_batches(partition, self.options, self.schema)


def _size_max(limit: ReadLimit, otherwise: int) -> int | None:
    if isinstance(limit, ReadAllAvailable):
        return None
    return limit.max_bytes if isinstance(limit, ReadMaxBytes) else otherwise
