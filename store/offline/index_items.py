"""The items of a store's index files in the order in which they were put, and their comparison with the records of the log.

Brokers index record by record, so items and records lie in one order and can be compared side by side, a window at a time.
An item that is out of order, for whatever reason, is a stray, to be looked at on its own.
"""

from typing import NamedTuple

from attrs import define, evolve, field

from store.index_keys import keys_of
from store.index_layout import ITEM
from store.offline.directory import StoreDirectory
from store.offline.finding import Finding, Kind, Severity
from store.offline.findings import Findings
from store.offline.index_view import IndexView, find_item, open_index
from store.offline.walk import Gap, Window

_ITEMS_AT_ONCE = 4096
_LOOK_AROUND = 4  # Items beside a boundary that are looked at, in case that one of them is damaged.


class Stray(NamedTuple):
    """Item `number` of index file `file` does not belong to the record that it should, or to none where it stands."""

    file: int
    number: int
    key_hash: int
    phy_offset: int
    seconds: int


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
