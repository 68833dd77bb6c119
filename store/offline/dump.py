"""Messages of a log as text and JSON, selected by topic, queue, offset, time or key."""

from base64 import b64encode
from collections.abc import Iterable, Iterator

from attrs import frozen

from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.finding import doc
from twinlog.store.offline.walk import Gap, stored_ms, walk_log
from twinlog.store.record.compression import CompressionError, compression_of, decompress
from twinlog.store.record.keys import message_keys
from twinlog.store.record.message import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Message,
    decode_message,
    host_text,
)
from twinlog.store.record.properties import KEYS, TAGS, UNIQ_KEY
from twinlog.store.record.resync import entry_at, next_record
from twinlog.store.record.scan import DispatchEntry

_TRANSACTIONS = {TRANSACTION_PREPARED: "prepared", TRANSACTION_COMMIT: "commit", TRANSACTION_ROLLBACK: "rollback"}
_BODY_MAX = 256 << 20  # A few bytes may decompress to any number.


@frozen(kw_only=True)
class DumpedMessage:
    """One message of a log."""

    phy_offset: int = doc("where its record begins, bytes of the log")
    size: int = doc("of its record, bytes")
    topic: str
    queue_id: int
    queue_offset: int
    stored_ms: int
    store_host: str
    born_ms: int
    born_host: str
    offset_message_id: str
    message_id: str | None = doc("the client's own: UNIQ_KEY")
    tags: str | None
    keys: str | None
    properties: dict[str, str] = doc("all of them")
    flag: int
    sys_flag: int
    transaction: str | None = doc("prepared, commit or rollback")
    reconsume_times: int
    prepared_transaction_offset: int
    body_size: int = doc("as it is stored")
    body_crc: int
    compression: str | None = doc("zlib, lz4 or zstd, of the stored body; unknown for another")
    body: str | None = doc("where asked for, and UTF-8; decompressed")
    body_base64: str | None = doc("where asked for, and not UTF-8; decompressed unless there is a body_problem")
    body_problem: str | None = doc("why the body is given as it is stored, although it is compressed")


@frozen(kw_only=True)
class Selection:
    """A selection of messages. None and empty: all. `to_offset`, `to_ms` are exclusive."""

    topics: frozenset[str] = frozenset()
    queue_ids: frozenset[int] = frozenset()
    from_offset: int | None = None
    to_offset: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    key: str | None = None  # One of its KEYS, or its UNIQ_KEY.

    def takes(self, entry: DispatchEntry) -> bool:
        """True when this message is selected."""
        return (
            (not self.topics or entry.topic in self.topics)
            and (not self.queue_ids or entry.queue_id in self.queue_ids)
            and (self.from_offset is None or entry.phy_offset >= self.from_offset)
            and (self.to_offset is None or entry.phy_offset < self.to_offset)
            and (self.from_ms is None or entry.store_timestamp >= self.from_ms)
            and (self.to_ms is None or entry.store_timestamp < self.to_ms)
            and (self.key is None or self.key.encode() in message_keys(entry.properties))
        )


def dump(
    log: FileSeries, selection: Selection, *, with_body: bool = False, may_grow: bool = False, after_crash: bool = False
) -> Iterator[DumpedMessage | Gap]:
    """Selected messages in the order of the log, and the damage between them. Raises OSError.

    `may_grow`, `after_crash`: as walk().
    """
    start = _start(log, selection)
    if start is None:
        return
    for piece in walk_log(log, start=start, may_grow=may_grow, after_crash=after_crash):
        if selection.to_offset is not None and piece.start >= selection.to_offset:
            return
        if isinstance(piece, Gap):
            yield piece
            continue
        if _is_late(log, selection, piece.start):
            return
        for entry in piece.entries:
            if selection.takes(entry):
                yield described(
                    decode_message(piece.data, entry.phy_offset - piece.start, check_crc=False), with_body=with_body
                )


def dump_at(
    log: FileSeries, offsets: Iterable[int], selection: Selection, *, with_body: bool = False
) -> Iterator[DumpedMessage]:
    """The sound, selected messages at these offsets. Raises OSError."""
    for offset in offsets:
        entry = entry_at(log.read, offset, log.file_size, check_crc=True)
        if entry is not None and selection.takes(entry):
            yield described(decode_message(log.read(offset, entry.size), check_crc=False), with_body=with_body)


def _start(log: FileSeries, selection: Selection) -> int | None:
    """The start of the first record to read; None when there is none."""
    start = log.min_offset
    if selection.from_ms is not None:
        for file in log.files:
            first = stored_ms(log, file.start)
            if first is not None and first <= selection.from_ms:
                start = file.start
    if selection.from_offset is not None and selection.from_offset > start:
        return next_record(log.read, selection.from_offset, log.end, log.file_size)
    return start


def _is_late(log: FileSeries, selection: Selection, offset: int) -> bool:
    """True when a file begins here with a message that is too new: clocks may go back, but not for the length of a file."""
    if selection.to_ms is None or offset % log.file_size:
        return False
    first = stored_ms(log, offset)
    return first is not None and first >= selection.to_ms


def described(message: Message, *, with_body: bool = False) -> DumpedMessage:
    """A message for people."""
    properties = message.properties
    text, raw, problem = body_of(message) if with_body else (None, None, None)
    return DumpedMessage(
        phy_offset=message.phy_offset,
        size=message.size,
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        stored_ms=message.store_timestamp,
        store_host=host_text(message.store_host),
        born_ms=message.born_timestamp,
        born_host=host_text(message.born_host),
        offset_message_id=message.message_id,
        message_id=properties.get(UNIQ_KEY),
        tags=properties.get(TAGS),
        keys=properties.get(KEYS),
        properties=properties,
        flag=message.flag,
        sys_flag=message.sys_flag,
        transaction=_TRANSACTIONS.get(message.sys_flag & TRANSACTION_MASK),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        body_size=len(message.body),
        body_crc=message.body_crc,
        compression=compression_of(message.sys_flag),
        body=text,
        body_base64=None if raw is None else b64encode(raw).decode(),
        body_problem=problem,
    )


def body_of(message: Message) -> tuple[str | None, bytes | None, str | None]:
    """The body as text, else as bytes; and the reason where it is compressed and returned as stored."""
    try:
        body = decompress(message.body, message.sys_flag, size_max=_BODY_MAX)
    except CompressionError as error:
        return None, message.body, str(error)
    try:
        return body.decode(), None, None
    except UnicodeDecodeError:
        return None, body, None
