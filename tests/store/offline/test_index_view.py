"""The number of slots of an index file is found from its items, where it is not configured."""

import random
from pathlib import Path

from twinlog.store.index.layout import HEADER, ITEM, SLOT, IndexLayout
from twinlog.store.offline import index_view
from twinlog.store.offline.file_series import FileReader, StoreFile

LAYOUT = IndexLayout(1000, 400)


def index_file(path: Path, rng: random.Random) -> StoreFile:
    """As a broker writes it, full, with keys by chance."""
    data = bytearray(LAYOUT.file_size)
    newest = [0] * LAYOUT.slots
    phy_offset = 0
    for number in range(1, LAYOUT.items):
        key_hash = rng.randrange(1 << 31)
        slot = key_hash % LAYOUT.slots
        ITEM.pack_into(data, LAYOUT.item_position(number), key_hash, phy_offset, number // 80, newest[slot])
        newest[slot] = number
        phy_offset += rng.randrange(300, 2000)
    for number, item in enumerate(newest):
        SLOT.pack_into(data, HEADER.size + number * SLOT.size, item)
    HEADER.pack_into(data, 0, 0, 0, 0, phy_offset, len(newest) - newest.count(0), LAYOUT.items)
    path.write_bytes(data)
    return StoreFile(path, 0, len(data))


def test_no_smaller_number_of_slots_agrees_with_the_items(tmp_path: Path) -> None:
    """Slots read as items look like items where little is asked of them: one file in ten was taken for another kind then."""
    reader = FileReader()
    for seed in range(40):
        file = index_file(tmp_path / f"{seed}", random.Random(seed))
        agreeing = next(
            slots
            for slots in range(5, 3000, 5)
            if (layout := index_view._with_slots(LAYOUT.file_size - HEADER.size, slots)).file_size == LAYOUT.file_size
            and index_view._agrees(reader, file, layout)
        )
        assert agreeing == LAYOUT.slots
    reader.close()
