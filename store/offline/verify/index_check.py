"""Checks index files: header, slots and the chain of each slot, and items that are not in the order of the log.

All values in a file but key hashes and log offsets follow from the items before them, so replaying the puts yields them."""

from collections.abc import Iterator, Sequence

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from twinlog.store.index.layout import HEADER, SLOT
from twinlog.store.integrity.damage import DamagedRanges
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.finding import Finding, FindingKind, Severity
from twinlog.store.offline.index_view import IndexView, find_item
from twinlog.store.offline.verify.index_items import ITEMS, Stray
from twinlog.store.record.columns import Ints
from twinlog.store.record.keys import keys_of
from twinlog.store.record.resync import entry_at
from twinlog.store.record.scan import DispatchEntry

Numbers = NDArray[np.int32]
_ITEMS_AT_ONCE = 1 << 15
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
    raw = view.reader.read(view.file.path, HEADER.size, size).ljust(size, b"\0")
    slots = np.frombuffer(raw, ">i4").astype(np.int32)
    expected = np.zeros(view.layout.slots, np.int32)
    before, wrong = 0, 0
    for number in range(1, view.end, _ITEMS_AT_ONCE):
        items = np.frombuffer(view.items_at(number, _ITEMS_AT_ONCE), ITEMS)
        hashes, previous = (items[name].astype(np.int32) for name in ("key_hash", "previous"))
        places = items["phy_offset"].astype(np.int64)
        into = (hashes - hashes // view.layout.slots * view.layout.slots).astype(np.int64)  # Quicker than a remainder.
        fits = _fit(expected, into, previous, number)
        if fits and before <= places[0] and (places[:-1] <= places[1:]).all() and (hashes >= 0).all():
            before = int(places[-1])
            continue
        last = previous if fits else _put(expected, into, number)
        places_before = np.append(before, places[:-1])
        bad = np.flatnonzero((previous != last) | (places < places_before) | (hashes < 0))
        for at in bad[: max(0, _LISTED_MAX - wrong)].tolist():
            columns = (hashes, places, places_before, previous, last)
            yield _wrong_item(view, number + at, *(int(column[at]) for column in columns))
        wrong += len(bad)
        before = int(places[-1])
    if wrong > _LISTED_MAX:
        message, more = "more items that do not fit in", wrong - _LISTED_MAX
        yield Finding(kind=FindingKind.INDEX_ITEM, file=view.name, message=message, count=more)
    if not np.array_equal(slots, expected):
        yield from _wrong_slots(view, slots, expected, may_grow=may_grow)
    if not may_grow:
        yield from _wrong_header(view, int(np.count_nonzero(expected)), log)


def _fit(newest: Numbers, slots: Ints, previous: Numbers, first: int) -> bool:
    """Put items from number `first` on into their slots, if `previous` of each is the newest of its slot before.

    False, and nothing is put, if one is not. Nothing is sorted: an item names the newest of its slot from before these, or one of
    these in its slot that lies before it and that no other one names. So the items of a slot form chains, of which each has one
    item that names none of these; it is one chain where there are no more of such items than slots.
    """
    numbers = np.arange(first, first + len(slots), dtype=np.int32)
    before = newest[slots]
    inner = np.flatnonzero(previous != before)
    named = previous[inner] - np.int32(first)
    if (named < 0).any() or (named >= inner).any() or (slots[named] != slots[inner]).any():
        return False
    are_named = np.zeros(len(slots), np.bool_)
    are_named[named] = True
    newest[slots] = numbers  # Of several for a slot the last one stays.
    chains, used = len(slots) - len(inner), np.count_nonzero(newest[slots] == numbers)
    if np.count_nonzero(are_named) == len(inner) and chains == used:
        return True
    newest[slots] = before
    return False


def _put(newest: Numbers, slots: Ints, first: int) -> Numbers:
    """Put items from number `first` on into their slots; for each the item that was the newest of its slot before."""
    numbers = np.arange(first, first + len(slots))
    order = np.sort(slots << 32 | numbers)  # By slot, then by number.
    slots, numbers = order >> 32, order & 0xFFFFFFFF
    before = np.empty(len(slots), np.int32)
    before[1:] = numbers[:-1]
    begins = np.append(0, np.flatnonzero(slots[1:] != slots[:-1]) + 1)
    before[begins] = newest[slots[begins]]
    newest[slots] = numbers  # Of several for a slot the last one stays.
    found = np.empty_like(before)
    found[numbers - first] = before
    return found


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


def _wrong_slots(view: IndexView, slots: Numbers, expected: Numbers, *, may_grow: bool) -> Iterator[Finding]:
    differ = slots != expected
    if may_grow:
        differ &= slots < view.end
    wrong: list[int] = np.flatnonzero(differ).tolist()
    for number in wrong[:_LISTED_MAX]:
        yield Finding(
            kind=FindingKind.INDEX_SLOT,
            file=view.name,
            position=HEADER.size + number * SLOT.size,
            message=f"slot {number} does not name its newest item: keys in it are not found",
            expected=int(expected[number]),
            actual=int(slots[number]),
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
