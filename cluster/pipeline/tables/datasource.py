"""Tables of store directories as Python data sources for Spark 4: see docs/reference/tables.md.

Spark runs a reader in a process of its own, which inspects the stores and divides them into partitions; tasks read these. Damaged
bytes of a partition are skipped: tables contain sound rows only, and the audit reports the rest.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from attrs import evolve
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from twinlog.cluster.pipeline.sources.files import StoreFiles, inspect_store
from twinlog.cluster.pipeline.tables import schemas
from twinlog.cluster.pipeline.tables.options import ReadOptions, read_options
from twinlog.cluster.pipeline.tables.pushed import Pushed
from twinlog.cluster.pipeline.tables.scan import block_batches
from twinlog.cluster.pipeline.tables.stream import LogPart, RecordStreamReader, log_parts, part_batches, store_now
from twinlog.cluster.pipeline.tables.units import (
    IndexPiece,
    QueuePiece,
    index_pieces,
    item_batches,
    pieces_by_size,
    queue_pieces,
    unit_batches,
)


class Pieces(InputPartition):
    """Files of queues, or of the index, of one store."""

    def __init__(self, member: str, pieces: Sequence[Any]) -> None:
        self.member, self.pieces = member, tuple(pieces)


class _TableReader(DataSourceReader):
    """Common part of the readers: filters, and the inspection of each store. Parts are those of the log."""

    offset_column: ClassVar[str] = ""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = to_arrow_schema(schema, timezone="UTC")
        self.pushed = Pushed(self.offset_column, options.topics)

    def partitions(self) -> list[InputPartition]:
        """Parts of all stores."""
        return [part for number in range(len(self.options.members)) for part in self.parts(number)]

    def parts(self, number: int) -> list[InputPartition]:
        """Parts of member `number`."""
        files, end = store_now(self.options, number)
        where = self.pushed.where(start=files.first, end=end)
        return log_parts(evolve(files, end=end), where, self.options.split_size)


class _Pushing(_TableReader):
    """Reader with option pushFilters: Spark 4.3 keeps the last filters with the frame of load(), also without filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name.
        """Accept the filters that save reading; Spark applies the others."""
        for each in filters:
            column: tuple[str, ...] = getattr(each, "attribute", ())
            value = getattr(each, "value", None)
            if len(column) != 1 or not self.pushed.take(type(each).__name__, column[0], value):
                yield each


class _RecordsReader(_TableReader):
    offset_column = "offset"

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LogPart):
            yield from part_batches(partition, self.options, self.schema)


class _BlocksReader(_TableReader):
    offset_column = "start"

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LogPart):
            for batch in block_batches(partition.files, partition.split):
                yield schemas.with_member(batch, partition.files.uri.shown, self.schema)


class _PiecesReader(_TableReader):
    """Reader of files beside the log."""

    def pieces(self, files: StoreFiles) -> Sequence[Any]:
        """All files of a store."""
        raise NotImplementedError

    def batches(self, piece: Any) -> Iterator[pa.RecordBatch]:
        """Rows of a file."""
        raise NotImplementedError

    def parts(self, number: int) -> list[InputPartition]:
        files = inspect_store(self.options.members[number])
        pieces = self.pieces(files)
        groups = pieces_by_size([piece.size for piece in pieces], self.options.split_size)
        return [Pieces(files.uri.shown, [pieces[number] for number in group]) for group in groups]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Pieces):
            for piece in partition.pieces:
                for batch in self.batches(piece):
                    yield schemas.with_member(batch, partition.member, self.schema)


class _UnitsReader(_PiecesReader):
    def pieces(self, files: StoreFiles) -> Sequence[QueuePiece]:
        return queue_pieces(files, self.pushed.topics)

    def batches(self, piece: QueuePiece) -> Iterator[pa.RecordBatch]:
        return unit_batches(piece)


class _ItemsReader(_PiecesReader):
    def pieces(self, files: StoreFiles) -> Sequence[IndexPiece]:
        return index_pieces(files.index(), None if files.is_running else files.end, self.options.index_slots)

    def batches(self, piece: IndexPiece) -> Iterator[pa.RecordBatch]:
        return item_batches(piece)


class _PushingRecordsReader(_Pushing, _RecordsReader): ...


class _PushingBlocksReader(_Pushing, _BlocksReader): ...


class _PushingUnitsReader(_Pushing, _UnitsReader): ...


def struct_of(schema: pa.Schema) -> StructType:
    """The schema for Spark, which shows column descriptions in DESCRIBE."""
    fields = zip(from_arrow_schema(schema, prefer_timestamp_ntz=False).fields, schema, strict=True)
    return StructType(
        [
            StructField(each.name, each.dataType, each.nullable, {"comment": described.metadata[b"doc"].decode()})
            for each, described in fields
        ]
    )


class _StoreSource(DataSource):
    """A table with the name and columns of schemas.py."""

    table: ClassVar[schemas.Table]
    kind: ClassVar[Any]
    pushing: ClassVar[Any] = None

    @classmethod
    def name(cls) -> str:
        return cls.table.name

    def schema(self) -> StructType:
        """Raises ReadRefusedError for invalid options."""
        read_options(self.options)
        return struct_of(self.table.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        kind = self.pushing if options.push_filters and self.pushing is not None else self.kind
        reader: DataSourceReader = kind(options, schema)
        return reader


class RecordsSource(_StoreSource):
    """rocketmq_records, which can also be followed."""

    table, kind = schemas.RECORDS, _RecordsReader
    pushing = _PushingRecordsReader

    def schema(self) -> StructType:
        options = read_options(self.options)
        return struct_of(schemas.records_schema(body=options.body, inflate=options.inflate is not None))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name.
        return RecordStreamReader(read_options(self.options), schema)


class BlocksSource(_StoreSource):
    """rocketmq_blocks"""

    table, kind = schemas.BLOCKS, _BlocksReader
    pushing = _PushingBlocksReader


class UnitsSource(_StoreSource):
    """rocketmq_consumequeue"""

    table, kind = schemas.UNITS, _UnitsReader
    pushing = _PushingUnitsReader


class ItemsSource(_StoreSource):
    """rocketmq_index"""

    table, kind = schemas.ITEMS, _ItemsReader


SOURCES: tuple[type[DataSource], ...] = (RecordsSource, BlocksSource, UnitsSource, ItemsSource)


def register(spark: SparkSession) -> None:
    """Register the tables with a session; repeating it is harmless."""
    for source in SOURCES:
        spark.dataSource.register(source)
