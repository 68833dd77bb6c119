"""Finds messages by key with the index of a store, as a broker would, instead of reading the whole log."""

from collections.abc import Iterable, Iterator

from twinlog.store.index.layout import HEADER, ITEM, SLOT, index_hash
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.index_view import IndexView, open_index


def offsets_by_key(directory: StoreDirectory, key: str, topics: Iterable[str] = ()) -> list[int]:
    """Where records of one of the topics, of all if none is named, may lie that have the key: in the order of the log.

    The index keeps hashes only, so whether a record has the key is for the caller to see. Raises OSError.
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
