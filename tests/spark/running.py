"""Format `rocketmq` as Spark's planner and tasks use it, but in this process: reads and writes topics of a running cluster."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import trio
from attrs import define, field

from tests.spark.reading import Row, _rows
from twinlog.cluster.pipeline.topics.datasource import RocketMQSource

COLUMNS = pa.schema(
    {
        "value": pa.binary(),
        "keys": pa.string(),
        "tags": pa.string(),
        "properties": pa.map_(pa.string(), pa.string()),
        "shardingKey": pa.string(),
        "delayLevel": pa.int32(),
    }
)


def topic_rows(**options: str) -> list[Row]:
    """All rows of a batch query."""
    source = RocketMQSource(options)
    reader: Any = source.reader(source.schema())
    return _rows(reader, reader.partitions(), reader.schema)


@define
class TopicQuery:
    """A query that follows topics, and its checkpoint."""

    options: dict[str, str]
    at: Any = None
    _reader: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        source = RocketMQSource(self.options)
        self._reader = source.streamReader(source.schema())

    def again(self, **options: str) -> "TopicQuery":
        """The query ended, and was started again with these options."""
        return TopicQuery(self.options | options, self.at)

    def batch(self) -> list[Row]:
        """The rows of the next batch, which is completed."""
        if self.at is None:
            self.at = self._reader.initialOffset()
        end = self._reader.latestOffset(self.at, self._reader.getDefaultReadLimit())
        rows = _rows(self._reader, self._reader.partitions(self.at, end), self._reader.schema)
        self.at = end
        self._reader.commit(end)
        return rows

    def everything(self) -> list[Row]:
        """Batches until one is empty."""
        found: list[Row] = []
        while rows := self.batch():
            found += rows
        return found


def write_rows(rows: Sequence[Row], **options: str) -> int:
    """Send rows as the only task of a write does; returns how many were stored."""
    from twinlog.cluster.pipeline.sink.ids import RowIds
    from twinlog.cluster.pipeline.sink.options import sink_columns, sink_options
    from twinlog.cluster.pipeline.sink.sending import check_topic
    from twinlog.cluster.pipeline.sink.sending import write_rows as send_rows

    known = sink_options({"writeId": "w"} | options)
    maps = [row | ({"properties": list(row["properties"].items())} if "properties" in row else {}) for row in rows]
    table = pa.Table.from_pylist(maps, COLUMNS)
    sink_columns(table.schema, known)

    async def send() -> int:
        await check_topic(known)
        return await send_rows(known, RowIds("w", 0, 0), iter(table.to_batches()), 0)

    return trio.run(send)
