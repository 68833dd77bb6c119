"""Checks the index against the log and repairs it: after a start, after a crash, after a cut of the log.

An index is sound when its files follow each other without a gap, when each item names the previous item of its slot, and when
the message of the last item is in the log and has that key. Whatever follows the last sound item is dropped, with one line in
the log, and rebuilt from the log. Every step can be repeated when the disk refuses. The work is sliced: other tasks run between
slices."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import partial

import structlog
import trio

from twinlog.store.index.image import IndexImage
from twinlog.store.index.index_file import IndexFile
from twinlog.store.index.index_files import IndexFiles
from twinlog.store.index.layout import ITEM, SLOT, unpack_slots
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.walk import read_log as read_bytes
from twinlog.store.record.keys import Keyed, keys_of
from twinlog.store.record.resync import next_record
from twinlog.store.record.scan import DispatchEntry, EntryColumns, scan_records

_WINDOW = 256 << 10  # Bytes of log in one slice, which takes 1 ms or so.
_BULK_WINDOW = 2 << 20  # The same in columns: 2 ms.
_RECORD_WINDOW = 4 << 10
_READ_ITEMS, _SLICE_ITEMS = 50_000, 2_000
_READ_SLOTS = 16 << 10
_SECTOR_ITEMS = 512 // ITEM.size + 1  # A disk writes 512 bytes atomically, and promises no more.


async def read_log(
    log: CommitLog, offset: int, end: int, *, window: int = _WINDOW
) -> tuple[list[DispatchEntry], int, str | None]:
    """The records of the next window of the log, the window's end, and an error where the log is not sound.

    `offset` is the start of a record. Raises OSError.
    """
    while True:
        file = log.files.file_at(offset)
        if file is None and offset < log.min_offset:  # Deleted meanwhile.
            return [], log.min_offset, None
        if file is None:
            return [], end, f"no log file holds offset {offset}"
        size = min(window, file.start + file.size - offset, end - offset)
        data = await trio.to_thread.run_sync(file.read, offset - file.start, size)
        scan = scan_records(data, offset, log.file_size, check_crc=False)
        if scan.consumed or scan.error is not None or size < window:
            error = scan.error if scan.consumed else scan.error or "an unfinished record"
            return scan.entries, offset + scan.consumed, error
        window = max(window * 2, scan.needed)


async def read_columns(log: CommitLog, offset: int, end: int) -> tuple[EntryColumns, int]:
    """Like read_log(), for a long window, in columns; no records where the log is not sound. Raises OSError."""
    from twinlog.store.record.column_scan import scan_columns

    file = log.files.file_at(offset)
    size = min(_BULK_WINDOW, file.start + file.size - offset, end - offset) if file is not None else 0
    data = await trio.to_thread.run_sync(file.read, offset - file.start, size) if file is not None else b""
    scan = scan_columns(data, offset, log.file_size, check_crc=False)
    return scan.entries, offset + scan.consumed


async def next_sound(log: CommitLog, offset: int, end: int) -> int:
    """The offset of the next sound record; `end` when there is none."""
    search = partial(next_record, partial(read_bytes, log), offset + 1, end, log.file_size)
    found = await trio.to_thread.run_sync(search)
    return end if found is None else found


async def entry_at(log: CommitLog, phy_offset: int) -> DispatchEntry | None:
    """The record that begins at an offset; None when none does."""
    if not log.min_offset <= phy_offset < log.max_offset:
        return None
    entries, _, _ = await read_log(log, phy_offset, log.max_offset, window=_RECORD_WINDOW)
    return entries[0] if entries else None


async def first_misfit(
    files: Sequence[IndexFile], log: CommitLog, unsure: Iterable[IndexFile]
) -> tuple[int, str] | None:
    """Number of the first file that contradicts the log, its neighbours or itself, and why.

    Of files in `unsure` only the start is checked.
    """
    end = -1  # Of the file before: its last message.
    for index, file in enumerate(files):
        header = file.header
        if not (
            1 <= header.next_item <= file.layout.items
            and 0 <= header.slots_used <= min(file.layout.slots, header.next_item - 1)
            and header.begin_phy_offset <= header.end_phy_offset
        ):
            return index, f"{file.path.name} has a header that cannot be: {header}"
        if header.is_empty and file is not files[-1]:
            return index, f"{file.path.name} has no items, but another follows"
        if header.is_empty:
            continue
        first = await trio.to_thread.run_sync(file.item, 1)
        last = await trio.to_thread.run_sync(file.item, header.next_item - 1)
        if first.phy_offset != header.begin_phy_offset or header.begin_phy_offset < end:
            return index, f"{file.path.name} does not begin with what its header says"
        if last.phy_offset != header.end_phy_offset and file not in unsure:
            return index, f"{file.path.name} does not end with what its header says"
        if not await _stored_at(log, header.begin_phy_offset, header.begin_timestamp):
            return index, f"{file.path.name} begins at a time when its first message was not stored"
        if not await _stored_at(log, header.end_phy_offset, header.end_timestamp):
            return index, f"{file.path.name} ends at a time when its last message was not stored"
        if await _is_hole(log, end, header.begin_phy_offset):
            return index, f"messages before the first of {file.path.name} are in no index file"
        end = header.end_phy_offset
    return None


async def _stored_at(log: CommitLog, phy_offset: int, timestamp: int) -> bool:
    """False when the log has this message, stored at another time."""
    entry = await entry_at(log, phy_offset)
    return entry is None or entry.store_timestamp == timestamp


async def _is_hole(log: CommitLog, end: int, begin: int) -> bool:
    """True when the log has messages with keys before `begin` that are behind the one at `end`, or behind its own start."""
    offset = end if end >= log.min_offset else log.min_offset
    begin = min(begin, log.max_offset)
    while offset < begin:
        entries, offset, error = await read_log(log, offset, begin)
        for entry in entries:
            if entry.phy_offset != end and keys_of([entry]).hashes:
                return True
        if error is not None:  # Unknown.
            return False
    return False


async def last_sound_item(file: IndexFile, log: CommitLog, limit: int) -> int:
    """The number of the newest item whose message is below `limit`, in the log, and has its key; 0 for none.

    Items of messages before the log's start count as sound: there is nothing to check them with.
    """
    sound = high = await trio.to_thread.run_sync(_items_below, file, limit) - 1
    step = 1
    while sound > 0 and not await _is_sound(file, sound, log):
        high, sound = sound - 1, max(0, sound - step)
        step *= 2
    while sound < high:
        middle = (sound + high + 1) // 2
        if await _is_sound(file, middle, log):
            sound = middle
        else:
            high = middle - 1
    return sound


def _items_below(file: IndexFile, limit: int) -> int:
    """The number of the first item at or behind an offset of the log."""
    return bisect_left(range(file.header.next_item), limit, lo=1, key=lambda number: file.item(number).phy_offset)


async def _is_sound(file: IndexFile, number: int, log: CommitLog) -> bool:
    item = await trio.to_thread.run_sync(file.item, number)
    if item.phy_offset < log.min_offset:
        return True
    entry = await entry_at(log, item.phy_offset)
    return entry is not None and item.key_hash in keys_of([entry]).hashes


async def missing_keys(files: Sequence[IndexFile], entry: DispatchEntry) -> list[int]:
    """The key hashes of a message that the index lacks. The message is the last one that the index has."""
    missing = keys_of([entry]).hashes
    for file in reversed(files):
        for number in range(file.header.next_item - 1, 0, -1):
            item = await trio.to_thread.run_sync(file.item, number)
            if item.phy_offset != entry.phy_offset:
                return missing
            if item.key_hash in missing:
                missing.remove(item.key_hash)
    return missing


async def load_image(file: IndexFile) -> IndexImage | None:
    """The image of a file that is to be written on; None when its slots name items that are not there."""
    layout, header = file.layout, file.header
    slots = bytearray(layout.slots * SLOT.size)
    for first in range(0, layout.slots, _READ_SLOTS):
        count = min(_READ_SLOTS, layout.slots - first)
        raw = await trio.to_thread.run_sync(file.read_slots, first, count)
        if not raw.strip(b"\0"):
            continue  # Memory that is never written to is not allocated.
        numbers = unpack_slots(raw)
        if min(numbers) < 0 or max(numbers) >= header.next_item:
            return None
        slots[first * SLOT.size : (first + count) * SLOT.size] = raw
    return IndexImage(layout, *header, slots)


async def rebuild_image(file: IndexFile, next_item: int) -> IndexImage:
    """An image with slots made from items 1 up to `next_item`, or from fewer: up to one before the first bad item.

    One sector before it, because an item on the border of a lost sector may fit by chance. Marks all slots for writing.
    """
    header = file.header
    begin = header.begin_phy_offset
    image = IndexImage(file.layout, header.begin_timestamp, header.end_timestamp, begin, begin)
    while image.next_item < next_item:
        count = min(_READ_ITEMS, next_item - image.next_item)
        items = await trio.to_thread.run_sync(file.read_items, image.next_item, count)
        if not items:
            break
        for start in range(0, len(items), _SLICE_ITEMS * ITEM.size):
            if not image.adopt(items[start : start + _SLICE_ITEMS * ITEM.size]):
                return await rebuild_image(file, max(1, image.next_item - _SECTOR_ITEMS))
            await trio.lowlevel.checkpoint()
    image.change_all()
    return image


log = structlog.get_logger()


async def make_sound(index: IndexFiles, commit_log: CommitLog, limit: int) -> int:
    """Keep sound items of messages below `limit`, and give the newest file its image.

    Returns the log offset from which on keys are missing. Raises OSError.
    """
    await index.write()
    misfit = await first_misfit(index.files, commit_log, index.unsure)
    if misfit is not None:
        await index.drop(*misfit)
    await _rebuild_unsure(index, commit_log)
    await _cut(index, commit_log, limit)
    await _open_newest(index, commit_log)
    return await _position(index, commit_log)


async def _rebuild_unsure(index: IndexFiles, commit_log: CommitLog) -> None:
    """Rebuild the slots of files that a crash may have torn, from their items."""
    for number, file in enumerate(index):
        expected = file.header.next_item
        if file in index.unsure and expected > 1:
            await _rebuild(index, number, expected, commit_log, "a crash tore it")
            if number == len(index.files) or file.header.next_item < expected:
                await index.drop(number + 1, f"{file.path.name} before them was torn by a crash")
                break
    index.unsure.clear()
    await index.write()


async def _cut(index: IndexFiles, commit_log: CommitLog, limit: int) -> None:
    """Drop items of messages at or behind an offset, and of messages that are not in the log."""
    while (number := index.last_used) >= 0:
        file = index.files[number]
        sound = await last_sound_item(file, commit_log, limit)
        if sound == file.header.next_item - 1:
            return
        why = "the log was cut, or is another"
        await index.drop(number if sound == 0 else number + 1, why)
        if sound:
            await _rebuild(index, number, sound + 1, commit_log, why)


async def _rebuild(index: IndexFiles, number: int, next_item: int, commit_log: CommitLog, why: str) -> None:
    """Rebuild a file's slots from its items below a number; drop the file when none of these fit."""
    file = index.files[number]
    had = file.header.next_item
    await index.drop_image(file)
    image = await rebuild_image(file, next_item)
    if image.next_item <= 1:
        await index.drop(number, why)
        return
    await trio.to_thread.run_sync(file.clear_items_from, image.next_item)
    if image.next_item < had:
        image.end_timestamp = await _end_timestamp(file, image, commit_log)
        count = had - image.next_item
        log.warning("items of an index file are dropped", file=file.path.name, items=count, reason=why)
    file.image = image


