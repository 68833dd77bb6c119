"""Index files on disk: layout, headers, items by number, by place in the log, and by key."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from twinlog.store.index.layout import HEADER, ITEM, SLOT, IndexHeader, IndexLayout, index_hash, item_seconds
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.file_series import FileReader, StoreFile, guess_file_size

_SEARCHED_SLOTS_MAX = 2_000_000


@frozen
class IndexView:
    """An index file; `previous_end` is the end time of the one before it, if there is one."""

    file: StoreFile
    reader: FileReader
    layout: IndexLayout
    header: IndexHeader
    previous_end: int | None = None

    @property
    def name(self) -> str:
        """The file, as findings show it."""
        return f"index/{self.file.path.name}"

    @property
    def end(self) -> int:
        """The number of the item behind the last one."""
        return max(1, min(self.header.next_item, self.layout.items))

    @property
    def first_phy_offset(self) -> int:
        """The record of the first item; header and item should agree."""
        return max(self.header.begin_phy_offset, self.phy_offset(1))

    def items_at(self, number: int, count: int) -> bytes:
        """Items from `number` on, raw, at most to the last one. Raises OSError."""
        size = max(0, min(count, self.end - number)) * ITEM.size
        raw = self.reader.read(self.file.path, self.layout.item_position(number), size)
        return raw.ljust(size, b"\0")  # Of a file that was cut.

    def phy_offset(self, number: int) -> int:
        """The log offset of an item's record."""
        phy_offset: int = ITEM.unpack(self.items_at(number, 1))[1]
        return phy_offset

    def seconds(self, number: int, timestamp: int) -> tuple[int, ...]:
        """The time difference that the item of a record stored at `timestamp`, ms, should show; any of these; () for unknown."""
        if number > 1:
            return (item_seconds(timestamp, self.header.begin_timestamp),)
        return (0, item_seconds(timestamp, self.previous_end)) if self.previous_end is not None else ()


def open_index(directory: StoreDirectory) -> tuple[IndexView, ...]:
    """The index files, oldest first. Raises OSError."""
    views: list[IndexView] = []
    if not directory.index_files:
        return ()
    layout = find_layout(directory.index_files, directory.options.index_slots, directory.reader)
    for file in directory.index_files:
        header = read_header(directory.reader, file)
        previous_end = views[-1].header.end_timestamp if views else None
        views.append(IndexView(file, directory.reader, layout, header, previous_end))
    return tuple(views)


def read_header(reader: FileReader, file: StoreFile) -> IndexHeader:
    """The header of an index file; all zero where the file is too short. Raises OSError."""
    return IndexHeader.unpack(reader.read(file.path, 0, HEADER.size).ljust(HEADER.size, b"\0"))


def find_layout(files: Sequence[StoreFile], slots_configured: int | None, reader: FileReader) -> IndexLayout:
    """The numbers of slots and items: configured, else four items to a slot as by default, else what fits the first items."""
    file_size = guess_file_size([[file] for file in files], by_name=False)
    room = file_size - HEADER.size
    guess = _with_slots(room, slots_configured or max(1, room // (SLOT.size + 4 * ITEM.size)))
    is_default = guess.items == 4 * guess.slots and guess.file_size == file_size
    if slots_configured is not None or is_default or _agrees(reader, files[0], guess):
        return guess
    for slots in range(1, min(room // SLOT.size, _SEARCHED_SLOTS_MAX)):
        layout = _with_slots(room, slots)
        if layout.file_size == file_size and _agrees(reader, files[0], layout):
            return layout
    return guess


def _with_slots(room: int, slots: int) -> IndexLayout:
    return IndexLayout(slots, max(0, room - slots * SLOT.size) // ITEM.size)


def _agrees(reader: FileReader, file: StoreFile, layout: IndexLayout) -> bool:
    """True when the first items of a file fit so many slots: in the log's order, and linked slot by slot."""
    raw = reader.read(file.path, 0, HEADER.size)
    count = min(IndexHeader.unpack(raw).next_item, layout.items, 9) if len(raw) == HEADER.size else 0
    newest: dict[int, int] = {}
    last = 0
    for number in range(1, count):
        item = reader.read(file.path, layout.item_position(number), ITEM.size)
        if len(item) < ITEM.size:
            return False
        key_hash, phy_offset, _, previous = ITEM.unpack(item)
        at = key_hash % layout.slots
        slot = reader.read(file.path, HEADER.size + at * SLOT.size, SLOT.size)
        if key_hash < 0 or phy_offset < last or previous != newest.get(at, 0) or SLOT.unpack(slot)[0] < number:
            return False
        newest[at], last = number, phy_offset
    return count > 1


def find_item(views: Sequence[IndexView], phy_offset: int) -> tuple[int, int]:
    """Number of file and item of the first item whose record lies at `phy_offset` or behind; (files, 1) for none.

    One damaged item does not lead astray: neighbours are asked, too.
    """
    for number, view in enumerate(views):
        if (item := _first_behind(view, phy_offset)) < view.end:
            return number, item
    return len(views), 1


def _first_behind(view: IndexView, phy_offset: int) -> int:
    return bisect_left(range(view.end), True, lo=1, key=lambda number: not _lies_before(view, number, phy_offset))


def _lies_before(view: IndexView, number: int, phy_offset: int) -> bool:
    """True when this item belongs before an offset of the log: decided by two of three neighbours, alone at a file's end."""
    first, last = max(1, number - 1), min(view.end - 1, number + 1)
    if view.phy_offset(number) < phy_offset:
        return last == number or view.phy_offset(first) < phy_offset or view.phy_offset(last) < phy_offset
    return first != number and view.phy_offset(first) < phy_offset and view.phy_offset(last) < phy_offset


def offsets_by_key(directory: StoreDirectory, key: str, topics: Iterable[str] = ()) -> list[int]:
    """Offsets of records that may have the key, in one of the topics, or in any if none is named; in the order of the log.

    The index keeps hashes only, so the caller has to compare keys. Raises OSError.
    """
    names = set(topics) or {topic for topic, _ in directory.queues}
    hashes = {index_hash(topic, key) for topic in names}
    found = {offset for view in open_index(directory) for key_hash in hashes for offset in _chain(view, key_hash)}
    return sorted(found)


def _chain(view: IndexView, key_hash: int) -> Iterator[int]:
    """The items of a slot that have the hash, newest first. Source: IndexFile.selectPhyOffset."""
    place = HEADER.size + key_hash % view.layout.slots * SLOT.size
    raw = view.reader.read(view.file.path, place, SLOT.size)
    number = SLOT.unpack(raw)[0] if len(raw) == SLOT.size else 0
    while 0 < number < view.end:
        of, phy_offset, _, previous = ITEM.unpack(view.items_at(number, 1))
        if of == key_hash:
            yield phy_offset
        if previous >= number:  # Of a damaged file.
            return
        number = previous
