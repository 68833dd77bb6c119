"""Checks records before they are served: those not read since the start, and all of them after damage was found.

A unit must lead to a sound record that names this message of this queue. Broken records are never served; a unit with a wrong
size or tags code only is corrected.
"""

from collections import deque
from collections.abc import Iterable
from functools import partial

from attrs import define, field
from zlib_ng.zlib_ng import crc32

from twinlog.store.integrity.damage import KnownDamage
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.walk import read_log
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.queue.consume_queue_ext import is_ext_address
from twinlog.store.queue.layout import BLANK_SIZE
from twinlog.store.record.message import (
    ANY_V6,
    FIXED_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_V4,
    SIZE_AND_MAGIC,
)
from twinlog.store.record.multi_dispatch import dispatched_queues
from twinlog.store.record.resync import next_record
from twinlog.store.record.scan import SCHEDULE_TOPIC, DispatchEntry, scan_records, stored_tags_code

_BODY_AT = RECORD_V4.size
_AHEAD_KEPT = 64
_SEARCH_MAX, _WINDOW = 8 << 20, 64 << 10  # Bytes behind a broken record that are searched for the next one.


@define(eq=False)
class ReadCheck:
    """Checks units and the records that they lead to.

    `trusted_from`: from this offset of a queue on, units and records were read since the start, or written since.
    `ahead`: where pulls of late asked the disk to read ahead, see twinlog.store.integrity.pull_check.
    """

    log: CommitLog
    known: KnownDamage
    trusted_from: dict[ConsumeQueue, int] = field(factory=dict, init=False)
    ahead: deque[int] = field(factory=lambda: deque(maxlen=_AHEAD_KEPT), init=False)
    # Of each queue a span below trusted_from, start and end.
    _checked: dict[ConsumeQueue, tuple[int, int]] = field(factory=dict, init=False)
    _topics: dict[str, bytes] = field(factory=dict, init=False)

    def distrust(self, queues: Iterable[ConsumeQueue]) -> None:
        """Check the present messages of these queues, until trust() clears them."""
        self._checked.clear()
        for queue in queues:
            self.trusted_from[queue] = queue.max_offset

    def trust(self, queue: ConsumeQueue, start: int, end: int) -> None:
        """Messages `start` to `end` of the queue are sound: no check for them if none is needed behind them."""
        assert start <= end
        if start < self.trusted_from.get(queue, 0) <= end:
            self.trusted_from[queue] = start

    def distrust_damaged(self, queues: Iterable[ConsumeQueue], start: int, end: int) -> None:
        """Check the queues that have messages in bytes `start` to `end` of the log, up to the last of these."""
        for queue in queues:
            behind = queue.first_behind(end)
            last = queue.last_message(behind)
            if last is not None and last.phy_offset + last.size > start:
                self.distrust_below(queue, behind)

    def distrust_below(self, queue: ConsumeQueue, offset: int) -> None:
        """Check the queue's messages below `offset`."""
        self.trusted_from[queue] = max(self.trusted_from.get(queue, 0), offset)
        self._checked.pop(queue, None)

    def checked(self, queue: ConsumeQueue, start: int, end: int) -> None:
        """Note messages `start` to `end` of the queue as sound. One span of each queue is kept, the latest."""
        low, high = self._checked.get(queue, (start, start))
        self._checked[queue] = (low, max(high, end)) if low <= start <= high else (start, end)

    def checked_end(self, queue: ConsumeQueue, offset: int) -> int:
        """The end of the checked messages from `offset` on; `offset` if there are none, or once damage was found."""
        low, high = self._checked.get(queue, (0, 0))
        return high if low <= offset <= high and not self.known.damaged else offset

    def unit(
        self, queue: ConsumeQueue, queue_offset: int, phy_offset: int, size: int, code: int
    ) -> tuple[int, int] | None:
        """Size and tags code of the message of a unit; None when it must not be served, which is reported.

        A unit of a record that the log no longer has is returned unchanged.
        """
        log = self.log
        if 0 <= phy_offset < log.min_offset or (phy_offset, size, code) == (0, BLANK_SIZE, 0):
            return size, code
        damaged = self.known.damaged
        if damaged and damaged.overlaps(phy_offset, phy_offset + max(size, 1)):
            return None  # Reported before.
        record = self._record_bytes(phy_offset, size)
        if record is not None:
            topic = self.stored_topic(queue.topic)
            own_code = plain_tags_code(record, 0, size, phy_offset, topic, queue.queue_id, queue_offset)
            if own_code is not None and (code == own_code or _stands_for(queue, code, own_code)):
                return size, code
        return self._check_thoroughly(queue, queue_offset, phy_offset, size, code)

    def _record_bytes(self, phy_offset: int, size: int) -> bytes | None:
        """A copy of bytes in one file; None unless they are there, and enough for a record.

        By a system call: a sector that cannot be read raises OSError then, where the map would end the process.
        """
        file = self.log.files.file_at(phy_offset)
        if file is None or size < FIXED_SIZE or phy_offset + size > file.end:
            return None
        try:
            record = file.read(phy_offset - file.start, size)
        except OSError as error:
            self.known.record(phy_offset, phy_offset + size, f"the disk does not read it: {error}")
            return None
        return record if len(record) == size else None

    def stored_topic(self, topic: str) -> bytes:
        """A topic as records have it: its length, its bytes."""
        stored = self._topics.get(topic)
        if stored is None:
            raw = topic.encode()
            stored = self._topics[topic] = bytes((len(raw),)) + raw
        return stored

    def _check_thoroughly(
        self, queue: ConsumeQueue, queue_offset: int, phy_offset: int, size: int, code: int
    ) -> tuple[int, int] | None:
        """Slow path of unit(), for everything but plain, sound records."""
        topic, queue_id = queue.topic, queue.queue_id
        if not 0 <= phy_offset < self.log.max_offset:
            self.known.unit(topic, queue_id, queue_offset, f"it leads to {phy_offset}, where the log has nothing")
            return None
        found = self.record(phy_offset)
        if isinstance(found, str):
            end = self._end_of(phy_offset, queue_id, queue_offset)
            if end is None:  # Nothing here looks like a record: the scrub will find out which of the two is wrong.
                self.known.unit(topic, queue_id, queue_offset, f"no record begins at {phy_offset}, where it leads")
            else:
                self.known.record(phy_offset, end, found)
            return None
        if not _belongs(found, topic, queue_id, queue_offset):
            says = f"message {found.queue_offset} of queue {found.queue_id} of {found.topic} at {phy_offset}"
            self.known.unit(topic, queue_id, queue_offset, f"it leads to {says}")
            return None
        own_code = code if found.topic != topic or _stands_for(queue, code, found.tags_code) else found.tags_code
        if (found.size, own_code) != (size, code):
            says = f"size {size} and tags code {code} instead of {found.size} and {own_code}"
            self.known.unit(topic, queue_id, queue_offset, says, served=True)
        return found.size, own_code

    def record(self, phy_offset: int) -> DispatchEntry | str:
        """The sound record at an offset; a text when there is none."""
        head = self._record_bytes(phy_offset, FIXED_SIZE)
        if head is None:
            return "the log has no such place"
        size, _ = SIZE_AND_MAGIC.unpack_from(head)
        record = self._record_bytes(phy_offset, size)
        if record is None:
            return f"a record of {size} bytes"
        scan = scan_records(record, phy_offset, self.log.file_size, check_crc=True)
        return scan.entries[0] if scan.entries else scan.error or "no record"

    def view(self, phy_offset: int) -> memoryview | None:
        """The stored record at an offset that a client names; None when no sound one begins there."""
        damaged = self.known.damaged
        if damaged and damaged.overlaps(phy_offset, phy_offset + 1):
            return None
        found = self.record(phy_offset)
        if isinstance(found, str):
            end = self._end_of(phy_offset)
            if end is not None:
                self.known.record(phy_offset, end, found)
            return None
        return self.log.read(phy_offset, found.size)

    def _end_of(self, phy_offset: int, queue_id: int = -1, queue_offset: int = -1) -> int | None:
        """The start of the next sound record behind a broken one; None when no broken record begins here.

        A broken record names this offset, or all its other fields fit the unit that leads here. A copy in a body does neither.
        """
        log = self.log
        head = self._record_bytes(phy_offset, FIXED_SIZE)
        if head is None:
            return None
        _, magic, _, says_id, _, says_queue, says, *_ = RECORD_V4.unpack_from(head)
        fits_unit = magic in (MAGIC_V1, MAGIC_V2) and (says_id, says_queue) == (queue_id, queue_offset)
        if magic == MAGIC_BLANK or (says != phy_offset and not fits_unit):
            return None
        file = log.files.file_at(phy_offset)
        assert file is not None
        end = min(file.end, phy_offset + _SEARCH_MAX)
        try:  # By system calls: a sector that cannot be read must raise, not kill.
            behind = next_record(partial(read_log, log), phy_offset + 1, end, log.file_size, window=_WINDOW)
        except OSError:  # An unreadable sector.
            behind = None
        return behind if behind is not None else min(end, phy_offset + FIXED_SIZE)


