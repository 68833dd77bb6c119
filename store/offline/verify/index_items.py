"""The items of a store's index files in the order of their puts, compared with the records of the log.

Brokers index record by record, so items and records have one order and can be compared side by side, a window at a time.
An item out of order, for whatever reason, is a stray, checked on its own.
"""

from typing import NamedTuple

import numpy as np
from attrs import define, evolve, field

from twinlog.store.index.layout import ITEM
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.finding import Finding, FindingKind, Findings, Severity
from twinlog.store.offline.index_view import IndexView, find_item, open_index
from twinlog.store.offline.walk import Gap
from twinlog.store.record.columns import KeyColumns

_ITEMS_AT_ONCE = 4096
ITEMS = np.dtype([("key_hash", ">i4"), ("phy_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
assert ITEMS.itemsize == ITEM.size
_BOUNDARY_ITEMS = 4  # Items beside a boundary that are read, in case one of them is damaged.


class Stray(NamedTuple):
    """Item `number` of index file `file` that does not belong to the record expected at its place."""

    file: int
    number: int
    key_hash: int
    phy_offset: int
    seconds: int


@define(eq=False)
class IndexCursor:
    """Compares the items of a stretch of the log with its records."""

    views: tuple[IndexView, ...]
    is_running: bool
    first_phy_offset: int  # Records from here to the last item's should be in the index.
    last_phy_offset: int
    _file: int
    _number: int
    _stop: tuple[int, int]
    _wrong_times: dict[int, Finding] = field(factory=dict, init=False)  # By file.
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

    def check(self, start: int, end: int, keys: KeyColumns, strays: list[Stray], findings: Findings) -> None:
        """Compare the keys of the records in a window with their items."""
        if self.last_phy_offset < start and (self._file, self._number) >= self._stop:
            return  # The index does not reach here, or there is none.
        if self._fits(keys, end):
            self._flush(findings)
            return
        items = self._take(end)
        records: dict[int, tuple[int, list[int]]] = {}
        columns = keys.hashes.tolist(), keys.phy_offsets.tolist(), keys.timestamps.tolist()
        for key_hash, phy_offset, timestamp in zip(*columns, strict=True):
            records.setdefault(phy_offset, (timestamp, []))[1].append(key_hash)
        self._check_each(records, items, strays, findings)

    def _fits(self, keys: KeyColumns, end: int) -> bool:
        """True when the next items are exactly those of these keys, as nearly always; they count as read then."""
        count = len(keys)
        if not count or (self._file, self._number) >= self._stop:
            return False
        view = self.views[self._file]
        items = np.frombuffer(view.items_at(self._number, count + 1), ITEMS)
        begin = view.header.begin_timestamp
        if len(items) < count or begin <= 0:
            return False
        behind, items = items[count:], items[:count]
        wrong_times = items["seconds"] != (keys.timestamps - begin) // 1000
        if self._number == 1:
            expected = view.seconds(1, int(keys.timestamps[0]))
            wrong_times[0] = bool(expected) and items["seconds"][0] not in expected
        if (
            (items["phy_offset"] != keys.phy_offsets).any()
            or (items["key_hash"] != keys.hashes).any()
            or wrong_times.any()
            or (behind["phy_offset"] < end).any()
        ):
            return False
        self._number += count
        if self._number >= view.end:
            self._file, self._number = self._file + 1, 1
        return True

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
        view = self.views[item.file]
        expected = view.seconds(item.number, timestamp)
        if not expected or item.seconds in expected:
            return
        first = self._wrong_times.get(item.file) or Finding(
            kind=FindingKind.INDEX_ITEM,
            file=view.name,
            position=view.layout.item_position(item.number) + 12,
            phy_offset=item.phy_offset,
            message=f"item {item.number} shows another time than its record",
            expected=" or ".join(map(str, expected)),
            actual=item.seconds,
            count=0,
        )
        self._wrong_times[item.file] = evolve(first, count=first.count + 1)

    def _note_missing(self, count: int, phy_offset: int) -> None:
        if self._missing:
            self._missing[0] += count
            self._missing[2] = phy_offset
        else:
            self._missing = [count, phy_offset, phy_offset]

    def finish(self, findings: Findings) -> None:
        """Report what was counted so far."""
        self._flush(findings)
        while self._wrong_times:
            findings.add(self._wrong_times.popitem()[1])

    def _flush(self, findings: Findings) -> None:
        """Report records without an item."""
        if self._missing:
            count, first, last = self._missing
            self._missing = []
            findings.add(
                Finding(
                    kind=FindingKind.INDEX_GAP,
                    severity=Severity.WARNING,
                    phy_offset=first,
                    message=f"keys of the records up to {last} are not in the index: they are not found by key",
                    count=count,
                )
            )

    def skip(self, gap: Gap, strays: list[Stray]) -> None:
        """Skip items of records in a gap."""
        strays += (item for item in self._take(gap.end) if item.phy_offset < gap.start)

    def rest(self) -> list[Stray]:
        """The items of the stretch that belong to no record in it."""
        return self._take(1 << 63)

    def _take(self, end: int) -> list[Stray]:
        """The items up to the first one whose record lies at `end` or behind. A single such item among others is no boundary."""
        taken: list[Stray] = []
        items: list[Stray] = []
        at = 0
        while True:
            if len(items) - at < _BOUNDARY_ITEMS:
                items, at = items[at:] + self._read_on(), 0
            if at == len(items) or (
                items[at].phy_offset >= end
                and all(item.phy_offset >= end for item in items[at + 1 : at + _BOUNDARY_ITEMS])
            ):
                break
            taken.append(items[at])
            at += 1
        if at < len(items):  # Not taken: to be read again.
            self._file, self._number = items[at][:2]
        return taken

    def _read_on(self) -> list[Stray]:
        """The next items, of one file or of more where it has few; none at the end."""
        items: list[Stray] = []
        while len(items) < _BOUNDARY_ITEMS and (self._file, self._number) < self._stop:
            view, file, number = self.views[self._file], self._file, self._number
            stop = min(self._stop[1], view.end) if file == self._stop[0] else view.end
            raw = view.items_at(number, min(_ITEMS_AT_ONCE, stop - number))
            for at, (key_hash, phy_offset, seconds, _) in enumerate(ITEM.iter_unpack(raw), number):
                items.append(Stray(file, at, key_hash, phy_offset, seconds))
            self._number += len(raw) // ITEM.size
            if self._number >= stop:
                self._file, self._number = file + 1, 1
        return items
