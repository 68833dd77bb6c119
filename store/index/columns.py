"""Puts many keys at once into the image of an index file, with the outcome of IndexImage.put(). No I/O."""

import numpy as np

from twinlog.store.index.image import PAGE, IndexImage
from twinlog.store.index.layout import ITEM, SECONDS_MAX, SLOT
from twinlog.store.record.columns import Ints, KeyColumns

_ITEM = np.dtype([("key_hash", ">i4"), ("phy_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
assert _ITEM.itemsize == ITEM.size


def put_keys(image: IndexImage, keys: KeyColumns) -> None:
    """Add keys, in the order of the log, for which there must be room."""
    assert 0 < len(keys) <= image.room
    if image.next_item <= 1:  # The first one counts from the time of the file before.
        image.put([int(keys.hashes[0])], [int(keys.phy_offsets[0])], [int(keys.timestamps[0])])
        keys = keys.part(1, len(keys))
    if not len(keys):
        return
    slot = keys.hashes % image.layout.slots
    previous = _enter(np.frombuffer(image.slots, ">i4"), slot, image.next_item)
    np.frombuffer(image.changed_pages, np.uint8)[slot // (PAGE // SLOT.size)] = 1
    items = np.empty(len(keys), _ITEM)
    items["key_hash"] = keys.hashes
    items["phy_offset"] = keys.phy_offsets
    items["seconds"] = _seconds(keys.timestamps, image.begin_timestamp)
    items["previous"] = previous
    fresh = len(keys) - int(np.count_nonzero(previous))
    image.added(items.tobytes(), fresh, int(keys.phy_offsets[-1]), int(keys.timestamps[-1]))


def _enter(slots: Ints, slot: Ints, number: int) -> Ints:
    """Make each slot name its last item; items are numbered from `number` on. Returns the previous item of each."""
    order = np.argsort(slot, kind="stable")
    by_slot, numbers = slot[order], number + order
    is_first = np.concatenate(([True], by_slot[1:] != by_slot[:-1]))
    before = np.concatenate(([0], numbers[:-1]))
    before[is_first] = slots[by_slot[is_first]]
    is_last = np.concatenate((is_first[1:], [True]))
    slots[by_slot[is_last]] = numbers[is_last]
    previous = np.empty_like(before)
    previous[order] = before
    return previous


def _seconds(timestamps: Ints, begin: int) -> Ints | int:
    if begin <= 0:
        return 0
    seconds: Ints = np.clip((np.maximum(timestamps, 0) - begin) // 1000, 0, SECONDS_MAX)
    return seconds
