"""Arrow schemas of the tables of a store. Each field has a description, each schema a version.

Offsets and sizes count bytes of the log, queue offsets messages of their queue; times are ms since 1970. Sources:
store/record/message.py, store/queue/consume_queue.py, store/index/layout.py, store/integrity/digest.py.
"""

import pyarrow as pa

VERSION = "1"
_TEXTS = pa.map_(pa.string(), pa.string())


def described(name: str, kind: pa.DataType, may_be_null: bool, doc: str) -> pa.Field:
    """A field with its description."""
    return pa.field(name, kind, nullable=may_be_null, metadata={"doc": doc})


def _schema(*fields: tuple[str, pa.DataType, bool, str]) -> pa.Schema:
    return pa.schema([described(*field) for field in fields], metadata={"twinlog.version": VERSION})


RECORDS = _schema(
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
BODY = described("body", pa.binary(), False, "the body as it is stored, perhaps compressed")
RECORDS_WITH_BODY = RECORDS.append(BODY)

BLOCKS = _schema(
    ("start", pa.int64(), False, "first byte of the block, a multiple of 65,536 but for the first one of a log"),
    ("end", pa.int64(), False, "behind its last byte"),
    ("digest", pa.binary(16), True, "xxh3-128 of its bytes; null where they cannot be read"),
    ("records", pa.int32(), False, "how many records begin in it"),
    ("first_record", pa.int64(), False, "where the first of these begins; -1: none does"),
)

QUEUE_UNITS = _schema(
    ("topic", pa.string(), False, "topic"),
    ("queue_id", pa.int32(), False, "queue of the topic"),
    ("queue_offset", pa.int64(), False, "number of the unit in its queue"),
    ("offset", pa.int64(), False, "where the record begins in the log"),
    ("size", pa.int32(), False, "bytes of the record; 2147483647: a unit that only keeps the numbering"),
    ("tags_code", pa.int64(), False, "hash of the tags; when it is due, ms, for a delayed message"),
    ("file", pa.string(), False, "name of the queue's file"),
)

INDEX_ITEMS = _schema(
    ("file", pa.string(), False, "name of the index file, the time when it was made"),
    ("item", pa.int32(), False, "number of the item in its file, from 1"),
    ("slot", pa.int32(), False, "number of the slot that its key belongs to"),
    ("key_hash", pa.int32(), False, "hash of TOPIC#KEY without its sign"),
    ("offset", pa.int64(), False, "where the record begins in the log"),
    ("stored_ms", pa.int64(), False, "when the record was stored, cut to whole seconds after the file's first one, ms"),
    ("previous", pa.int32(), False, "the slot's item before; 0: none"),
)
