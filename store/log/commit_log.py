"""The commit log: all messages of all topics, one after the other, in files of one size.

Source: CommitLog, RocketMQ 4.9.8. Encoding happens here, into one buffer per batch, because this is the path that every message
takes: no object and no system call per message.
"""

import errno
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from attrs import define, field
from zlib_ng.zlib_ng import crc32

from twinlog.store.errors import LogFileError
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.log.transient_store_pool import UncommittedEnd
from twinlog.store.log.unverified_tail import LogTail
from twinlog.store.record.message import (
    BORN_HOST_V6,
    END_OF_FILE_RESERVE,
    FIXED_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    QUEUELESS,
    RECORD_V4,
    SIZE_AND_MAGIC,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    Message,
    body_crc,
    encode_message,
)
from twinlog.store.record.scan import SCHEDULE_TOPIC, DispatchEntry, delivery_time

_I16 = Struct(">h")
TOPIC_SIZE_MAX = 127  # In a record of version 1: RocketMQ reads a signed byte.


class PutMessage(NamedTuple):
    """A message to be put. `properties` is what is stored, `tags_code` what its consume queue unit shows.

    A unit of the schedule topic shows the delivery time, which follows from the properties and the store time.
    """

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    tags_code: int = 0


class PutResult(NamedTuple):
    """The place of a message: bytes `phy_offset` to `end_offset` of the log, message `queue_offset` of its queue."""

    status: PutStatus
    phy_offset: int = -1
    size: int = 0
    queue_offset: int = -1
    store_timestamp: int = 0

    @property
    def end_offset(self) -> int:
        """The first byte behind the record."""
        return self.phy_offset + self.size


class FileChunk(NamedTuple):
    """Bytes in one file, for sendfile: `size` of them from `position` of the file behind `fd`; an await may close it."""

    fd: int
    position: int
    size: int


