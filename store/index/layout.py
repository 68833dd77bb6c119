"""Layout of an index file. No I/O.

    header | slots, i32 each: number of the newest item of the slot, 0 for none | items of 20 bytes; item 0 is never used
    header: i64 begin time | i64 end time | i64 begin offset | i64 end offset | i32 slots in use | i32 next item, from 1
    item:   i32 key hash | i64 physical offset | i32 seconds since begin time | i32 previous item of the slot, 0 for none

Big endian; times are store times in ms. The numbers of slots and items come from the configuration, not from the file.
Sources: IndexFile, IndexHeader, IndexService; RocketMQ 4.9.8.
"""

import sys
from array import array
from datetime import datetime
from struct import Struct
from typing import NamedTuple

from attrs import frozen

from twinlog.store.record.properties import java_hash

HEADER, SLOT, ITEM = Struct(">qqqqii"), Struct(">i"), Struct(">iqii")
assert (HEADER.size, SLOT.size, ITEM.size) == (40, 4, 20)
SECONDS_MAX = (1 << 31) - 1
NAME_LENGTH = 17  # yyyyMMddHHmmssSSS


class IndexHeader(NamedTuple):
    """The first 40 bytes. Times in ms, offsets in bytes of the log; without items both are the end of the file before."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    slots_used: int = 0
    next_item: int = 1

    @classmethod
    def unpack(cls, raw: bytes) -> "IndexHeader":
        """From the bytes of a file. A file that nothing was put into says item 0, and means 1."""
        header = cls(*HEADER.unpack_from(raw))
        return header if header.next_item > 0 else header._replace(next_item=1)

    def pack(self) -> bytes:
        """The bytes of a file. As RocketMQ's, they say item 0 until something is put."""
        return HEADER.pack(*(self._replace(next_item=0) if self.is_empty else self))

    @property
    def is_empty(self) -> bool:
        """True without items."""
        return self.next_item <= 1


class IndexItem(NamedTuple):
    """One key of one message."""

    key_hash: int
    phy_offset: int
    seconds: int
    previous: int


@frozen
class IndexLayout:
    """The numbers of slots and of items, item 0 included."""

    slots: int
    items: int

    @property
    def items_position(self) -> int:
        """The position of item 0."""
        return HEADER.size + self.slots * SLOT.size

    @property
    def file_size(self) -> int:
        """Bytes of a file."""
        return self.items_position + self.items * ITEM.size

    def item_position(self, number: int) -> int:
        """The position of an item."""
        return self.items_position + number * ITEM.size


def item_seconds(timestamp: int, begin: int) -> int:
    """The time of an item: seconds from the begin time of its file (ms); 0 in a file without one. Source: IndexFile.putKey."""
    return min(max(0, (timestamp - begin) // 1000), SECONDS_MAX) if begin > 0 else 0


def unpack_slots(raw: bytes) -> "array[int]":
    """The item numbers in slots."""
    numbers = array("i", raw)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def index_hash(topic: str, key: str) -> int:
    """The hash of a key in the index: that of `topic#key` without its sign."""
    return absolute(java_hash(f"{topic}#{key}"))


def absolute(java_hash: int) -> int:
    """Java's abs, where that of the least number, which has none, is 0."""
    return abs(java_hash) & 0x7FFFFFFF


def next_name(now: datetime, last: str | None) -> str:
    """The name of a new file: local time to the ms, but always behind `last`, for names give the order.

    Local time may stand still or go back, by an hour in autumn; the name then counts on, a number that may be no time.
    """
    name = f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03}"
    return name if last is None or name > last else str(int(last) + 1)
