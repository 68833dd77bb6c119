"""Checks index files: header, slots and the chain of each slot, and items that are not in the order of the log.

All values in a file but key hashes and log offsets follow from the items before them, so replaying the puts yields them."""

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
from attrs import evolve, frozen

from twinlog.store.index.layout import HEADER, ITEM, SLOT, unpack_slots
from twinlog.store.integrity.damage import DamagedRanges
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.finding import Finding, FindingKind, Severity
from twinlog.store.offline.index_view import IndexView, find_item
from twinlog.store.offline.verify.index_items import Stray
from twinlog.store.record.keys import keys_of
from twinlog.store.record.resync import entry_at
from twinlog.store.record.scan import DispatchEntry

_ITEMS_AT_ONCE = 16_384
_LISTED_MAX = 100  # Of one kind and file; more of them are counted.


@frozen
class LogPlaces:
    """The log's extent: bytes `start` to `end`, without damaged ranges."""

    directory: StoreDirectory
    start: int
    end: int
    damaged: DamagedRanges

    def record_at(self, phy_offset: int) -> DispatchEntry | None:
        """The sound record that begins at an offset of the log, if one does. Raises OSError."""
        if not self.start <= phy_offset < self.end or self.is_damaged(phy_offset):
            return None
        log = self.directory.log
        return entry_at(log.read, phy_offset, log.file_size, check_crc=True)

    def is_damaged(self, phy_offset: int) -> bool:
        """True when a byte lies in a damaged range."""
        return self.damaged.overlaps(phy_offset, phy_offset + 1)


def _check_file(view: IndexView, log: LogPlaces) -> Iterator[Finding]:
    """Replay the puts. Raises OSError."""
    may_grow = log.directory.is_running
    size = view.layout.slots * SLOT.size
    slots = unpack_slots(view.reader.read(view.file.path, HEADER.size, size).ljust(size, b"\0"))
    expected = array("i", bytes(size))
    used, before, number, wrong = 0, 0, 1, 0
    while number < view.end:
        for key_hash, phy_offset, _, previous in ITEM.iter_unpack(view.items_at(number, _ITEMS_AT_ONCE)):
            slot = key_hash % view.layout.slots
            last = expected[slot]
            if previous != last or phy_offset < before or key_hash < 0:
                wrong += 1
                if wrong <= _LISTED_MAX:
                    yield _wrong_item(view, number, key_hash, phy_offset, before, previous, last)
            before = phy_offset
            used += not last
            expected[slot] = number
            number += 1
    if wrong > _LISTED_MAX:
        message, more = "more items that do not fit in", wrong - _LISTED_MAX
        yield Finding(kind=FindingKind.INDEX_ITEM, file=view.name, message=message, count=more)
    if slots != expected:
        yield from _wrong_slots(view, slots, expected, may_grow=may_grow)
    if not may_grow:
        yield from _wrong_header(view, used, log)


def _wrong_item(
    view: IndexView, number: int, key_hash: int, phy_offset: int, before: int, previous: int, last: int
) -> Finding:
    expected: int | str
    if previous != last:
        message, expected, actual, at = "names another item as the one before it in its slot", last, previous, 16
    elif phy_offset < before:
        message, expected, actual, at = "lies before the item in front of it", f">= {before}", phy_offset, 4
    else:
        message, expected, actual, at = "has a negative hash", ">= 0", key_hash, 0
    return Finding(
        kind=FindingKind.INDEX_ITEM,
        file=view.name,
        position=view.layout.item_position(number) + at,
        phy_offset=phy_offset,
        message=f"item {number} {message}",
        expected=expected,
        actual=actual,
    )


def _wrong_slots(view: IndexView, slots: "array[int]", expected: "array[int]", *, may_grow: bool) -> Iterator[Finding]:
    there, should = np.frombuffer(slots, np.int32), np.frombuffer(expected, np.int32)
    differ = there != should
    if may_grow:
        differ &= there < view.end
    wrong: list[int] = np.flatnonzero(differ).tolist()
    for number in wrong[:_LISTED_MAX]:
        yield Finding(
            kind=FindingKind.INDEX_SLOT,
            file=view.name,
            position=HEADER.size + number * SLOT.size,
            message=f"slot {number} does not name its newest item: keys in it are not found",
            expected=expected[number],
            actual=slots[number],
        )
    if len(wrong) > _LISTED_MAX:
        message, more = "more slots that do not name their newest item", len(wrong) - _LISTED_MAX
        yield Finding(kind=FindingKind.INDEX_SLOT, file=view.name, message=message, count=more)