async def _end_timestamp(file: IndexFile, image: IndexImage, commit_log: CommitLog) -> int:
    """The store time of the last message, ms: from the log or, where it is deleted there, from the item, to the second."""
    last = await trio.to_thread.run_sync(file.item, image.next_item - 1)
    entry = await entry_at(commit_log, last.phy_offset)
    return entry.store_timestamp if entry is not None else image.begin_timestamp + last.seconds * 1000


async def _open_newest(index: IndexFiles, commit_log: CommitLog) -> None:
    if not index.files:
        return
    newest = index.files[-1]
    if newest.header.is_empty:  # A crash may have left slots in it; they do not count.
        newest.image = IndexImage.after(index.layout, index.files[-2].header if len(index.files) > 1 else None)
        newest.image.change_all()
    elif newest.image is None and not newest.is_full:
        newest.image = await load_image(newest)
        if newest.image is None:
            why = "its slots name items that it does not have"
            await _rebuild(index, len(index.files) - 1, newest.header.next_item, commit_log, why)


async def _position(index: IndexFiles, commit_log: CommitLog) -> int:
    """The log offset from which on keys are missing. Missing keys of the last message are put: a crash may separate them."""
    number = index.last_used
    entry = await entry_at(commit_log, index.files[number].header.end_phy_offset) if number >= 0 else None
    if entry is None:  # The index is empty, or older than the log.
        return commit_log.min_offset
    missing = await missing_keys(index.files, entry)
    index.put(Keyed(missing, [entry.phy_offset] * len(missing), [entry.store_timestamp] * len(missing)))
    return entry.phy_offset + entry.size
