"""The formats of a store, field by field, and which second copy or checksum tells when a field is damaged.

This table is what docs/reference/formats/ shows, and what the mutation test holds the checker to: a change in a bit that is
covered here must be reported. With twinlog/digest every byte of the log is covered besides.
"""

from collections.abc import Iterator
from enum import Enum

from attrs import frozen

from twinlog.store.record.keys import message_keys
from twinlog.store.record.message import MAGIC_V2, QUEUELESS, TRANSACTION_MASK, TRANSACTION_ROLLBACK, decode_message
from twinlog.store.record.scan import SCHEDULE_TOPIC


class Cover(Enum):
    """What tells when a field is damaged; the value is what the reference says."""

    NOTHING = ""
    STRUCTURE = "the record itself: magic, place and lengths must agree"
    CRC = "bodyCRC"
    QUEUE = "the record's consume queue unit"
    TAGS = "tagsCode of the unit"
    INDEX = "the index, where the record is in it"
    RECORD = "the record that it belongs to"
    FILE = "the file behind it must begin with a record"
    CHAIN = "the items before, put again"
    ITEMS = "the items"
    CHECKSUM = "a checksum"


ALL_BITS = -1


@frozen
class Field:
    """One field, in the order in which fields lie. `size` is a number of bytes, or a name for one that other fields give.

    `bits` are those that are covered, counted in the whole field.
    """

    name: str
    size: int | str
    type: str
    meaning: str
    cover: Cover
    bits: int = ALL_BITS
    note: str = ""  # Restricts the cover.