def plain_tags_code(
    data: bytes, at: int, size: int, phy_offset: int, topic: bytes, queue_id: int, queue_offset: int
) -> int | None:
    """The tags code of the record of `size` bytes at `at`, if it is sound, plain, and this message of this queue.

    None: the slow path decides. `topic` as returned by ReadCheck.stored_topic().
    """
    own_size, magic, crc, says_id, _, says_queue, says, sys_flag, _, _, _, _, _, _, body_size = RECORD_V4.unpack_from(
        data, at
    )
    end, body_at = at + size, at + _BODY_AT
    topic_at = body_at + body_size
    properties_at = topic_at + len(topic) + 2
    if (
        own_size == size
        and magic == MAGIC_V1
        and says == phy_offset
        and says_queue == queue_offset
        and says_id == queue_id
        and not sys_flag & ANY_V6
        and body_size >= 0
        and properties_at <= end
        and properties_at + (data[properties_at - 2] << 8 | data[properties_at - 1]) == end
        and data[topic_at : properties_at - 2] == topic
        and (not body_size or crc32(data[body_at:topic_at]) & 0x7FFFFFFF == crc)
    ):
        return stored_tags_code(data, properties_at, end)
    return None


def _belongs(entry: DispatchEntry, topic: str, queue_id: int, queue_offset: int) -> bool:
    """True when a record is this message of this queue: its own queue, or one of its further queues (multi dispatch)."""
    if entry.topic == topic:
        return entry.queue_id == queue_id and entry.queue_offset == queue_offset
    return (topic, queue_id, queue_offset) in dispatched_queues(entry)


def _stands_for(queue: ConsumeQueue, code: int, own_code: int) -> bool:
    """True for valid tags codes that are not the message's own hash: delivery times, and addresses in the queue's extension."""
    if queue.topic == SCHEDULE_TOPIC:
        return True
    if queue.ext is None or not is_ext_address(code):
        return False
    return queue.ext.tags_code(code) in (own_code, None)  # None: unreadable there, so there is nothing better.
