"""The items of a store's index files in the order in which they were put, and their comparison with the records of the log.

Brokers index record by record, so items and records lie in one order and can be compared side by side, a window at a time.
An item that is out of order, for whatever reason, is a stray, to be looked at on its own.
"""

from collections.abc import Sequence
from typing import NamedTuple

from attrs import define, evolve, field, frozen

from store.index_keys import keys_of
from store.index_layout import HEADER, ITEM, SLOT, IndexHeader, IndexLayout
from store.offline.directory import StoreDirectory
from store.offline.file_series import FileReader, StoreFile
from store.offline.finding import Finding, Kind, Severity
from store.offline.findings import Findings
from store.offline.walk import Gap, Window

_ITEMS_AT_ONCE = 4096
_LOOK_AROUND = 4  # Items beside a boundary that are looked at, in case that one of them is damaged.
_SECONDS_MAX = 0x7FFFFFFF
_SEARCHED_SLOTS_MAX = 2_000_000


class Stray(NamedTuple):
    """Item `number` of index file `file` does not belong to the record that it should, or to none where it stands."""

    file: int
    number: int
    key_hash: int
    phy_offset: int
    seconds: int


@frozen
class IndexView:
    """An index file; `previous_end` is the end time of the one before it, if there is one."""

    file: StoreFile
    reader: FileReader
    layout: IndexLayout
    header: IndexHeader
    previous_end: int | None = None

    @property
    def end(self) -> int:
        """The number of the item behind the last one."""
        return max(1, min(self.header.next_item, self.layout.items))

    @property
    def first_phy_offset(self) -> int:
        """Where the record of the first item lies; header and item should say the same."""
        return max(self.header.begin_phy_offset, self.phy_offset(1))

    def items_at(self, number: int, count: int) -> bytes:
        """Items from `number` on, raw, at most to the last one. Raises OSError."""
        size = max(0, min(count, self.end - number)) * ITEM.size
        raw = self.reader.read(self.file.path, self.layout.item_position(number), size)
        return raw.ljust(size, b"\0")  # Of a file that was cut.

    def phy_offset(self, number: int) -> int:
        """Where the record of an item lies."""
        phy_offset: int = ITEM.unpack(self.items_at(number, 1))[1]
        return phy_offset

    def seconds(self, number: int, timestamp: int) -> tuple[int, ...]:
        """The time difference that the item of a record stored at `timestamp`, ms, should show; any of these; () for unknown."""
        if number > 1:
            return (_seconds(timestamp, self.header.begin_timestamp),)
        return (0, _seconds(timestamp, self.previous_end)) if self.previous_end is not None else ()