@define(eq=False)
class CommitLog:
    """The files, the end of the log, and the next queue offset of each queue."""

    files: MappedFileQueue
    delays_ms: tuple[int, ...] = ()  # Of levels 1, 2, ...
    next_queue_offsets: dict[tuple[str, int], int] = field(factory=dict, init=False)
    spare: MappedFile | None = field(default=None, init=False)  # A file made ahead; lies outside the log's directory.
    dispatched_offset: int = field(default=0, init=False)  # All records below are in the queues.
    takes_spares: bool = field(default=True, init=False)  # True while such a file can be moved in.
    tail: LogTail | None = field(default=None, init=False)  # A slave's: received, and not verified yet.
    ahead: list[MappedFile] = field(factory=list, init=False)  # The tail's files; outside the log's directory, too.
    pending: UncommittedEnd | None = field(default=None, init=False)  # Takes appended bytes, when buffers are used.
    _topics: dict[str, bytes] = field(factory=dict, init=False)

    @property
    def file_size(self) -> int:
        """Bytes of one file."""
        return self.files.file_size

    @property
    def makes_files_ahead(self) -> bool:
        """True when a file can be made ahead; of several directories the next file's may be on another disk."""
        return self.takes_spares and not self.files.others

    @property
    def min_offset(self) -> int:
        """The first byte of the log that is still there."""
        return self.files.min_offset

    @property
    def max_offset(self) -> int:
        """The end of the log: where the next byte goes."""
        return self.files.max_offset

    def append(
        self, messages: Sequence[PutMessage], store_timestamp: int, *, together: bool = False
    ) -> tuple[list[PutResult], list[DispatchEntry]]:
        """Write the messages at the end of the log, with one system call per file that they reach.

        `together`: into one file, if one is large enough, as RocketMQ does with a batch request.
        Raises NoBufferError, LogFileError (no next file) or another OSError; nothing is written then. After an OSError call
        clear_torn_end() before the next append.
        """
        results: list[PutResult] = []
        entries: list[DispatchEntry] = []
        offsets: dict[tuple[str, int], int] = {}
        pieces: list[bytes | memoryview] = []
        parts: list[bytes | memoryview] = []  # The bytes for each file.
        topics, new, pack_record, pack_size = self._topics, tuple.__new__, RECORD_V4.pack, _I16.pack
        file_size, pending = self.files.file_size, self.pending
        begin = self.files.max_offset if pending is None else pending.end
        at, room = begin % file_size, file_size - END_OF_FILE_RESERVE
        start = begin - at  # Of the file; `at` counts from there.
        if together and at and at + (total := sum(map(self._record_size, messages))) > room >= total:
            parts.append(SIZE_AND_MAGIC.pack(file_size - at, MAGIC_BLANK))
            start, at = start + file_size, 0
        for message in messages:
            (topic, queue_id, body, properties, flag, sys_flag, born_timestamp, born_host, store_host,
             reconsume_times, prepared_offset, code) = message  # fmt: skip
            topic_part = topics.get(topic) or self._topic_part(topic)
            body_size, properties_size = len(body), len(properties)
            size = FIXED_SIZE - 1 + body_size + len(topic_part) + properties_size
            sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
            if len(born_host) != 8 or len(store_host) != 8:
                size += len(born_host) + len(store_host) - 16
                sys_flag |= (len(born_host) == 20) * BORN_HOST_V6 | (len(store_host) == 20) * STORE_HOST_V6
            if at + size > room:
                pieces.append(SIZE_AND_MAGIC.pack(file_size - at, MAGIC_BLANK))
                parts.append(b"".join(pieces))
                pieces.clear()
                start, at = start + file_size, 0
            phy_offset = start + at
            key = (topic, queue_id)
            queue_offset = offsets[key] if key in offsets else self.next_queue_offsets.get(key, 0)
            if sys_flag & TRANSACTION_MASK in QUEUELESS:
                queue_offset = 0
            else:
                offsets[key] = queue_offset + 1
            if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
                pieces.append(_encode_ipv6(message, sys_flag, queue_offset, phy_offset, store_timestamp))
            else:
                pieces.append(pack_record(
                    size, MAGIC_V1, crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset, phy_offset, sys_flag,
                    born_timestamp, born_host, store_timestamp, store_host, reconsume_times, prepared_offset, body_size,
                ))  # fmt: skip
                pieces += (body, topic_part, pack_size(properties_size), properties)
            if topic == SCHEDULE_TOPIC:
                code = delivery_time(properties, store_timestamp, self.delays_ms, code)
            # tuple's own constructor takes half the time of the generated one.
            results.append(new(PutResult, (PutStatus.PUT_OK, phy_offset, size, queue_offset, store_timestamp)))
            entry = (topic, queue_id, queue_offset, phy_offset, size, code, store_timestamp, sys_flag, properties)
            entries.append(new(DispatchEntry, entry))
            at += size
        parts.append(b"".join(pieces))
        if pending is None:
            self.write_now(parts)
        else:
            pending.write(parts)
        end = self.files.max_offset if pending is None else pending.end
        assert begin <= end == start + at, f"the log ends at {end} after an append from {begin} to {start + at}"
        self.next_queue_offsets.update(offsets)
        return results, entries

    def fits(self, message: PutMessage) -> bool:
        """True when a file is large enough for the record of this message."""
        return self._record_size(message) + END_OF_FILE_RESERVE <= self.file_size

    def _record_size(self, message: PutMessage) -> int:
        hosts = len(message.born_host) + len(message.store_host) - 16
        return FIXED_SIZE + hosts + len(message.body) + len(message.topic.encode()) + len(message.properties)

    def _topic_part(self, topic: str) -> bytes:
        part = self._topics.get(topic)
        if part is None:
            raw = topic.encode()
            assert len(raw) <= TOPIC_SIZE_MAX, "the name was checked before"
            part = self._topics[topic] = bytes([len(raw)]) + raw
        return part

    def _file_to_append(self) -> MappedFile:
        if self.files.files and self.files.files[-1].wrote < self.file_size:
            return self.files.files[-1]
        return self._next_file(self.max_offset)

    def _next_file(self, start: int) -> MappedFile:
        try:
            if self.tail is not None:
                return self._move_in(start)
            if self.spare is not None:
                try:
                    self.files.adopt(self.spare, start)
                except OSError as error:
                    if error.errno != errno.EXDEV:
                        raise
                    self.takes_spares = False  # commitlog/ is on another disk than the directory beside it.
                    self.spare.delete()
                else:
                    file, self.spare = self.spare, None
                    return file
                self.spare = None
            return self.files.create(start)
        except OSError as error:
            raise LogFileError(error.errno, error.strerror, str(self.files.path_of(start))) from error

    def _move_in(self, start: int) -> MappedFile:
        file = self.ahead[0]
        assert file.start == start
        try:
            self.files.adopt(file, start)
        except OSError as error:
            self.takes_spares = self.takes_spares and error.errno != errno.EXDEV
            raise
        return self.ahead.pop(0)

    def write_now(self, parts: Sequence[bytes | memoryview]) -> None:
        """Write at the log's end, each part into a file of its own: all of them or, when the disk refuses one, none."""
        end = self.files.max_offset
        file = None
        try:
            for part in parts:
                if file is not None:  # The rest of it is a blank, of which only the head is written.
                    file.torn_end, file.wrote = file.wrote, file.size
                file = self._file_to_append()
                file.append(part)
        except OSError:
            self._take_back(end)
            raise

    def _take_back(self, end: int) -> None:
        """Move the end of the log back to `end`. Raises an OSError that is not retried when a new file cannot be removed."""
        try:
            self.files.rewind(end)
        except OSError as error:
            raise OSError(errno.EIO, f"a new file of the log cannot be removed: {error}") from error
        with suppress(OSError):
            self.clear_torn_end()

    def clear_torn_end(self) -> None:
        """Zero the bytes that a refused write left behind the end. Raises OSError while the disk refuses.

        To be called before the next append: a crash could otherwise find the rest of an old record behind a new, shorter one,
        and take it for a message.
        """
        if self.files.files and self.files.files[-1].wrote < self.file_size and self.tail is None:
            file = self.files.files[-1]
            file.clear_torn_end()
            file.write_at(file.wrote, b"\0")  # A test of the disk: this byte is zero already.
            file.torn_end = 0

    def append_raw(self, data: bytes | memoryview) -> None:
        """Write replicated bytes at the end of the log; they may cross the end of a file. Raises OSError as append() does."""
        assert self.tail is None, "unverified bytes lie behind the end"
        begin = self.max_offset
        room = self.file_size - begin % self.file_size
        if len(data) <= room:
            self.write_now([data])
        else:
            rest = range(room, len(data), self.file_size)
            self.write_now([data[:room], *(data[at : at + self.file_size] for at in rest)])
        assert self.max_offset == begin + len(data)

    def take_of_tail(self, size: int) -> None:
        """Make the first bytes of the tail, which lie in one file, a part of the log. Raises OSError as append() does."""
        assert self.tail is not None
        assert size <= self.tail.size
        file = self._file_to_append()
        assert file.wrote + size <= file.size
        file.wrote += size
        assert self.max_offset <= self.tail.end

    async def tail_ended(self) -> None:
        """Ask the verification behind the log's end to stop, and wait until no unverified bytes are left."""
        while self.tail is not None:
            self.tail.is_unwanted = True
            await self.tail.ended.wait()

    def start_at(self, phy_offset: int) -> None:
        """Start an empty log at the start of a file other than the first. Raises OSError."""
        assert not self.files.files
        if phy_offset:
            self.files.create(phy_offset)

    def chunk(self, offset: int, size_max: int) -> FileChunk | None:
        """A sendable part of one file from `offset` on; None at the end of the log and outside of it."""
        file = self.files.file_at(offset)
        if file is None:
            return None
        size = min(file.end - offset, size_max)
        return FileChunk(file.fd, offset - file.start, size) if size > 0 else None

    def read(self, offset: int, size: int) -> memoryview | None:
        """The bytes at `offset` without a copy; None unless all of them are in the log, and in one file."""
        file = self.files.file_at(offset)
        if file is None or offset < file.start or offset + size > file.end:
            return None
        return file.view(offset - file.start, size)

    def close(self) -> None:
        """Close the files; one that was made ahead is deleted."""
        if self.spare is not None:
            self.spare.delete()
            self.spare = None
        while self.ahead:
            self.ahead.pop().delete()
        self.files.close()


def _encode_ipv6(message: PutMessage, sys_flag: int, queue_offset: int, phy_offset: int, store_timestamp: int) -> bytes:
    return encode_message(
        Message(
            topic=message.topic,
            queue_id=message.queue_id,
            body=bytes(message.body),
            properties_raw=message.properties,
            flag=message.flag,
            sys_flag=sys_flag,
            queue_offset=queue_offset,
            phy_offset=phy_offset,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=store_timestamp,
            store_host=message.store_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            body_crc=body_crc(message.body),
        )
    )
