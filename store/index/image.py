"""The index file being written, in memory: all slots, and the items that the file lacks. No I/O.

Each key changes four bytes somewhere in 20 MB of slots. In memory that costs no system call; the changes go to the file
together, every few seconds. Items lost in a crash are rebuilt from the log.
"""

from collections.abc import Sequence
from typing import NamedTuple

from attrs import define, field

from twinlog.store.index.layout import ITEM, SECONDS_MAX, SLOT, IndexHeader, IndexLayout

PAGE = 4096  # Bytes of slots that are written together.
_PAGE_BITS = 12
_NEVER = 1 << 62  # ms. Times since then are negative, and negative ones count as 0.


class Unwritten(NamedTuple):
    """Changes to be written: `items` from number `first` on, some pages of the slots, and the header."""

    first: int
    items: bytes
    pages: frozenset[int]
    header: IndexHeader


@define(eq=False)
class IndexImage:
    """A file of the index in memory. Its header's fields are the attributes of the same names."""

    layout: IndexLayout
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    slots_used: int = 0
    next_item: int = 1
    slots: bytearray = field(factory=bytearray)
    # Number of the first item that is here, and the items. Never changed but replaced, and only ever added to: a query reads it
    # from another thread.
    tail: tuple[int, bytearray] = field(factory=lambda: (1, bytearray()), init=False)
    changed_pages: bytearray = field(init=False)  # A byte for each page of slots: 1 if it has to be written.
    _is_changed: bool = field(default=True, init=False)

    def __attrs_post_init__(self) -> None:
        # Zeros that were never written to take no memory.
        self.slots = self.slots or bytearray(self.layout.slots * SLOT.size)
        self.tail = (self.next_item, bytearray())
        self.changed_pages = bytearray(-(-len(self.slots) // PAGE))

    @classmethod
    def after(cls, layout: IndexLayout, full: IndexHeader | None) -> "IndexImage":
        """An empty file, which follows a full one."""
        if full is None:
            return cls(layout)
        return cls(layout, full.end_timestamp, full.end_timestamp, full.end_phy_offset, full.end_phy_offset)

    @property
    def header(self) -> IndexHeader:
        """The header as it should be in the file."""
        return IndexHeader(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.slots_used,
            self.next_item,
        )

    @property
    def room(self) -> int:
        """The number of keys that the file still takes."""
        return self.layout.items - self.next_item

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of items that wait to be written."""
        return len(self.tail[1])

    def put(self, hashes: Sequence[int], phy_offsets: Sequence[int], timestamps: Sequence[int]) -> None:
        """Add the keys of messages, in the order of the log: (absolute) hashes, log offsets, store times.

        There must be room for them.
        """
        assert 0 < len(hashes) <= self.room
        if self.next_item <= 1:
            # The first one counts from the time of the file before, and only then is the beginning its own.
            self._put(hashes[:1], phy_offsets, timestamps)
            self.begin_timestamp, self.begin_phy_offset = timestamps[0], phy_offsets[0]
            hashes, phy_offsets, timestamps = hashes[1:], phy_offsets[1:], timestamps[1:]
        if hashes:
            self._put(hashes, phy_offsets, timestamps)

    def _put(self, hashes: Sequence[int], phy_offsets: Sequence[int], timestamps: Sequence[int]) -> None:
        slots, number, count = self.slots, self.next_item, self.layout.slots
        begin = self.begin_timestamp if self.begin_timestamp > 0 else _NEVER
        read, write, pack, changed = SLOT.unpack_from, SLOT.pack_into, ITEM.pack, self.changed_pages
        items, fresh, last, seconds = [], 0, None, 0
        for key_hash, phy_offset, timestamp in zip(hashes, phy_offsets, timestamps, strict=False):
            at = key_hash % count * 4
            (previous,) = read(slots, at)
            write(slots, at, number)
            changed[at >> _PAGE_BITS] = 1
            if not previous:
                fresh += 1
            if timestamp != last:
                last = timestamp
                seconds = min(max(0, (timestamp - begin) // 1000), SECONDS_MAX)
            items.append(pack(key_hash, phy_offset, seconds, previous))
            number += 1
        done = len(items) - 1
        self.added(b"".join(items), fresh, phy_offsets[done], timestamps[done])

    def added(self, items: bytes, fresh: int, end_phy_offset: int, end_timestamp: int) -> None:
        """Take items that their slots name already; `fresh` of them are the first of their slots."""
        assert len(items) // ITEM.size <= self.room
        self.tail[1].extend(items)
        self.next_item += len(items) // ITEM.size
        self.slots_used += fresh
        self.end_phy_offset, self.end_timestamp = end_phy_offset, end_timestamp
        self._is_changed = True

    def adopt(self, items: bytes) -> bool:
        """Take the file's next items and make the slots for them; False at an item that does not fit.

        It fits when its offset does not fall and it names the newest item of its slot as the previous one. Zeros do not.
        """
        slots, number, count, last = self.slots, self.next_item, self.layout.slots, self.end_phy_offset
        read, write = SLOT.unpack_from, SLOT.pack_into
        fresh, fits = 0, True
        for key_hash, phy_offset, seconds, previous in ITEM.iter_unpack(items):
            at = key_hash % count * 4
            if (
                key_hash < 0
                or phy_offset < last
                or seconds < 0
                or read(slots, at) != (previous,)
                or not key_hash | phy_offset
            ):
                fits = False
                break
            write(slots, at, number)
            if not previous:
                fresh += 1
            last = phy_offset
            number += 1
        self.next_item, self.slots_used, self.end_phy_offset = number, self.slots_used + fresh, last
        self.tail = (number, bytearray())
        return fits

    def change_all(self) -> None:
        """Mark all slots for the next write."""
        self.changed_pages[:] = b"\1" * len(self.changed_pages)
        self._is_changed = True

    def take_unwritten(self) -> Unwritten | None:
        """The changes since the last call; None for none. wrote() or not_written() must follow."""
        if not self._is_changed:
            return None
        first, items = self.tail
        pages = frozenset(page for page, is_changed in enumerate(self.changed_pages) if is_changed)
        self.changed_pages, self._is_changed = bytearray(len(self.changed_pages)), False
        return Unwritten(first, bytes(items), pages, self.header)

    def wrote(self, written: Unwritten) -> None:
        """Forget items that are in the file now."""
        first, items = self.tail
        self.tail = (first + len(written.items) // ITEM.size, items[len(written.items) :])

    def not_written(self, unwritten: Unwritten) -> None:
        """Keep the changes for the next take_unwritten(): the write failed."""
        for page in unwritten.pages:
            self.changed_pages[page] = 1
        self._is_changed = True


def page_runs(pages: frozenset[int], gap_max: int = 0) -> list[tuple[int, int]]:
    """The pages as runs of neighbours: first, and behind the last. Gaps of up to `gap_max` pages are taken along."""
    runs: list[tuple[int, int]] = []
    start, end = -1, -1 - gap_max
    for page in sorted(pages):
        if page > end + gap_max:
            if end > start:
                runs.append((start, end))
            start = page
        end = page + 1
    if end > start:
        runs.append((start, end))
    return runs