def _wrong_header(view: IndexView, used: int, log: LogPlaces) -> Iterator[Finding]:
    header = view.header
    if header.next_item > view.layout.items:
        yield _header_finding(view, "next item", 36, f"<= {view.layout.items}", header.next_item)
    fields = [("slots in use", 32, used, header.slots_used)]
    if view.end > 1:
        first, last = view.phy_offset(1), view.phy_offset(view.end - 1)
        fields += [
            ("begin offset", 16, first, header.begin_phy_offset),
            ("end offset", 24, last, header.end_phy_offset),
        ]
        if (record := log.record_at(first)) is not None:
            fields.append(("begin time", 0, record.store_timestamp, header.begin_timestamp))
        if (record := log.record_at(last)) is not None:
            fields.append(("end time", 8, record.store_timestamp, header.end_timestamp))
    for field, position, expected, actual in fields:
        if actual != expected:
            yield _header_finding(view, field, position, expected, actual)


def _header_finding(view: IndexView, field: str, position: int, expected: int | str, actual: int) -> Finding:
    return Finding(
        kind=FindingKind.INDEX_HEADER,
        file=view.name,
        position=position,
        message=f"the header's {field} does not match the items",
        expected=expected,
        actual=actual,
    )


def check_index(views: Sequence[IndexView], log: LogPlaces, strays: Sequence[Stray]) -> Iterator[Finding]:
    """Findings about the index files: by themselves, items out of place, and items of messages behind the log's end.

    After a crash the newest file may be torn; a broker's start repairs it, or drops it. Raises OSError.
    """
    directory = log.directory
    for view in views:
        if view.file.size != view.layout.file_size:
            yield _wrong_size(view)
        torn = directory.has_crashed and view is views[-1]
        for finding in _check_file(view, log):
            yield evolve(finding, severity=Severity.WARNING) if torn else finding
    for stray in strays:
        wrong = _check_stray(views[stray.file], log, stray)
        if wrong is not None:
            torn = directory.has_crashed and stray.file == len(views) - 1
            yield evolve(wrong, severity=Severity.WARNING) if torn else wrong
    if not directory.is_running:
        yield from _items_behind(views, log)


def _wrong_size(view: IndexView) -> Finding:
    return Finding(
        kind=FindingKind.WRONG_FILE_SIZE,
        file=view.name,
        message="its length is not that of an index file",
        expected=view.layout.file_size,
        actual=view.file.size,
    )


def _check_stray(view: IndexView, log: LogPlaces, stray: Stray) -> Finding | None:
    """The finding for an item out of order; None when its record has the key."""
    if stray.phy_offset >= log.end or log.is_damaged(stray.phy_offset):
        return None
    entry = log.record_at(stray.phy_offset)
    if entry is not None and stray.key_hash in keys_of([entry]).hashes:
        return None
    return Finding(
        kind=FindingKind.INDEX_ITEM,
        file=view.name,
        position=view.layout.item_position(stray.number),
        phy_offset=stray.phy_offset,
        message=f"item {stray.number} is of a key that its record does not have"
        if entry is not None
        else f"item {stray.number} names a place where no record begins",
        actual=stray.key_hash,
    )


def _items_behind(views: Sequence[IndexView], log: LogPlaces) -> Iterator[Finding]:
    file, number = find_item(views, log.end)
    count = sum(view.end - 1 for view in views[file:]) - (number - 1)
    if count > 0:
        clean = log.directory.stopped_cleanly
        yield Finding(
            kind=FindingKind.INDEX_ITEM,
            severity=Severity.ERROR if clean else Severity.WARNING,
            file=views[file].name,
            position=views[file].layout.item_position(number),
            message="items of messages behind the end of the log" + ("; the log lost its tail" if clean else ""),
            count=count,
        )
