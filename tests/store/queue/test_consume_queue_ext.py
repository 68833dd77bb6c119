"""Extensions of consume queues, with bytes made by the layout in ConsumeQueueExt.java."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.reading import LOG_FILE, fill, offsets, open_store
from twinlog.store.queue.consume_queue_ext import (
    EXT_ADDRESS_MAX,
    ConsumeQueueExt,
    ExtUnit,
    decode_ext_unit,
    is_ext_address,
)
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.properties import tags_code

FILE_SIZE = 100
TAGS = ("TagA", "TagB", "TagC")


def ext_unit(code, timestamp=1000, bitmap=b""):
    return pack(">hqqh", 20 + len(bitmap), code, timestamp, len(bitmap)) + bitmap


def write_units(directory, units, start=0):
    """As ConsumeQueueExt.put lays them out; their addresses."""
    directory.mkdir(parents=True)
    files, addresses = {start: bytearray()}, []
    for raw in units:
        last = max(files)
        if len(files[last]) + len(raw) + 4 > FILE_SIZE:
            files[last] += b"\xff\xff"
            last += FILE_SIZE
            files[last] = bytearray()
        addresses.append(last + len(files[last]) - (1 << 63))
        files[last] += raw
    for at, content in files.items():
        (directory / f"{at:020}").write_bytes(bytes(content).ljust(FILE_SIZE, b"\0"))
    return addresses


@pytest.mark.parametrize(
    ("code", "is_address"),
    [
        (-(1 << 63), True),
        (-2147483649, True),
        (-2147483648, False),
        (-1, False),
        (0, False),
        (1_795_264_812_146, False),
    ],
)
def test_what_is_an_address(code, is_address):
    assert is_ext_address(code) == is_address
    assert EXT_ADDRESS_MAX == -2147483649


def test_units_are_found_at_their_addresses(tmp_path):
    """Over the end of a file, with and without bitmaps."""
    units = [ExtUnit(tags_code(f"tag{n}"), 1000 + n, bytes(range(n % 15))) for n in range(20)]
    addresses = write_units(tmp_path / "q", [ext_unit(*unit) for unit in units])
    ext = ConsumeQueueExt.open(tmp_path / "q")
    assert [ext.unit(address) for address in addresses] == units
    assert [ext.tags_code(address) for address in addresses] == [unit.tags_code for unit in units]
    assert len(list((tmp_path / "q").iterdir())) > 4


def test_what_cannot_be_read_is_none(tmp_path):
    """No address, behind the end, in the zeros, at the mark of a file's end, in a lost or a short file."""
    addresses = write_units(tmp_path / "q", [ext_unit(n) for n in range(12)], start=200)
    ext = ConsumeQueueExt.open(tmp_path / "q")
    base = -(1 << 63)
    for address in (7, base, base + 199, base + 280, base + 281, base + 290, base + 500, base + 9999, addresses[0] + 1):
        assert ext.unit(address) is None, address - base
    (tmp_path / "q" / f"{300:020}").unlink()
    (tmp_path / "q" / f"{400:020}").write_bytes(b"")
    ext = ConsumeQueueExt.open(tmp_path / "q")
    assert [ext.tags_code(address) for address in addresses] == [0, 1, 2, 3, *[None] * 8]


@given(st.binary(max_size=60), st.integers(-2, 60))
def test_any_bytes_are_a_unit_or_none(data, at):
    unit = decode_ext_unit(data, at)
    assert unit is None or data[at:].startswith(ext_unit(*unit))


@pytest.mark.parametrize("content", [None, "", "readme"])
def test_a_queue_without_extension(tmp_path, content):
    if content is not None:
        (tmp_path / "q").mkdir()
    if content:
        (tmp_path / "q" / content).touch()
    assert ConsumeQueueExt.open(tmp_path / "q") is None


def test_files_wholly_below_an_address_are_deleted(tmp_path):
    addresses = write_units(tmp_path / "q", [ext_unit(n) for n in range(12)])
    ext = ConsumeQueueExt.open(tmp_path / "q")
    assert ext.delete_below(tags_code("a")) == 0
    assert ext.delete_below(addresses[3]) == 0
    assert ext.delete_below(addresses[5]) == 1
    assert [ext.tags_code(address) for address in addresses[:5]] == [None] * 4 + [4]
    assert ext.delete_below(addresses[-1]) == 1
    assert ext.delete_below(-(1 << 63) + 9999) == 0, "the last one stays"
    assert [path.name for path in (tmp_path / "q").iterdir()] == [f"{200:020}"]


@pytest.fixture
async def store(tmp_path, autojump_clock):
    """12 messages with three tags in turn, whose units lead to an extension; the extension's last file is lost."""
    store = open_store(tmp_path)
    fill(store, 12, tags=TAGS)
    units = [ext_unit(tags_code(TAGS[n % 3])) for n in range(12)]
    addresses = write_units(tmp_path / "consumequeue_ext" / "T1" / "0", units)
    (tmp_path / "consumequeue_ext" / "T1" / "0" / f"{200:020}").unlink()
    for file in store.queue("T1", 0).files.files:
        for n in range(file.wrote // 20):
            phy_offset, size, _ = UNIT.unpack(file.read(n * 20, 20))
            file.write_at(n * 20, UNIT.pack(phy_offset, size, addresses[file.start // 20 + n]))
    await store.close()
    store = open_store(tmp_path)
    assert is_ext_address(store.queue("T1", 0).unit(0).tags_code)
    return store


async def test_pulls_filter_by_the_tags_in_the_extension(store, autojump_clock):
    """What cannot be read there is no reason to leave a message out."""
    wanted = frozenset({tags_code("TagB")})
    found = [*offsets(store.get_message("T1", 0, 0, 32, wanted)), *offsets(store.get_message("T1", 0, 10, 32, wanted))]
    assert [offset for offset in found if offset < 8] == [1, 4, 7]
    assert 10 in found


async def test_the_extension_is_cleaned_with_its_queue(store, autojump_clock, tmp_path):
    queue = store.queue("T1", 0)
    queue.min_offset = 5
    queue.clean_ext()
    assert [path.name for path in (tmp_path / "consumequeue_ext" / "T1" / "0").iterdir()] == [f"{100:020}"]


async def test_new_units_are_plain(store, autojump_clock):
    fill(store, 1, tags=("TagB",))
    assert store.queue("T1", 0).unit(12).tags_code == tags_code("TagB")
    assert store.commit_log.file_size == LOG_FILE
