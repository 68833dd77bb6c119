"""Writers of format `rocketmq` as Spark's data source API wants them. Source: pyspark.sql.datasource (PySpark 4.3).

Spark makes a writer in a process beside the driver: for a batch write once, for a stream once for each batch, and once more for
its commit. There options, columns and topic are checked. The writer then goes to the tasks by pickle.
"""

import secrets
from collections.abc import Iterator, Mapping

import pyarrow as pa
import trio
from attrs import evolve
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from twinlog.cluster.pipeline.sink.ids import RowIds, short_id
from twinlog.cluster.pipeline.sink.options import SinkOptions, WriteRefusedError, sink_columns, sink_options
from twinlog.cluster.pipeline.sink.sending import check_topic, write_rows

# Local properties of Spark's tasks. Source: StreamExecution.QUERY_ID_KEY, MicroBatchExecution.BATCH_ID_KEY (Spark 4.3).
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class Written(WriterCommitMessage):
    """Number of messages that a task stored."""

    def __init__(self, count: int) -> None:
        self.count = count


def checked(texts: Mapping[str, str], schema: StructType) -> SinkOptions:
    """Options of a writer for this frame. Raises ReadRefusedError."""
    options = sink_options(texts)
    sink_columns(to_arrow_schema(schema, timezone="UTC"), options)
    trio.run(check_topic, options)
    return options


class RowWriter(DataSourceArrowWriter):
    """Writer of a batch. Its rows have ids of the write: a new one, or the one of option writeId."""

    def __init__(self, texts: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise WriteRefusedError("mode overwrite: a topic cannot be emptied. Use mode append.")
        options = checked(texts, schema)
        self.options = evolve(options, write_id=options.write_id or secrets.token_hex(8))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a task. Raises WriteRefusedError."""
        assert self.options.write_id is not None
        return _written(self.options, self.options.write_id, 0, iterator)


class RowStreamWriter(DataSourceStreamArrowWriter):
    """Writer of a stream. Output mode complete appends each result."""

    def __init__(self, texts: Mapping[str, str], schema: StructType) -> None:
        self.options = checked(texts, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a task of a batch. Raises WriteRefusedError."""
        context = _context()
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if not query or not batch:
            raise WriteRefusedError(
                "Spark does not say which query and batch this task is of, so its rows would have no ids"
            )
        return _written(self.options, short_id(query), int(batch), iterator)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "writers run in tasks"
    return context


def _written(options: SinkOptions, query: str, batch: int, iterator: Iterator[pa.RecordBatch]) -> Written:
    context = _context()
    ids = RowIds(query, batch, context.partitionId())
    return Written(trio.run(write_rows, options, ids, iter(iterator), context.attemptNumber()))
