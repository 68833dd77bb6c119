"""Tables as registered with Spark: name, columns, options. docs/reference/tables.md is generated from this.

Within a version no column is renamed or changes its meaning; new columns may be added at the end.
"""

import pyarrow as pa
from attrs import frozen

from twinlog.cluster.pipeline.tables import columns
from twinlog.cluster.pipeline.tables.columns import described

_MEMBER = described("member", pa.string(), False, "the store, as in option `path`, without options of a URI")
_PROBLEM = described("problem", pa.string(), True, "problem, as text; null: none found")
BODY_PROBLEM = described(
    "body_problem", pa.string(), True, "why the body is as it is stored, though compressed; null: it is not"
)
_EXT = described(
    "ext_address", pa.int64(), True, "what the unit has in place of the tags code, if that is in an ext unit"
)


@frozen
class Option:
    """An option of a reader; `default` as the page shows it."""

    name: str
    default: str
    doc: str


@frozen(kw_only=True)
class Table:
    """A table. `pushed`: columns whose filters save reading; `is_stream`: it can be followed."""

    name: str
    doc: str
    schema: pa.Schema
    options: tuple[Option, ...]
    pushed: tuple[str, ...] = ()
    is_stream: bool = False


_PATH = Option(
    "path",
    "",
    "the store directory, or several separated by commas, each once: paths without commas, or URIs such as s3://BUCKET/DIR",
)
_SPLIT = Option("splitSize", "67108864", "bytes of log, or of queue files, for one task")
_END = (
    Option("unconfirmed", "false", "true: read all that is sound of a running store, confirmed or not"),
    Option("broker", "", "HOST:PORT of the running broker of the store, to ask what is confirmed; as many as stores"),
)
_PUSH = Option("pushFilters", "false", "true: filters spare reading; only for a frame with one filter, see above")
_STREAM = (
    Option("startingOffset", "earliest", "where a new query begins: earliest, latest or an offset of the log"),
    Option("maxBytesPerTrigger", "268435456", "bytes of log, of all stores together, for one batch"),
)


def _table_schema(schema: pa.Schema, *more: pa.Field) -> pa.Schema:
    return pa.schema([_MEMBER, *map(_for_spark, schema), *more], metadata=schema.metadata)


def _for_spark(field: pa.Field) -> pa.Field:
    """Replace fixed-size binaries, which Spark cannot read."""
    return field.with_type(pa.binary()) if pa.types.is_fixed_size_binary(field.type) else field


RECORDS = Table(
    name="rocketmq_records",
    doc="Every sound record of the log.",
    schema=_table_schema(columns.RECORDS),
    options=(
        _PATH,
        Option(
            "body", "false", "true: a further column `body`, as it is stored; without it bodies are not handed over"
        ),
        Option(
            "inflate",
            "false",
            "true: `body` as producers gave it, and a column `body_problem` where that cannot be had",
        ),
        Option("inflateSizeMax", "67108864", "bytes that a body may be inflated to"),
        Option("inflateRatioMax", "200", "to how many times as many as are stored, where that is over 4 MiB"),
        Option("topics", "", "only these topics, separated by commas; the only filter of a stream that spares work"),
        *_END,
        Option("failOnDataLoss", "true", "false: go on, with a warning, where files were removed or cannot be read"),
        _SPLIT,
        _PUSH,
        *_STREAM,
    ),
    pushed=("topic", "offset", "stored_ms"),
    is_stream=True,
)
BLOCKS = Table(
    name="rocketmq_blocks",
    doc="Digests of the log in blocks of 64 KiB: replicas are equal where these are.",
    schema=_table_schema(columns.BLOCKS),
    options=(_PATH, *_END, _SPLIT, _PUSH),
    pushed=("start",),
)
UNITS = Table(
    name="rocketmq_consumequeue",
    doc="The units of all consume queues, broken ones included.",
    schema=_table_schema(columns.QUEUE_UNITS, _EXT, _PROBLEM),
    options=(_PATH, Option("topics", "", "only these topics, separated by commas"), _SPLIT, _PUSH),
    pushed=("topic",),
)
ITEMS = Table(
    name="rocketmq_index",
    doc="The items of all index files: which keys lead where.",
    schema=_table_schema(columns.INDEX_ITEMS, _PROBLEM),
    options=(_PATH, Option("indexSlots", "", "slots of a file, where they are not a fourth of its items"), _SPLIT),
)
TABLES = (RECORDS, BLOCKS, UNITS, ITEMS)


def records_schema(*, body: bool, inflate: bool = False) -> pa.Schema:
    """Schema of rocketmq_records, with bodies if requested, and with their problems if they are inflated."""
    if not body:
        return RECORDS.schema
    schema = RECORDS.schema.append(columns.BODY)
    return schema.append(BODY_PROBLEM) if inflate else schema


def with_member(batch: pa.RecordBatch, member: str, schema: pa.Schema) -> pa.RecordBatch:
    """Add column `member` to a batch. Spark matches columns by position, and takes types as they are."""
    arrays = []
    for field in schema:
        column = (
            pa.repeat(pa.scalar(member), batch.num_rows) if field.name == _MEMBER.name else batch.column(field.name)
        )
        arrays.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.record_batch(arrays, schema=schema)
