"""Makes the files of the index sound: drops what does not fit the log, makes slots anew, finds where to go on.

What is dropped is made anew from the log; each drop is said in one line. All of it can be begun again when the disk refuses.
"""

import structlog
import trio

from twinlog.store.index.check import (
    entry_at,
    first_misfit,
    last_sound_item,
    load_image,
    missing_keys,
    rebuild_image,
)
from twinlog.store.index.image import IndexImage
from twinlog.store.index.index_file import IndexFile
from twinlog.store.index.index_files import IndexFiles
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.record.keys import Keyed

log = structlog.get_logger()


async def make_sound(index: IndexFiles, commit_log: CommitLog, limit: int) -> int:
    """Keep what is sound and names messages below `limit`; give the newest file its image.

    Returns the offset of the log from which on keys are missing. Raises OSError.
    """
    await index.write()
    misfit = await first_misfit(index.files, commit_log, index.unsure)
    if misfit is not None:
        await index.drop(misfit.index, misfit.why)
    await _go_through_unsure(index, commit_log)
    await _cut(index, commit_log, limit)
    await _open_newest(index, commit_log)
    return await _position(index, commit_log)


async def _go_through_unsure(index: IndexFiles, commit_log: CommitLog) -> None:
    """Go through the items of files that a crash may have torn, and make their slots anew."""
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
    """Drop what names messages at or behind an offset, or messages that the log does not have."""
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
    """Make a file's slots anew, from its items before one; drop it when it has none that fit."""
    file = index.files[number]
    had = file.header.next_item
    await index.give_up_image(file)
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
    """When the last message was stored: the log knows; where it was deleted there, the item, to the second."""
    last = await trio.to_thread.run_sync(file.item, image.next_item - 1)
    entry = await entry_at(commit_log, last.phy_offset)
    return entry.store_timestamp if entry is not None else image.begin_timestamp + last.seconds * 1000


async def _open_newest(index: IndexFiles, commit_log: CommitLog) -> None:
    if not index.files:
        return
    newest = index.files[-1]
    if newest.header.is_empty:  # What a crash left in it does not count.
        newest.image = IndexImage.after(index.layout, index.files[-2].header if len(index.files) > 1 else None)
        newest.image.change_all()
    elif newest.image is None and not newest.is_full:
        newest.image = await load_image(newest)
        if newest.image is None:
            why = "its slots name items that it does not have"
            await _rebuild(index, len(index.files) - 1, newest.header.next_item, commit_log, why)


async def _position(index: IndexFiles, commit_log: CommitLog) -> int:
    """Where keys begin to be missing. A crash may have come between two keys of one message: its others are put."""
    number = index.last_used
    entry = await entry_at(commit_log, index.files[number].header.end_phy_offset) if number >= 0 else None
    if entry is None:  # The index is empty, or older than the log.
        return commit_log.min_offset
    missing = await missing_keys(index.files, entry)
    index.put(Keyed(missing, [entry.phy_offset] * len(missing), [entry.store_timestamp] * len(missing)))
    return entry.phy_offset + entry.size
