"""Scans the records in a stretch of log all at once, with numpy, for much that arrives together. No I/O.

The result is that of scan_records, byte for byte. One plain loop finds the starts of records; then each check is made for all
records together, and the CRC of each body. Records that are not plain, or not sound, go to scan_records, one by one.
"""

from array import array
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray
from zlib_ng.zlib_ng import crc32

from twinlog.store.record.columns import Columns, Ints, KeyColumns, Words, rows, tail_masks, word_rows
from twinlog.store.record.heads import whole_records
from twinlog.store.record.keys import keys_of
from twinlog.store.record.message import (
    ANY_V6,
    FIXED_SIZE,
    MAGIC_V1,
    RECORD_V4,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
)
from twinlog.store.record.multi_dispatch import MULTI_DISPATCHED
from twinlog.store.record.property_columns import PropertyReader, prefix_hashes
from twinlog.store.record.scan import SCHEDULE_TOPIC, DispatchEntry, scan_records, topic_name

Bools = NDArray[np.bool_]
_HEAD = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">i4"),
        ("crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("phy_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born", "V16"),
        ("store_timestamp", ">i8"),
        ("store_host", "V8"),
        ("reconsume", "V12"),
        ("body_size", ">i4"),
    ]
)
_HEAD_SIZE = RECORD_V4.size
assert _HEAD.itemsize == _HEAD_SIZE
_RUNS_MAX = 256  # Of records of one topic: so few are quicker told apart by a loop than by sorting all records.
_BODIES_AT_ONCE, _COPIED_MAX = 64, 2048  # Larger bodies take longer to copy than to slice.
_MIX = np.uint64(0x9E3779B97F4A7C15)


@frozen
class ColumnScan:
    """The outcome; see twinlog.store.record.scan.Scan."""

    consumed: int
    entries: Columns
    error: str | None = None
    needed: int = 0
    has_more_queues: bool = (
        False  # One of the messages may lie in further queues: its entry is needed then, not columns.
    )


def scan_columns(
    data: bytes | bytearray | memoryview,
    phy_offset: int,
    file_size: int,
    *,
    check_crc: bool,
    delays_ms: tuple[int, ...] = (),
    hashes: bool = True,
) -> ColumnScan:
    """Walk the records in `data`, whose first byte lies at `phy_offset` of a log with files of `file_size` bytes.

    Nothing of the outcome refers to `data`, which is not copied. Without `hashes` it has no keys, and tags codes are void.
    """
    view = memoryview(data).toreadonly()
    starts, end = whole_records(view, phy_offset, file_size)
    stretch = _Stretch(view, phy_offset, file_size, check_crc, delays_ms, hashes)
    columns, bad = stretch.read(starts)
    at = end if bad is None else bad
    rest = scan_records(view[at:], phy_offset + at, file_size, check_crc=check_crc, delays_ms=delays_ms)
    assert not rest.consumed, "what is sound was walked over"
    return ColumnScan(at, columns, rest.error, rest.needed, stretch.has_more_queues)


