"""Follows the logs of stores: a streaming reader whose progress is an offset of each log.

A batch is the records that begin between two offsets: any byte can end one, and the same two offsets always give the same rows.
Spark keeps both in its checkpoint before it reads: with a sink that takes each batch once, every record comes out once, across
restarts, too. What may be read, and when a reader must not go on, is decided in limits.py.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import structlog
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

from cluster.pipeline import schemas
from cluster.pipeline.bodies import inflated_batches
from cluster.pipeline.files import StoreFiles, look
from cluster.pipeline.limits import ReadRefusedError, batch_ends, may_be_old, readable_end, start_of
from cluster.pipeline.options import ReadOptions, member_name
from cluster.pipeline.scan import Broken, BrokenKind, RecordFilter, record_batches
from cluster.pipeline.splits import Split, splits
from cluster.pipeline.told import ask_broker

log = structlog.get_logger()
Offsets = dict[str, int]  # By store.


class LogPart(InputPartition):
    """A split of one store's log, and those of its files that are in it."""

    def __init__(self, files: StoreFiles, split: Split, where: RecordFilter) -> None:
        self.files, self.split, self.where = files, split, where


def log_parts(files: StoreFiles, where: RecordFilter, split_size: int) -> list[InputPartition]:
    """The log from `where.start` to `where.end`, one part for each task."""
    end = files.end if where.end is None else min(where.end, files.end)
    found = splits(files.log, split_size, max(where.start, files.first), end)
    return [LogPart(_only(files, split), split, where) for split in found]


def _only(files: StoreFiles, split: Split) -> StoreFiles:
    """The same store, with the files of a split: a thousand partitions need not each carry a thousand names."""
    log_files = tuple(
        file for file in files.log if file.start < split.end and file.start + files.file_size > split.start
    )
    return evolve(files, log=log_files, config=(), problems=())


def part_batches(part: LogPart, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a partition of rocketmq_records, in the columns of `schema`. Damaged bytes are passed over, with a warning.

    Raises ReadRefusedError for those that are gone, or cannot be read: another try may well get them.
    """
    member = member_name(part.files.uri)

    def tell(broken: Broken) -> None:
        is_lost = broken.kind is not BrokenKind.DAMAGED
        if is_lost and options.fail_on_data_loss:
            raise ReadRefusedError(
                f"{member_name(part.files.uri)}: bytes {broken.start} to {broken.end} of the log are not there to be read: "
                f"{broken.reason}. Is the disk in order, or did retention remove them? To go on without them, set option "
                "failOnDataLoss=false."
            )
        log.warning(
            "passed over", store=member_name(part.files.uri), start=broken.start, end=broken.end, why=broken.reason
        )

    for batch in record_batches(part.files, part.split, where=part.where, body=options.body, on_broken=tell):
        for ready in [batch] if options.inflate is None else inflated_batches(batch, options.inflate):
            yield schemas.with_member(ready, member, schema)


def store_now(options: ReadOptions, number: int) -> tuple[StoreFiles, int]:
    """Member `number` as it is now, and where reading ends. Raises ReadRefusedError, NotAStoreError, UnreadableError."""
    broker = options.broker_of(number)
    told = ask_broker(broker).confirmed if broker is not None and not options.unconfirmed else None
    files = look(options.members[number])  # Afterwards: the log only grows.
    end = readable_end(files, unconfirmed=options.unconfirmed, told=told)
    warning = may_be_old(files, unconfirmed=options.unconfirmed, told=told)
    if warning is not None:
        log.warning(warning)
    return files, end


class RecordStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of rocketmq_records. Lives in a process of its own as long as the query does; read() runs in tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = to_arrow_schema(schema, timezone="UTC")
        self._target: Offsets | None = None  # With the trigger AvailableNow: what is to be read before the query ends.

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name, as those below.
        """Where a new query begins."""
        found = {}
        for number, member in enumerate(self.options.members):
            files, end = store_now(self.options, number)
            start = self.options.start
            found[member_name(member)] = end if start is None else (start or files.first)
        return found

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Of option maxBytesPerTrigger."""
        return ReadMaxBytes(self.options.bytes_per_trigger)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Where the next batch ends."""
        starts, ends = [], []
        for number, member in enumerate(self.options.members):
            files, end = store_now(self.options, number)
            target = (self._target or {}).get(member_name(member))
            began = start.get(member_name(member), files.first)
            starts.append(start_of(files, began, fail_on_data_loss=self.options.fail_on_data_loss))
            ends.append(end if target is None else min(end, target))
        found = batch_ends(starts, ends, _size_max(limit, self.options.bytes_per_trigger))
        return {member_name(member): end for member, end in zip(self.options.members, found, strict=True)}

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """How far the logs go that may be read, for the query's progress."""
        return {
            member_name(member): store_now(self.options, number)[1]
            for number, member in enumerate(self.options.members)
        }

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what there is now."""
        self._target = self.reportLatestOffset()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The records that begin between two offsets: after a restart those that the checkpoint names."""
        found: list[InputPartition] = []
        for member in self.options.members:
            key = member_name(member)
            if key not in end or start.get(key) == end[key]:
                continue
            files = look(member)
            start_of(files, end[key], fail_on_data_loss=self.options.fail_on_data_loss)
            low = start_of(files, start.get(key, files.first), fail_on_data_loss=self.options.fail_on_data_loss)
            if low > start.get(key, low):
                log.warning("bytes are gone: retention removed them", store=key, start=start[key], end=low)
            where = RecordFilter(topics=self.options.topics, start=low, end=end[key])
            found += log_parts(files, where, self.options.split_size)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        if isinstance(partition, LogPart):
            yield from part_batches(partition, self.options, self.schema)


def _size_max(limit: ReadLimit, otherwise: int) -> int | None:
    if isinstance(limit, ReadAllAvailable):
        return None
    return limit.max_bytes if isinstance(limit, ReadMaxBytes) else otherwise
