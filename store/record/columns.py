"""Many records at once: a numpy array for each field, where DispatchEntry is an object for each record.

Importing numpy takes 0.1 s and 20 MB: import this module only where much arrives at once.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, overload

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from twinlog.store.record.message import QUEUELESS, TRANSACTION_MASK
from twinlog.store.record.scan import DispatchEntry

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


@frozen(eq=False)
class KeyColumns:
    """Keys in the order in which they are put into the index; see twinlog.store.record.keys.Keyed."""

    hashes: Ints
    phy_offsets: Ints
    timestamps: Ints

    def __len__(self) -> int:
        return len(self.hashes)

    def part(self, begin: int, end: int) -> "KeyColumns":
        """The keys from one number up to another."""
        return KeyColumns(self.hashes[begin:end], self.phy_offsets[begin:end], self.timestamps[begin:end])


@frozen(eq=False)
class Columns:
    """The records of a stretch of log, in its order. As a sequence: their entries, without properties."""

    topics: list[str]
    topic: Ints  # Of each record, its number in `topics`.
    queue_id: Ints
    queue_offset: Ints
    phy_offset: Ints
    size: Ints
    tags_code: Ints
    store_timestamp: Ints
    sys_flag: Ints
    keys: KeyColumns

    def __len__(self) -> int:
        return len(self.size)

    @overload
    def __getitem__(self, index: int) -> DispatchEntry: ...
    @overload
    def __getitem__(self, index: slice) -> list[DispatchEntry]: ...
    def __getitem__(self, index: int | slice) -> DispatchEntry | list[DispatchEntry]:
        """An entry, or some: all but their properties."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return DispatchEntry(
            self.topics[self.topic[index]],
            int(self.queue_id[index]),
            int(self.queue_offset[index]),
            int(self.phy_offset[index]),
            int(self.size[index]),
            int(self.tags_code[index]),
            int(self.store_timestamp[index]),
            int(self.sys_flag[index]),
        )

    def part(self, records: NDArray[np.bool_]) -> "Columns":
        """Some of the records, without their keys."""
        return Columns(
            self.topics,
            self.topic[records],
            self.queue_id[records],
            self.queue_offset[records],
            self.phy_offset[records],
            self.size[records],
            self.tags_code[records],
            self.store_timestamp[records],
            self.sys_flag[records],
            self.keys.part(0, 0),
        )

    @property
    def is_queued(self) -> NDArray[np.bool_]:
        """True for records that enter a consume queue."""
        kinds = self.sys_flag & TRANSACTION_MASK
        queued: NDArray[np.bool_] = ~np.logical_or.reduce([kinds == kind for kind in QUEUELESS])
        return queued

    def first(self, count: int) -> "Columns":
        """The first records, with their keys."""
        if count >= len(self):
            return self
        keys = int(np.searchsorted(self.keys.phy_offsets, self.phy_offset[count]))
        return evolve(self.part(np.arange(len(self)) < count), keys=self.keys.part(0, keys))

    def __iter__(self) -> Iterator[DispatchEntry]:
        return iter(self[:])


def rows(data: memoryview, width: int, positions: Ints) -> NDArray[Any]:
    """The `width` bytes from each position on, copied into an array. All must lie in `data`."""
    return np.ndarray((len(data) - width + 1,), np.dtype(f"V{width}"), data, strides=(1,))[positions]


def word_rows(data: memoryview, count: int, ends: Ints) -> Words:
    """The `count` words of 8 bytes before each position, big endian: an array of shape (positions, count)."""
    pieces = rows(data, 8 * count, ends - 8 * count)
    return pieces.view(">u8").reshape(len(ends), count).astype(np.uint64)


@lru_cache(maxsize=32)
def tail_masks(count: int) -> Words:
    """For each number of bytes, up to 255: the mask that keeps so many bytes at the end of `count` words."""
    wide = [(1 << 8 * min(size, 8 * count)) - 1 for size in range(256)]
    return np.array(
        [[mask >> 64 * (count - 1 - at) & (1 << 64) - 1 for at in range(count)] for mask in wide], np.uint64
    )


def java_hashes(data: memoryview, ends: Ints, length: int) -> Words:
    """Java's hash, unsigned 32 bit, of the ASCII texts of `length` bytes that end at `ends`; at least 8 bytes lie before each.

    Eight characters are folded at once in a word: neighbours to lanes of 16 bit, these to 32, these to one.
    """
    if not length:
        return np.zeros(len(ends), np.uint64)
    count = (length + 7) // 8
    words = word_rows(data, count, ends)
    words[:, 0] &= np.uint64((1 << 64 - 8 * (8 * count - length)) - 1)  # Zeros in front leave the hash alone.
    for bits, mask, power in _FOLDS:
        high = words >> bits
        high &= mask
        high *= power
        words &= mask
        words += high
    whole = words[:, 0]
    for number in range(1, count):
        whole = whole * _POWER_8 + words[:, number]
    return whole & _LOW_32


_FOLDS = [
    (np.uint64(8), np.uint64(0x00FF00FF00FF00FF), np.uint64(31)),
    (np.uint64(16), np.uint64(0x0000FFFF0000FFFF), np.uint64(31**2)),
    (np.uint64(32), np.uint64(0x00000000FFFFFFFF), np.uint64(31**4)),
]
_POWER_8, _LOW_32 = np.uint64(pow(31, 8, 1 << 32)), np.uint64(0xFFFFFFFF)