@define(eq=False)
class _Stretch:
    """Whole records in `data`, of which read() finds the sound ones."""

    data: memoryview
    phy_offset: int
    file_size: int
    check_crc: bool
    delays_ms: tuple[int, ...]
    hashes: bool
    topics: list[str] = field(factory=list, init=False)
    has_more_queues: bool = field(default=False, init=False)
    _numbers: dict[str, int] = field(factory=dict, init=False)

    def read(self, starts: Ints) -> tuple[Columns, int | None]:
        """The records before the first that is not sound, and the start of that one; None when all are sound."""
        heads = rows(self.data, _HEAD_SIZE, starts).view(_HEAD) if len(starts) else np.zeros(0, _HEAD)
        sizes = heads["size"].astype(np.int64)
        topic_at, properties_at, is_plain = self._fields_add_up(starts, sizes, heads)
        topic = np.full(len(starts), -1)
        self._read_topics(topic, topic_at, properties_at - 2, np.flatnonzero(is_plain))
        is_plain &= topic >= 0
        if self.check_crc:
            self._check_bodies(starts + _HEAD_SIZE, topic_at - 1, heads["crc"], is_plain)
        odd, bad = self._read_odd(starts, sizes, np.flatnonzero(~is_plain))
        count = len(starts) if bad is None else bad
        columns = self._columns(heads[:count], starts[:count] + self.phy_offset, sizes[:count], topic[:count])
        begins, ends = properties_at[:count], (starts + sizes)[:count]
        hashed = np.flatnonzero(is_plain[:count]) if self.hashes else np.zeros(0, np.int64)
        columns = self._with_properties(columns, begins, ends, hashed, odd)
        return columns, None if bad is None else int(starts[bad])

    def _fields_add_up(self, starts: Ints, sizes: Ints, heads: Any) -> tuple[Ints, Ints, Bools]:
        """The starts of topics and properties, and True for records that are plain by their fields; others' starts are void."""
        octets, ends = np.frombuffer(self.data, np.uint8), starts + sizes
        body_sizes = heads["body_size"].astype(np.int64)
        is_plain = (
            (heads["magic"] == MAGIC_V1)
            & (heads["sys_flag"] & ANY_V6 == 0)
            & (body_sizes >= 0)
            & (body_sizes <= sizes - FIXED_SIZE)
            & (heads["phy_offset"] == starts + self.phy_offset)
        )
        body_ends = starts + _HEAD_SIZE + np.where(is_plain, body_sizes, 0)
        properties_at = body_ends + 3 + octets[body_ends]
        is_plain &= properties_at <= ends
        properties_at = np.where(is_plain, properties_at, starts + 2)
        properties_sizes = octets[properties_at - 2].astype(np.int64) << 8 | octets[properties_at - 1]
        is_plain &= properties_at + properties_sizes == ends
        return body_ends + 1, properties_at, is_plain

    def _read_topics(self, topic: Ints, begins: Ints, ends: Ints, plain: Ints) -> None:
        """Number the topics from `begins` to `ends` of the records in `plain`; -1 stays for topics that are not plain."""
        if len(plain) < len(topic):
            begins, ends = begins[plain], ends[plain]
        sizes = ends - begins
        is_long = sizes > _HEAD_SIZE  # More bytes than lie before the first.
        if is_long.any():
            for at in np.flatnonzero(is_long).tolist():
                topic[plain[at]] = self._topic_number(bytes(self.data[begins[at] : ends[at]]))
            plain, begins, ends, sizes = (column[~is_long] for column in (plain, begins, ends, sizes))
        if not len(plain):
            return
        words = word_rows(self.data, max(1, -(-int(sizes.max()) // 8)), ends)
        words &= tail_masks(words.shape[1])[sizes]
        mixed = sizes.astype(np.uint64)
        for number in range(words.shape[1]):
            mixed = (mixed ^ words[:, number]) * _MIX
        firsts, groups = _alike(mixed)
        numbers = [self._topic_number(bytes(self.data[begins[at] : ends[at]])) for at in firsts.tolist()]
        topic[plain] = np.array(numbers)[groups]
        first = firsts[groups]
        alike = sizes == sizes[first]
        for number in range(words.shape[1]):
            alike &= words[:, number] == words[first, number]
        for at in np.flatnonzero(~alike).tolist():  # Two topics that are mixed to one number: next to never.
            topic[plain[at]] = self._topic_number(bytes(self.data[begins[at] : ends[at]]))

    def _topic_number(self, raw: bytes) -> int:
        try:
            name = topic_name(raw)
        except ValueError:
            return -1
        return self._number(name) if name != SCHEDULE_TOPIC else -1

    def _number(self, topic: str) -> int:
        number = self._numbers.setdefault(topic, len(self.topics))
        if number == len(self.topics):
            self.topics.append(topic)
        return number

    def _check_bodies(self, begins: Ints, ends: Ints, crcs: Any, is_plain: Bools) -> None:
        """Clear `is_plain` where a body does not match its CRC."""
        data, done = self.data, 0
        found: list[int] = []
        if (struct := _one_layout(begins, ends, is_plain)) is not None:
            begin = int(begins[0])
            # What lies between the last body and the next one may end with the data.
            groups = min(len(begins) // _BODIES_AT_ONCE, (len(data) - begin) // struct.size)
            done = groups * _BODIES_AT_ONCE
            laid_out = data[begin : begin + groups * struct.size]
            found += map(crc32, chain.from_iterable(struct.iter_unpack(laid_out)))
        rest = is_plain[done:]
        pairs = zip(np.where(rest, begins[done:], 0).tolist(), np.where(rest, ends[done:], 0).tolist(), strict=True)
        found += [crc32(data[begin:end]) for begin, end in pairs]
        # An array of the standard library takes integers from a list in half of numpy's time.
        is_plain &= (np.frombuffer(array("I", found), np.uint32) & np.uint32(0x7FFFFFFF) == crcs) | (begins == ends)

    def _read_odd(self, starts: Ints, sizes: Ints, odd: Ints) -> tuple[dict[int, DispatchEntry], int | None]:
        """The entries of records that are not plain, by their numbers, and the first that is not sound."""
        entries: dict[int, DispatchEntry] = {}
        for number in odd.tolist():
            start = int(starts[number])
            record = self.data[start : start + int(sizes[number])]
            scan = scan_records(
                record, self.phy_offset + start, self.file_size, check_crc=self.check_crc, delays_ms=self.delays_ms
            )
            if not scan.entries:
                return entries, number
            entries[number] = scan.entries[0]
        return entries, None

    def _columns(self, heads: Any, phy_offset: Ints, sizes: Ints, topic: Ints) -> Columns:
        """The columns of the heads' fields."""

        def integers(name: str) -> Ints:
            column: Ints = heads[name].astype(np.int64)
            return column

        none = np.zeros(0, np.int64)
        return Columns(
            self.topics,
            topic,
            integers("queue_id"),
            integers("queue_offset"),
            phy_offset,
            sizes,
            np.zeros(len(sizes), np.int64),
            integers("store_timestamp"),
            integers("sys_flag"),
            KeyColumns(none, none, none),
        )

    def _with_properties(
        self, columns: Columns, begins: Ints, ends: Ints, plain: Ints, odd: dict[int, DispatchEntry]
    ) -> Columns:
        """The same columns with tags codes and keys, and with the fields of odd records."""
        indexed = columns.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
        chosen = slice(None) if len(plain) == len(columns) else plain  # All of them need no copies.
        prefixes = prefix_hashes(self.topics)[columns.topic[chosen]] if len(plain) else np.zeros(0, np.uint64)
        reader = PropertyReader(self.data, begins[chosen], ends[chosen], prefixes, indexed[chosen])
        reader.read()
        self.has_more_queues = reader.has_more_queues
        columns.tags_code[chosen] = reader.tags_codes
        hashes, records = reader.keys()
        if len(plain) < len(columns):
            records = plain[records]
        if odd:
            hashes, records = self._add_odd(columns, odd, [hashes], [records])
        keys = KeyColumns(hashes, columns.phy_offset[records], columns.store_timestamp[records])
        return evolve(columns, keys=keys)

    def _add_odd(
        self, columns: Columns, odd: dict[int, DispatchEntry], hashes: list[Ints], records: list[Ints]
    ) -> tuple[Ints, Ints]:
        for number, entry in odd.items():
            columns.topic[number] = self._number(entry.topic)
            columns.queue_id[number] = entry.queue_id
            columns.queue_offset[number] = entry.queue_offset
            columns.tags_code[number] = entry.tags_code
            columns.store_timestamp[number] = entry.store_timestamp
            columns.sys_flag[number] = entry.sys_flag
            self.has_more_queues |= MULTI_DISPATCHED in entry.properties
            found = keys_of([entry]).hashes
            hashes.append(np.array(found, np.int64))
            records.append(np.full(len(found), number))
        numbers = np.concatenate(records)
        order = np.argsort(numbers, kind="stable")
        return np.concatenate(hashes)[order], numbers[order]


def _alike(values: Words) -> tuple[Ints, Ints]:
    """The first places of different values, and for each place the number of its value among these."""
    begins = np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)
    if len(begins) > _RUNS_MAX:
        _, firsts, groups = np.unique(values, return_index=True, return_inverse=True)
        return firsts, groups
    numbers: dict[int, int] = {}
    found, of_runs = list[int](), list[int]()
    for begin, value in zip(begins.tolist(), values[begins].tolist(), strict=True):
        if value not in numbers:
            numbers[value] = len(numbers)
            found.append(begin)
        of_runs.append(numbers[value])
    return np.array(found), np.repeat(of_runs, np.diff(begins, append=len(values)))


def _one_layout(begins: Ints, ends: Ints, is_plain: Bools) -> Struct | None:
    """Some bodies and what lies between them, where all are of one size at one distance: so they are cut out in C."""
    if len(begins) <= _BODIES_AT_ONCE or not is_plain.all():
        return None
    size, step = int(ends[0] - begins[0]), int(begins[1] - begins[0])
    if not 0 < size <= _COPIED_MAX or (ends - begins != size).any() or (begins[1:] - begins[:-1] != step).any():
        return None
    return _bodies_struct(size, step - size)


@lru_cache(maxsize=256)
def _bodies_struct(size: int, between: int) -> Struct:
    return Struct(f"{size}s{between}x" * _BODIES_AT_ONCE)
