"""Tables as registered with Spark: name, columns, options. docs/reference/tables.md is generated from this.

Within a version no column is renamed or changes its meaning; new columns may be added at the end. Offsets and sizes count bytes
of the log, queue offsets messages of their queue; times are ms since 1970. Sources: store/record/message.py,
store/queue/consume_queue.py, store/index/layout.py, store/integrity/digest.py.
"""

import pyarrow as pa
from attrs import frozen

VERSION = "1"
_TEXTS = pa.map_(pa.string(), pa.string())


def _field(name: str, kind: pa.DataType, may_be_null: bool, doc: str) -> pa.Field:
    return pa.field(name, kind, nullable=may_be_null, metadata={"doc": doc})


def _schema(*fields: tuple[str, pa.DataType, bool, str]) -> pa.Schema:
    return pa.schema([_field(*field) for field in fields], metadata={"twinlog.version": VERSION})


RECORD_COLUMNS = _schema(
    ("offset", pa.int64(), False, "where the record begins in the log (physical offset)"),
    ("size", pa.int32(), False, "bytes of the whole record"),
    ("file", pa.string(), False, "name of the log file that it lies in"),
    ("topic", pa.string(), False, "topic"),
    ("queue_id", pa.int32(), False, "queue of the topic"),
    ("queue_offset", pa.int64(), False, "number of the message in its queue; 0 for half and rolled back messages"),
    ("tags", pa.string(), True, "property TAGS; null: none"),
    ("keys", pa.string(), True, "property KEYS, split by spaces; null: none"),
    ("unique_key", pa.string(), True, "property UNIQ_KEY, the id that the client gave; null: none"),
    ("tags_code", pa.int64(), False, "hash of the tags, as consume queues keep it; 0: none"),
    ("born_ms", pa.int64(), False, "when the client made the message, ms"),
    ("born_host", pa.string(), False, "ADDRESS:PORT of the client"),
    ("stored_ms", pa.int64(), False, "when the master stored it, ms"),
    ("store_host", pa.string(), False, "ADDRESS:PORT of the master that stored it"),
    ("flag", pa.int32(), False, "the application's flag"),
    ("sys_flag", pa.int32(), False, "RocketMQ's flags: compression 0x1, 0x700, transaction 0xC, IPv6 hosts 0x10, 0x20"),
    ("reconsume_times", pa.int32(), False, "how often consumers sent it back"),
    ("prepared_offset", pa.int64(), False, "where the half message of a transaction lies; else 0"),
    ("version", pa.int8(), False, "layout of the record: 1, or 2 where the topic is long"),
    ("body_size", pa.int32(), False, "bytes of the body as it is stored"),
    ("body_crc", pa.int32(), False, "CRC-32 of the body without its sign bit, which was checked; 0 without a body"),
    ("properties", _TEXTS, False, "all properties by name"),
)
_BODY = _field("body", pa.binary(), False, "the body as it is stored, perhaps compressed")
RECORD_COLUMNS_WITH_BODY = RECORD_COLUMNS.append(_BODY)

BLOCK_COLUMNS = _schema(
    ("start", pa.int64(), False, "first byte of the block, a multiple of 65,536 but for the first one of a log"),
    ("end", pa.int64(), False, "behind its last byte"),
    ("digest", pa.binary(16), True, "xxh3-128 of its bytes; null where they cannot be read"),
    ("records", pa.int32(), False, "how many records begin in it"),
    ("first_record", pa.int64(), False, "where the first of these begins; -1: none does"),
)

UNIT_COLUMNS = _schema(
    ("topic", pa.string(), False, "topic"),
    ("queue_id", pa.int32(), False, "queue of the topic"),
    ("queue_offset", pa.int64(), False, "number of the unit in its queue"),
    ("offset", pa.int64(), False, "where the record begins in the log"),
    ("size", pa.int32(), False, "bytes of the record; 2147483647: a unit that only keeps the numbering"),
    ("tags_code", pa.int64(), False, "hash of the tags; when it is due, ms, for a delayed message"),
    ("file", pa.string(), False, "name of the queue's file"),
)

ITEM_COLUMNS = _schema(
    ("file", pa.string(), False, "name of the index file, the time when it was made"),
    ("item", pa.int32(), False, "number of the item in its file, from 1"),
    ("slot", pa.int32(), False, "number of the slot that its key belongs to"),
    ("key_hash", pa.int32(), False, "hash of TOPIC#KEY without its sign"),
    ("offset", pa.int64(), False, "where the record begins in the log"),
    ("stored_ms", pa.int64(), False, "when the record was stored, cut to whole seconds after the file's first one, ms"),
    ("previous", pa.int32(), False, "the slot's item before; 0: none"),
)


_MEMBER = _field("member", pa.string(), False, "the store, as in option `path`, without options of a URI")
_PROBLEM = _field("problem", pa.string(), True, "problem, as text; null: none found")
_BODY_PROBLEM = _field(
    "body_problem", pa.string(), True, "why the body is as it is stored, though compressed; null: it is not"
)
_EXT = _field("ext_address", pa.int64(), True, "what the unit has in place of the tags code, if that is in an ext unit")


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
    schema=_table_schema(RECORD_COLUMNS),
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
    schema=_table_schema(BLOCK_COLUMNS),
    options=(_PATH, *_END, _SPLIT, _PUSH),
    pushed=("start",),
)
UNITS = Table(
    name="rocketmq_consumequeue",
    doc="The units of all consume queues, broken ones included.",
    schema=_table_schema(UNIT_COLUMNS, _EXT, _PROBLEM),
    options=(_PATH, Option("topics", "", "only these topics, separated by commas"), _SPLIT, _PUSH),
    pushed=("topic",),
)
ITEMS = Table(
    name="rocketmq_index",
    doc="The items of all index files: which keys lead where.",
    schema=_table_schema(ITEM_COLUMNS, _PROBLEM),
    options=(_PATH, Option("indexSlots", "", "slots of a file, where they are not a fourth of its items"), _SPLIT),
)
TABLES = (RECORDS, BLOCKS, UNITS, ITEMS)


def records_schema(*, body: bool, inflate: bool = False) -> pa.Schema:
    """Schema of rocketmq_records, with bodies if requested, and with their problems if they are inflated."""
    if not body:
        return RECORDS.schema
    schema = RECORDS.schema.append(_BODY)
    return schema.append(_BODY_PROBLEM) if inflate else schema


def with_member(batch: pa.RecordBatch, member: str, schema: pa.Schema) -> pa.RecordBatch:
    """Add column `member` to a batch. Spark matches columns by position, and takes types as they are."""
    arrays = []
    for field in schema:
        column = (
            pa.repeat(pa.scalar(member), batch.num_rows) if field.name == _MEMBER.name else batch.column(field.name)
        )
        arrays.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.record_batch(arrays, schema=schema)
