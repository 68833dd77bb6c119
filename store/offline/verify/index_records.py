"""Compares the index with single records of the log: where items and records do not simply lie side by side."""

from collections.abc import Iterator, Sequence

from attrs import evolve, frozen

from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.finding import Finding, Kind, Severity
from twinlog.store.offline.index_view import IndexView, find_item
from twinlog.store.offline.verify.index_check import check_index_file, check_times
from twinlog.store.offline.verify.index_items import Stray
from twinlog.store.record.damage import DamagedRanges
from twinlog.store.record.keys import keys_of
from twinlog.store.record.message import RECORD_SIZE_MIN, SIZE_AND_MAGIC
from twinlog.store.record.scan import DispatchEntry, scan_records


@frozen
class LogPlaces:
    """The log as it was found: bytes `start` to `end`, without those that are damaged."""

    directory: StoreDirectory
    start: int
    end: int
    damaged: DamagedRanges

    def record_at(self, phy_offset: int) -> DispatchEntry | None:
        """The sound record that begins at an offset of the log, if one does. Raises OSError."""
        if not self.start <= phy_offset < self.end or self.is_damaged(phy_offset):
            return None
        return record_at(self.directory.log, phy_offset)

    def timestamp_at(self, phy_offset: int) -> int | None:
        """When the record at an offset was stored, ms."""
        entry = self.record_at(phy_offset)
        return entry.store_timestamp if entry is not None else None

    def is_damaged(self, phy_offset: int) -> bool:
        """Whether a byte lies in a damaged range."""
        return self.damaged.overlaps(phy_offset, phy_offset + 1)


def record_at(log: FileSeries, phy_offset: int) -> DispatchEntry | None:
    """The sound record that begins at an offset, if one does. Raises OSError."""
    head = log.read(phy_offset, SIZE_AND_MAGIC.size)
    size = SIZE_AND_MAGIC.unpack(head)[0] if len(head) == SIZE_AND_MAGIC.size else 0
    if not RECORD_SIZE_MIN <= size <= log.file_size:
        return None
    scan = scan_records(log.read(phy_offset, size), phy_offset, log.file_size, check_crc=True)
    return scan.entries[0] if scan.consumed == size and len(scan.entries) == 1 else None


def check_index(views: Sequence[IndexView], log: LogPlaces, strays: Sequence[Stray]) -> Iterator[Finding]:
    """What the index files say of themselves, the items that were found out of place, and those of messages to come.

    After a crash the newest file may be torn; a broker's start repairs it, or drops it. Raises OSError.
    """
    directory = log.directory
    for view in views:
        if view.file.size != view.layout.file_size:
            yield _wrong_size(directory, view)
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


def _check_file(view: IndexView, log: LogPlaces) -> Iterator[Finding]:
    may_grow = log.directory.is_running
    yield from check_index_file(view, may_grow=may_grow)
    if view.end > 1 and not may_grow:
        times = [log.timestamp_at(view.phy_offset(number)) for number in (1, view.end - 1)]
        yield from check_times(view, *times)


def _wrong_size(directory: StoreDirectory, view: IndexView) -> Finding:
    return Finding(
        kind=Kind.WRONG_FILE_SIZE,
        file=directory.relative(view.file.path),
        message="its length is not that of an index file",
        expected=view.layout.file_size,
        actual=view.file.size,
    )


def _check_stray(view: IndexView, log: LogPlaces, stray: Stray) -> Finding | None:
    """An item that is not where its record's should be: out of order only, or wrong."""
    if stray.phy_offset >= log.end or log.is_damaged(stray.phy_offset):
        return None
    entry = log.record_at(stray.phy_offset)
    if entry is not None and stray.key_hash in keys_of([entry]).hashes:
        return None
    return Finding(
        kind=Kind.INDEX_ITEM,
        file=log.directory.relative(view.file.path),
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
            kind=Kind.INDEX_ITEM,
            severity=Severity.ERROR if clean else Severity.WARNING,
            file=log.directory.relative(views[file].file.path),
            position=views[file].layout.item_position(number),
            message="items of messages behind the end of the log" + ("; the log lost its end" if clean else ""),
            count=count,
        )