_BEFORE_TOPIC = (
    Field("totalSize", 4, "i32", "bytes of the whole record", Cover.STRUCTURE),
    Field("magic", 4, "i32", "`0xDAA320A7`; version 2: `0xDAA320AB`", Cover.STRUCTURE),
    Field("bodyCRC", 4, "i32", "CRC-32 of the stored body without its top bit; 0 for no body", Cover.CRC),
    Field("queueId", 4, "i32", "queue of the topic", Cover.QUEUE),
    Field("flag", 4, "i32", "the application's", Cover.NOTHING),
    Field("queueOffset", 8, "i64", "number of the message in its queue", Cover.QUEUE),
    Field("physicalOffset", 8, "i64", "where this record lies in the log", Cover.STRUCTURE),
    Field(
        "sysFlag",
        4,
        "i32",
        "1 compressed; 4, 8 transaction: prepared, commit, both rollback; 0x10, 0x20 IPv6 hosts; 0x700 compression",
        Cover.QUEUE,
        bits=0x34,
        note="bits 4, 0x10 and 0x20",
    ),
    Field("bornTimestamp", 8, "i64", "when the client sent it, ms", Cover.NOTHING),
    Field("bornHost", "B", "address, i32 port", "the client", Cover.NOTHING),
    Field(
        "storeTimestamp", 8, "i64", "when the broker stored it, ms", Cover.NOTHING, note="only its order is looked at"
    ),
    Field("storeHost", "H", "address, i32 port", "the broker", Cover.NOTHING),
    Field("reconsumeTimes", 4, "i32", "failed attempts of consumers", Cover.NOTHING),
    Field("preparedTransactionOffset", 8, "i64", "place of the half message, or 0", Cover.NOTHING),
    Field("bodyLength", 4, "i32", "bytes of the body", Cover.STRUCTURE),
    Field("body", "bodyLength", "bytes", "as the client sent it", Cover.CRC),
)
_BEHIND_TOPIC = (
    Field("propertiesLength", 2, "i16", "bytes of the properties", Cover.STRUCTURE),
    Field(
        "properties",
        "propertiesLength",
        "text",
        "`name 0x01 value` joined by 0x02",
        Cover.NOTHING,
        note="see below: those that are somewhere else, too",
    ),
)
_TOPIC = Field("topic", "topicLength", "text", "name of the topic", Cover.QUEUE)
RECORD_V1 = (
    *_BEFORE_TOPIC,
    Field("topicLength", 1, "i8", "bytes of the topic", Cover.STRUCTURE),
    _TOPIC,
    *_BEHIND_TOPIC,
)
RECORD_V2 = (
    *_BEFORE_TOPIC,
    Field("topicLength", 2, "i16", "bytes of the topic", Cover.STRUCTURE),
    _TOPIC,
    *_BEHIND_TOPIC,
)
PROPERTIES = (
    Field("TAGS", "", "text", "what consumers filter by", Cover.TAGS, note="not of delayed messages"),
    Field("UNIQ_KEY", "", "text", "the client's message id", Cover.INDEX),
    Field("KEYS", "", "text", "keys to find the message by, between blanks", Cover.INDEX),
)
BLANK = (
    Field("size", 4, "i32", "bytes from here to the end of the file", Cover.FILE),
    Field("magic", 4, "i32", "`0xCBD43194`", Cover.FILE),
    Field("rest", "size - 8", "bytes", "whatever was there: zeros", Cover.NOTHING),
)
UNIT = (
    Field("offset", 8, "i64", "where the record lies in the log", Cover.RECORD),
    Field("size", 4, "i32", "bytes of the record", Cover.RECORD),
    Field(
        "tagsCode", 8, "i64", "Java hash of TAGS; or a time of delivery; or the address of an ext unit", Cover.RECORD
    ),
)
EXT_UNIT = (
    Field("size", 2, "i16", "bytes of this unit; -1: the file is full", Cover.RECORD),
    Field("tagsCode", 8, "i64", "Java hash of TAGS", Cover.RECORD),
    Field("storeTimestamp", 8, "i64", "when the broker stored the message, ms", Cover.NOTHING),
    Field("bitMapSize", 2, "i16", "bytes of the bit map", Cover.RECORD),
    Field("bitMap", "bitMapSize", "bytes", "which consumer groups' SQL filters match", Cover.NOTHING),
)
INDEX_HEADER = (
    Field("beginTimestamp", 8, "i64", "store time of the first item's message, ms", Cover.ITEMS),
    Field("endTimestamp", 8, "i64", "store time of the last item's message, ms", Cover.ITEMS),
    Field("beginPhyOffset", 8, "i64", "where the first item's message lies in the log", Cover.ITEMS),
    Field("endPhyOffset", 8, "i64", "where the last item's message lies in the log", Cover.ITEMS),
    Field("hashSlotCount", 4, "i32", "slots in use", Cover.ITEMS),
    Field("indexCount", 4, "i32", "number of the next item, from 1", Cover.ITEMS),
)
INDEX_SLOT = (Field("item", 4, "i32", "number of the newest item of the slot; 0: none", Cover.CHAIN),)
INDEX_ITEM = (
    Field("keyHash", 4, "i32", "Java hash of `topic#key` without its sign", Cover.RECORD),
    Field("phyOffset", 8, "i64", "where the message lies in the log", Cover.RECORD),
    Field(
        "timeDiff",
        4,
        "i32",
        "seconds from the header's beginTimestamp to the message's store time",
        Cover.RECORD,
        note="not of item 1, whose beginning was another file's end",
    ),
    Field("previous", 4, "i32", "the item before it in its slot; 0: none", Cover.CHAIN),
)
CHECKPOINT = (
    Field("physicMsgTimestamp", 8, "i64", "the log is on disk up to this store time, ms", Cover.NOTHING),
    Field("logicsMsgTimestamp", 8, "i64", "the consume queues are on disk up to this store time, ms", Cover.NOTHING),
    Field("indexMsgTimestamp", 8, "i64", "the full index files reach up to this store time, ms", Cover.NOTHING),
    Field("masterFlushedOffset", 8, "i64", "5.x; zero in 4.9", Cover.NOTHING),
    Field("confirmPhyOffset", 8, "i64", "5.x; zero in 4.9", Cover.NOTHING),
    Field("rest", 4056, "bytes", "zeros", Cover.NOTHING),
)
DIGEST_HEADER = (
    Field("magic", 8, "text", "`twdigest`", Cover.CHECKSUM),
    Field("version", 4, "u32", "1", Cover.CHECKSUM),
    Field("blockSize", 4, "u32", "65536", Cover.CHECKSUM),
    Field("firstBlock", 8, "i64", "number of the block of the first digest", Cover.CHECKSUM),
    Field("start", 8, "i64", "bytes of the log from here on are covered", Cover.CHECKSUM),
    Field("end", 8, "i64", "up to here; valid after a clean stop", Cover.CHECKSUM),
    Field("stoppedAt", 8, "i64", "when the log was closed, ms; 0 while it is in use", Cover.CHECKSUM),
    Field("checksum", 8, "u64", "xxh3-64 of the fields before", Cover.CHECKSUM),
    Field("rest", 4040, "bytes", "zeros", Cover.NOTHING),
)
DIGEST_PAGE = (
    Field("digests", 4080, "bytes", "255 digests: xxh3-128 of a block of the log each", Cover.CHECKSUM),
    Field("page", 4, "u32", "number of the page, from 1", Cover.CHECKSUM),
    Field("count", 4, "u32", "digests in it", Cover.CHECKSUM),
    Field("checksum", 8, "u64", "xxh3-64 of the page before", Cover.CHECKSUM),
)
RECOVERY_POINT = (
    Field("magic", 8, "text", "`TWLPOINT`", Cover.CHECKSUM),
    Field("version", 4, "u32", "1", Cover.CHECKSUM),
    Field("reserved", 4, "u32", "0", Cover.CHECKSUM),
    Field("offset", 8, "i64", "all records below are on the disk, in the log and in the queues", Cover.CHECKSUM),
    Field("logStart", 8, "i64", "first byte of the log", Cover.CHECKSUM),
    Field("logFileSize", 8, "i64", "bytes of a file of the log", Cover.CHECKSUM),
    Field("queueFileSize", 8, "i64", "bytes of a consume queue file", Cover.CHECKSUM),
    Field("lastOffset", 8, "i64", "where the newest record below `offset` lies; -1: there is none", Cover.CHECKSUM),
    Field("lastSize", 8, "i64", "its bytes", Cover.CHECKSUM),
    Field("lastDigest", 8, "u64", "its xxh3-64", Cover.CHECKSUM),
    Field("lastStoreTime", 8, "i64", "its store time, ms", Cover.CHECKSUM),
    Field("damagedCount", 4, "u32", "how many ranges follow", Cover.CHECKSUM),
    Field("damaged", "16 x damagedCount", "i64, i64", "start and end of each damaged range of the log", Cover.CHECKSUM),
    Field("queueCount", 4, "u32", "how many queues follow", Cover.CHECKSUM),
    Field("queues", "queues", "see below", "the consume queues at that moment", Cover.CHECKSUM),
    Field("checksum", 8, "u64", "xxh3-64 of all bytes before", Cover.CHECKSUM),
)
QUEUE_STATE = (
    Field("topicSize", 2, "u16", "bytes of the topic", Cover.CHECKSUM),
    Field("topic", "topicSize", "text", "name of the topic", Cover.CHECKSUM),
    Field("queueId", 4, "i32", "queue of the topic", Cover.CHECKSUM),
    Field("minOffset", 8, "i64", "the first message that the log had", Cover.CHECKSUM),
    Field("maxOffset", 8, "i64", "number of the next message", Cover.CHECKSUM),
    Field("maxPhyOffset", 8, "i64", "end of the last message in the log; -1: none", Cover.CHECKSUM),
    Field("fingerprint", 8, "u64", "stands for names and times of the queue's files", Cover.CHECKSUM),
)
INDEX_BEHIND = (
    Field("magic", 8, "text", "`twlgindx`", Cover.CHECKSUM),
    Field("version", 4, "i32", "1", Cover.CHECKSUM),
    Field("offset", 8, "i64", "place in the log from which on the index may lack messages", Cover.CHECKSUM),
    Field("checksum", 8, "u64", "xxh3-64 of all bytes before", Cover.CHECKSUM),
)
CLOCK = (
    Field("magic", 8, "text", "what the file is", Cover.CHECKSUM),
    Field("version", 4, "u32", "1", Cover.CHECKSUM),
    Field("reserved", 4, "u32", "0", Cover.CHECKSUM),
    Field("now", 8, "i64", "the time as far as it is believed, ms", Cover.CHECKSUM),
    Field("checksum", 8, "u64", "xxh3-64 of all bytes before", Cover.CHECKSUM),
)
TRUNCATE = (
    Field("magic", 8, "text", "`TWLTRUNC`", Cover.CHECKSUM),
    Field("version", 4, "u32", "1", Cover.CHECKSUM),
    Field("kind", 4, "u32", "1: the log is cut; 2: it begins anew, empty", Cover.CHECKSUM),
    Field("offset", 8, "i64", "where the log ends from now on; kind 2: where it began", Cover.CHECKSUM),
    Field("oldEnd", 8, "i64", "where it ended before", Cover.CHECKSUM),
    Field("lastStoreTime", 8, "i64", "store time of the newest record that stays, ms; 0: none does", Cover.CHECKSUM),
    Field("when", 8, "i64", "when this was written, ms", Cover.CHECKSUM),
    Field("keptInSize", 2, "u16", "bytes of the name", Cover.CHECKSUM),
    Field("keptIn", "keptInSize", "text", "name of the directory in `divergent/` that has what is cut", Cover.CHECKSUM),
    Field("whySize", 2, "u16", "bytes of the text", Cover.CHECKSUM),
    Field("why", "whySize", "text", "the reason, for people", Cover.CHECKSUM),
    Field("checksum", 8, "u64", "xxh3-64 of all bytes before", Cover.CHECKSUM),
)
REPLICAS = (
    Field("magic", 8, "text", "`TWLREPLI`", Cover.CHECKSUM),
    Field("version", 4, "u32", "1", Cover.CHECKSUM),
    Field("count", 4, "u32", "how many slaves follow", Cover.CHECKSUM),
    Field("slaves", "slaves", "see below", "those that were sent this log and are not given up", Cover.CHECKSUM),
    Field("checksum", 8, "u64", "xxh3-64 of all bytes before", Cover.CHECKSUM),
)
REPLICA = (
    Field("ipSize", 2, "u16", "bytes of the IP", Cover.CHECKSUM),
    Field("ip", "ipSize", "text", "what it is known by", Cover.CHECKSUM),
    Field("offset", 8, "i64", "it acknowledged all bytes of the log below", Cover.CHECKSUM),
    Field("awaySince", 8, "i64", "when it left, or else when this was written, ms", Cover.CHECKSUM),
)
FORMATS = {
    "record-v1": RECORD_V1,
    "record-v2": RECORD_V2,
    "properties": PROPERTIES,
    "blank": BLANK,
    "unit": UNIT,
    "ext-unit": EXT_UNIT,
    "index-header": INDEX_HEADER,
    "index-slot": INDEX_SLOT,
    "index-item": INDEX_ITEM,
    "checkpoint": CHECKPOINT,
    "digest-header": DIGEST_HEADER,
    "digest-page": DIGEST_PAGE,
    "recovery-point": RECOVERY_POINT,
    "queue-state": QUEUE_STATE,
    "index-behind": INDEX_BEHIND,
    "clock": CLOCK,
    "truncate": TRUNCATE,
    "replicas": REPLICAS,
    "replica": REPLICA,
}