def _seconds(timestamp: int, begin: int) -> int:
    """Source: IndexFile.putKey, RocketMQ 4.9.8."""
    return min(max(0, (timestamp - begin) // 1000), _SECONDS_MAX) if begin > 0 else 0


def open_index(directory: StoreDirectory) -> tuple[IndexView, ...]:
    """The index files, oldest first. Raises OSError."""
    views: list[IndexView] = []
    if not directory.index_files:
        return ()
    layout = find_layout(directory)
    for file in directory.index_files:
        header = IndexHeader.unpack(directory.reader.read(file.path, 0, HEADER.size).ljust(HEADER.size, b"\0"))
        previous_end = views[-1].header.end_timestamp if views else None
        views.append(IndexView(file, directory.reader, layout, header, previous_end))
    return tuple(views)


def find_layout(directory: StoreDirectory) -> IndexLayout:
    """How many slots and items: told, or four items to a slot as by default, or whatever agrees with the first items."""
    room = directory.index_file_size - HEADER.size
    told = directory.options.index_slots
    guess = _with_slots(room, told or max(1, room // (SLOT.size + 4 * ITEM.size)))
    file = directory.index_files[0]
    is_default = guess.items == 4 * guess.slots and guess.file_size == directory.index_file_size
    if told is not None or is_default or _agrees(directory.reader, file, guess):
        return guess
    for slots in range(1, min(room // SLOT.size, _SEARCHED_SLOTS_MAX)):
        layout = _with_slots(room, slots)
        if layout.file_size == room + HEADER.size and _agrees(directory.reader, file, layout):
            return layout
    return guess


def _with_slots(room: int, slots: int) -> IndexLayout:
    return IndexLayout(slots, max(0, room - slots * SLOT.size) // ITEM.size)


def _agrees(reader: FileReader, file: StoreFile, layout: IndexLayout) -> bool:
    """Whether the first items of a file look like items with so many slots: each is in its slot's chain."""
    raw = reader.read(file.path, 0, HEADER.size)
    count = min(IndexHeader.unpack(raw).next_item, layout.items, 9) if len(raw) == HEADER.size else 0
    for number in range(1, count):
        item = reader.read(file.path, layout.item_position(number), ITEM.size)
        if len(item) < ITEM.size:
            return False
        key_hash, phy_offset, _, previous = ITEM.unpack(item)
        slot = reader.read(file.path, HEADER.size + key_hash % layout.slots * SLOT.size, SLOT.size)
        if key_hash < 0 or phy_offset < 0 or not 0 <= previous < number or SLOT.unpack(slot)[0] < number:
            return False
    return count > 1


def find_item(views: Sequence[IndexView], phy_offset: int) -> tuple[int, int]:
    """Number of file and item of the first item whose record lies at `phy_offset` or behind; (files, 1) for none.

    One damaged item does not lead astray: neighbours are asked, too.
    """
    for number, view in enumerate(views):
        low, high = 1, view.end
        while low < high:
            middle = (low + high) // 2
            if _lies_before(view, middle, phy_offset):
                low = middle + 1
            else:
                high = middle
        if low < view.end:
            return number, low
    return len(views), 1


def _lies_before(view: IndexView, number: int, phy_offset: int) -> bool:
    """Whether this item belongs before an offset of the log: at an end of the file it alone says so, else two of three."""
    first, last = max(1, number - 1), min(view.end - 1, number + 1)
    if view.phy_offset(number) < phy_offset:
        return last == number or view.phy_offset(first) < phy_offset or view.phy_offset(last) < phy_offset
    return first != number and view.phy_offset(first) < phy_offset and view.phy_offset(last) < phy_offset


@define(eq=False)
class IndexCursor:
    """Goes through the items of a stretch of the log beside its records."""

    views: tuple[IndexView, ...]
    is_running: bool
    first_phy_offset: int  # Records from here to the last item's should be in the index.
    last_phy_offset: int
    _file: int
    _number: int
    _stop: tuple[int, int]
    _items: list[Stray] = field(factory=list, init=False)
    _at: int = field(default=0, init=False)
    _wrong_times: dict[int, tuple[Finding, int]] = field(factory=dict, init=False)  # By file: the first one, how many.
    _missing: list[int] = field(factory=list, init=False)  # Count, first and last offset of records without an item.

    @classmethod
    def at(cls, directory: StoreDirectory, start: int, end: int) -> "IndexCursor":
        """The items of the records in bytes `start` to `end` of the log. Raises OSError."""
        views = open_index(directory)
        file, number = find_item(views, start)
        filled = [view for view in views if view.end > 1]
        first = filled[0].first_phy_offset if filled else 0
        last = min(filled[-1].header.end_phy_offset, filled[-1].phy_offset(filled[-1].end - 1)) if filled else -1
        return cls(views, directory.is_running, first, last, file, number, find_item(views, end))

    def check(self, window: Window, strays: list[Stray], findings: Findings) -> None:
        """Compare the window's records with their items."""
        items = self._take(window.end)
        if not items and not (self.first_phy_offset < window.end and window.start <= self.last_phy_offset):
            return  # The index does not reach here, or there is none.
        keyed = keys_of(window.entries)
        if [item.phy_offset for item in items] == keyed.phy_offsets and [
            item.key_hash for item in items
        ] == keyed.hashes:
            self._flush(findings)
            for item, timestamp in zip(items, keyed.timestamps, strict=True):
                self._check_time(item, timestamp)
            return
        records: dict[int, tuple[int, list[int]]] = {}
        for key_hash, phy_offset, timestamp in zip(*keyed, strict=True):
            records.setdefault(phy_offset, (timestamp, []))[1].append(key_hash)
        self._check_each(records, items, strays, findings)

    def _check_each(
        self, records: dict[int, tuple[int, list[int]]], items: list[Stray], strays: list[Stray], findings: Findings
    ) -> None:
        at, count = 0, len(items)
        for phy_offset, (timestamp, hashes) in records.items():
            while at < count and items[at].phy_offset < phy_offset:
                strays.append(items[at])
                at += 1
            missing = set(hashes)
            while at < count and items[at].phy_offset == phy_offset:
                missing.discard(items[at].key_hash)
                if items[at].key_hash in hashes:
                    self._check_time(items[at], timestamp)
                else:
                    strays.append(items[at])
                at += 1
            if missing and self.first_phy_offset <= phy_offset <= self.last_phy_offset:
                self._note_missing(len(missing), phy_offset)
            else:
                self._flush(findings)
        strays += items[at:]

    def _check_time(self, item: Stray, timestamp: int) -> None:
        expected = self.views[item.file].seconds(item.number, timestamp)
        if expected and item.seconds not in expected:
            first, count = self._wrong_times.get(item.file, (self._wrong_time(item, expected), 0))
            self._wrong_times[item.file] = first, count + 1

    def _note_missing(self, count: int, phy_offset: int) -> None:
        if self._missing:
            self._missing[0] += count
            self._missing[2] = phy_offset
        else:
            self._missing = [count, phy_offset, phy_offset]

    def finish(self, findings: Findings) -> None:
        """Tell of what was counted so far."""
        self._flush(findings)
        while self._wrong_times:
            _, (first, count) = self._wrong_times.popitem()
            findings.add(evolve(first, count=count))

    def _flush(self, findings: Findings) -> None:
        """Tell of the records without an item that were seen."""
        if self._missing:
            count, first, last = self._missing
            self._missing = []
            findings.add(
                Finding(
                    kind=Kind.INDEX_GAP,
                    severity=Severity.WARNING,
                    phy_offset=first,
                    message=f"keys of the records up to {last} are not in the index: nobody finds them by key",
                    count=count,
                )
            )

    def _wrong_time(self, item: Stray, expected: tuple[int, ...]) -> Finding:
        """An item whose time difference is not its record's."""
        return Finding(
            kind=Kind.INDEX_ITEM,
            file=f"index/{self.views[item.file].file.path.name}",
            position=self.views[item.file].layout.item_position(item.number) + 12,
            phy_offset=item.phy_offset,
            message=f"item {item.number} shows another time than its record",
            expected=" or ".join(map(str, expected)),
            actual=item.seconds,
        )

    def skip(self, gap: Gap, strays: list[Stray]) -> None:
        """Pass over the items of records that are not there to be compared with."""
        strays += (item for item in self._take(gap.end) if item.phy_offset < gap.start)

    def rest(self) -> list[Stray]:
        """The items of the stretch that belong to no record in it."""
        return self._take(1 << 63)

    def _take(self, end: int) -> list[Stray]:
        """The items up to the first one whose record lies at `end` or behind; one among others that says so is no boundary."""
        taken: list[Stray] = []
        while True:
            if len(self._items) - self._at < _LOOK_AROUND:
                self._read_on()
            items, at = self._items, self._at
            if at == len(items) or (
                items[at].phy_offset >= end
                and all(item.phy_offset >= end for item in items[at + 1 : at + _LOOK_AROUND])
            ):
                return taken
            taken.append(items[at])
            self._at += 1

    def _read_on(self) -> None:
        """Have the next items, if there are any; those behind the ones that are there may be in the next file."""
        self._items = self._items[self._at :]
        self._at = 0
        while len(self._items) < _LOOK_AROUND and (self._file, self._number) < self._stop:
            view, file, number = self.views[self._file], self._file, self._number
            stop = min(self._stop[1], view.end) if file == self._stop[0] else view.end
            raw = view.items_at(number, min(_ITEMS_AT_ONCE, stop - number))
            new = tuple.__new__
            for at, (key_hash, phy_offset, seconds, _) in enumerate(ITEM.iter_unpack(raw), number):
                self._items.append(new(Stray, (file, at, key_hash, phy_offset, seconds)))
            self._number += len(raw) // ITEM.size
            if self._number >= stop:
                self._file, self._number = file + 1, 1
