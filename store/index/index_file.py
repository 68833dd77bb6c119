"""One file of the index of keys, on the disk. Its layout: store/index/layout.py.

Written with pwrite, the newest file from its image in memory; read with pread, by queries in threads: a map would stop every
thread while a cold page is read, and end the process where the disk refuses one. Source: IndexFile, RocketMQ 4.9.8.
"""

import os
import weakref
from pathlib import Path
from typing import NamedTuple

from attrs import define, field

from twinlog.store.index.image import PAGE, IndexImage, Unwritten, page_runs
from twinlog.store.index.layout import HEADER, ITEM, SLOT, IndexHeader, IndexItem, IndexLayout
from twinlog.store.log.mapped_file import write_all
from twinlog.store.util.sync import sync_file

_CHAIN_MAX = 100_000  # Items that a query passes in one file, at most: each may be a read of the disk.
_NO_FILE = -1
# Pages that are written although nothing changed in them: each system call of a thread is a fight with the event loop for the
# GIL, and a thousand messages a second leave a thousand runs of changed pages behind, or a tenth of that with these gaps.
_GAP_MAX = 2


@define(eq=False)
class IndexFile:
    """A file and, while it is written to, its image. Closed once nothing refers to it."""

    path: Path
    layout: IndexLayout
    image: IndexImage | None = None
    is_durable: bool = False  # True when all of it was on the disk at the last check.
    _header: IndexHeader = field(factory=IndexHeader)
    _fd: int = field(default=_NO_FILE, init=False)

    @classmethod
    def open(cls, path: Path, layout: IndexLayout) -> "IndexFile":
        """Open a file that is there. Raises OSError."""
        file = cls(path, layout)
        file._take(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        file._header = IndexHeader.unpack(os.pread(file._fd, HEADER.size, 0).ljust(HEADER.size, b"\0"))
        return file

    def _take(self, fd: int) -> None:
        self._fd = fd
        weakref.finalize(self, os.close, fd)  # Queries may be under way, in threads, when the file is deleted.

    @property
    def header(self) -> IndexHeader:
        """The newest state."""
        return self.image.header if self.image is not None else self._header

    @property
    def is_full(self) -> bool:
        """True when the next key goes to another file."""
        return self.header.next_item >= self.layout.items

    @property
    def is_on_disk(self) -> bool:
        """True once the file exists; the newest one begins in memory."""
        return self._fd != _NO_FILE

    def settle(self) -> None:
        """Drop the image; all of it is in the file."""
        if self.image is not None:
            self._header, self.image = self.image.header, None

    # Reading, also from threads

    def item(self, number: int) -> IndexItem:
        """An item, from memory while it is there. Raises OSError."""
        image = self.image
        if image is not None:
            first, items = image.tail
            if number >= first:
                return IndexItem(*ITEM.unpack_from(items, (number - first) * ITEM.size))
        raw = os.pread(self._fd, ITEM.size, self.layout.item_position(number))
        return IndexItem(*ITEM.unpack(raw.ljust(ITEM.size, b"\0")))

    def read_items(self, first: int, count: int) -> bytes:
        """Raw items of the file. Raises OSError."""
        return os.pread(self._fd, count * ITEM.size, self.layout.item_position(first))

    def read_slots(self, first: int, count: int) -> bytes:
        """Raw slots of the file. Raises OSError."""
        return os.pread(self._fd, count * SLOT.size, HEADER.size + first * SLOT.size)

    def lookup(self, key_hash: int) -> "KeyLookup":
        """Prepare a lookup of a hash. Only on the event loop's thread, where header and slots are consistent."""
        number = None
        if self.image is not None:
            (number,) = SLOT.unpack_from(self.image.slots, key_hash % self.layout.slots * SLOT.size)
        return KeyLookup(self, self.header, key_hash, number)

    # Writing

    def write(self, unwritten: Unwritten) -> None:
        """Write the changes of the image to the file, which is created if need be. May block: run it in a thread.

        The header comes last, because it makes the items valid. Raises OSError; the same changes can be written again.
        """
        assert self.image is not None
        if not self.is_on_disk:
            self._create()
        if unwritten.items:
            write_all(self._fd, unwritten.items, self.layout.item_position(unwritten.first))
        slots = memoryview(self.image.slots)
        for first, end in page_runs(unwritten.pages, _GAP_MAX):
            write_all(self._fd, slots[first * PAGE : end * PAGE], HEADER.size + first * PAGE)
        write_all(self._fd, unwritten.header.pack(), 0)

    def _create(self) -> None:
        """Make the file with its full length, and no blocks. Leaves none behind where the disk refuses."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, self.layout.file_size)
        except OSError:
            os.close(fd)
            self.path.unlink()
            raise
        self._take(fd)

    def fault(self) -> str:
        """A description of a removal, cut or replacement of the file since it was opened; "" for none. Raises OSError."""
        if not self.is_on_disk:
            return ""
        try:
            named, opened = os.stat(self.path), os.fstat(self._fd)
        except FileNotFoundError:
            return f"{self.path.name} is gone"
        if (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino):
            return f"{self.path.name} is another file now"
        if named.st_size != self.layout.file_size:
            return f"{self.path.name} has {named.st_size} bytes instead of {self.layout.file_size}"
        return ""

    def clear_items_from(self, number: int) -> None:
        """Zero all items from one on, so that dropped items cannot be taken for new ones. Raises OSError."""
        os.ftruncate(self._fd, self.layout.item_position(number))
        os.ftruncate(self._fd, self.layout.file_size)

    def sync(self) -> None:
        """Bring all written bytes to the disk. Blocks. Raises OSError."""
        sync_file(self._fd)

    def delete(self) -> None:
        """Remove the file; queries under way can still read it. Raises OSError."""
        self.path.unlink(missing_ok=True)


class KeyLookup(NamedTuple):
    """The lookup of one key in one file, as the file was at one moment. May run in a thread."""

    file: IndexFile
    header: IndexHeader
    key_hash: int
    newest: int | None  # Item of the slot; None: to be read.

    def is_within(self, begin_ms: int, end_ms: int) -> bool:
        """True when the file has messages of this time. Source: IndexFile.isTimeMatched."""
        return begin_ms <= self.header.end_timestamp and end_ms >= self.header.begin_timestamp

    def find(self, begin_ms: int, end_ms: int, count_max: int, found: list[int]) -> None:
        """Add log offsets of messages to `found`, newest first, up to `count_max` in all. Raises OSError.

        A message counts as stored a whole number of seconds after the file's first. Source: IndexFile.selectPhyOffset.
        """
        file, header, number = self.file, self.header, self.newest
        if number is None:
            number = int.from_bytes(file.read_slots(self.key_hash % file.layout.slots, 1), signed=True)
        for _ in range(_CHAIN_MAX):
            if len(found) >= count_max or not 0 < number < header.next_item:
                return
            item = file.item(number)
            stored_ms = header.begin_timestamp + item.seconds * 1000
            if item.seconds < 0:
                return
            if item.key_hash == self.key_hash and begin_ms <= stored_ms <= end_ms:
                found.append(item.phy_offset)
            if item.previous >= number or stored_ms < begin_ms:
                return
            number = item.previous
