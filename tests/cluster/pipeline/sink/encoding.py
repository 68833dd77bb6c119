"""Rows into messages and back, as a broker takes them apart."""

from typing import Any

import pyarrow as pa
from attrs import frozen

from twinlog.cluster.broker.send.requests import split_batch
from twinlog.cluster.pipeline.sink.ids import RowIds
from twinlog.cluster.pipeline.sink.options import sink_columns, sink_options
from twinlog.cluster.pipeline.sink.rows import RowEncoder, Rows, in_parts
from twinlog.store.record.properties import parse_properties

NAMESRV = "127.0.0.1:9876"
OWN = ("UNIQ_KEY", "SPARK_ROW_ID", "WAIT")


@frozen
class Sent:
    """A message as the broker gets it."""

    topic: str | None
    body: bytes
    properties: dict[str, str]
    flag: int
    is_alone: bool
    key: str | None

    @property
    def row_id(self) -> str:
        return self.properties["SPARK_ROW_ID"]

    @property
    def given(self) -> dict[str, str]:
        """Properties but for those that the sink adds."""
        return {name: value for name, value in self.properties.items() if name not in OWN}


def batch_of(**columns: Any) -> pa.RecordBatch:
    """A batch; bytes become BINARY, text STRING."""
    return pa.RecordBatch.from_pydict(columns)


def encoder_for(
    batch: pa.RecordBatch, *, query: str = "q", number: int = 7, partition: int = 3, **options: str
) -> RowEncoder:
    parsed = sink_options({"nameServer": NAMESRV, "topic": "T"} | options)
    return RowEncoder(parsed, sink_columns(batch.schema, parsed), RowIds(query, number, partition))


def taken_apart(rows: Rows) -> list[Sent]:
    """Messages in the order of their rows."""
    found = []
    for row, item in enumerate(rows.items):
        topic = rows.topics[row] if rows.topics else None
        key = rows.keys[row] if rows.keys else None
        if (alone := rows.alone.get(row)) is not None:
            properties = parse_properties(alone.properties)
            found.append(Sent(topic, alone.body, properties, alone.flag, True, key))
        else:
            (inner,) = split_batch(item)
            properties = parse_properties(inner.properties.decode())
            found.append(Sent(topic, bytes(inner.body), properties, inner.flag, False, key))
    return found


def sent(*batches: pa.RecordBatch, **options: str) -> list[Sent]:
    """Messages of the batches of one task."""
    encoder = encoder_for(batches[0], **options)
    parts = (part for batch in batches for part in in_parts(batch, encoder.columns.value))
    return [message for part in parts for message in taken_apart(encoder.encode(part))]