@frozen
class Extent:
    """Where a field lies in one record: bytes `start` to `end`."""

    field: Field
    start: int
    end: int


def record_extents(record: bytes) -> list[Extent]:
    """The fields of a record, in order. Raises MessageFormatError."""
    message = decode_message(record)
    sizes = {
        "B": len(message.born_host),
        "H": len(message.store_host),
        "bodyLength": len(message.body),
        "topicLength": len(message.topic.encode()),
        "propertiesLength": len(message.properties_raw),
    }
    extents, at = [], 0
    for field in RECORD_V2 if message.magic == MAGIC_V2 else RECORD_V1:
        size = field.size if isinstance(field.size, int) else sizes[field.size]
        extents.append(Extent(field, at, at + size))
        at += size
    assert at == len(record)
    extents += (Extent(field, at - start, at - end) for field, start, end in _from_the_end(message.properties_raw))
    return extents


def _from_the_end(properties: bytes) -> Iterator[tuple[Field, int, int]]:
    """Where the properties that are somewhere else, too, begin and end, counted backwards from the end: the last of each name."""
    for field in PROPERTIES:
        name = field.name.encode() + b"\x01"
        start = properties.rfind(b"\x02" + name) + 1
        if start or properties.startswith(name):
            end = properties.find(b"\x02", start)
            end = len(properties) if end < 0 else end
            if end > start + len(name):
                yield field, len(properties) - start, len(properties) - end


def covered_bits(record: bytes, *, is_indexed: bool) -> bytes:
    """As many bytes as the record has: the bits in it whose change is noticed without a digest. Raises MessageFormatError."""
    message = decode_message(record)
    transaction = message.sys_flag & TRANSACTION_MASK
    keyed = is_indexed and transaction != TRANSACTION_ROLLBACK and bool(message_keys(message.properties_raw))
    holds = {
        Cover.STRUCTURE: True,
        Cover.CRC: True,
        Cover.QUEUE: transaction not in QUEUELESS,
        Cover.TAGS: transaction not in QUEUELESS and message.topic != SCHEDULE_TOPIC,
        Cover.INDEX: keyed,
    }
    mask = bytearray(len(record))
    for extent in record_extents(record):
        if holds.get(extent.field.cover, False):
            size = extent.end - extent.start
            bits = extent.field.bits & ((1 << 8 * size) - 1)
            for at, byte in enumerate(bits.to_bytes(size), extent.start):
                mask[at] |= byte
    return bytes(mask)
