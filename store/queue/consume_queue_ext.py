"""The extension of a consume queue, as RocketMQ keeps it with enableConsumeQueueExt. Read only: twinlog writes plain tags codes.

On disk: consumequeue_ext/<topic>/<queue id>/, files of one size named by their start. A unit is

    i16 its size, 20 + n | i64 tags code | i64 store time, ms | i16 n, n bytes bitmap of SQL92 filters

big endian; i16 -1 fills the rest of a file. The queue's unit has the address, byte offset + Long.MIN_VALUE, in place of the
tags code. The bitmap only saves evaluating filters, and is ignored. Source: ConsumeQueueExt.java (RocketMQ 4.9.8).
"""

import mmap
from bisect import bisect_right
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Self

import structlog
from attrs import define, field

log = structlog.get_logger()

EXT_ADDRESS_MAX = -(1 << 31) - 1  # No 32-bit hash is as low.
EXT_ADDRESS_MIN = -(1 << 63)
EXT_HEAD = Struct(">hqqh")
assert EXT_HEAD.size == 20


class ExtUnit(NamedTuple):
    """A decoded unit."""

    tags_code: int
    store_timestamp: int
    bitmap: bytes = b""


def is_ext_address(tags_code: int) -> bool:
    """True when the tags code of a queue's unit is an address."""
    return tags_code <= EXT_ADDRESS_MAX


def decode_ext_unit(data: bytes | memoryview, at: int) -> ExtUnit | None:
    """The unit at a position; None when there is no whole one."""
    if at < 0 or at + EXT_HEAD.size > len(data):
        return None
    size, tags_code, store_timestamp, bitmap_size = EXT_HEAD.unpack_from(data, at)
    if bitmap_size < 0 or size != EXT_HEAD.size + bitmap_size or at + size > len(data):
        return None
    return ExtUnit(tags_code, store_timestamp, bytes(data[at + EXT_HEAD.size : at + size]))


@define(eq=False)
class ConsumeQueueExt:
    """The files of one queue's extension, whatever of them is there."""

    _paths: list[Path]
    _starts: list[int]
    _views: dict[int, memoryview] = field(factory=dict, init=False)  # By start; made when they are needed.

    @classmethod
    def open(cls, directory: Path) -> Self | None:
        """The extension in a directory; None when the queue has none."""
        found = sorted(directory.iterdir()) if directory.is_dir() else []
        paths = [path for path in found if len(path.name) == 20 and path.name.isdecimal() and path.is_file()]
        return cls(paths, [int(path.name) for path in paths]) if paths else None

    def tags_code(self, address: int) -> int | None:
        """The tags code, for the schedule topic the time of delivery, that is kept at an address; None: it cannot be read."""
        unit = self.unit(address)
        return None if unit is None else unit.tags_code

    def unit(self, address: int) -> ExtUnit | None:
        """The unit at an address; None when it is gone, damaged, or the file cannot be read."""
        if not is_ext_address(address):
            return None
        offset = address - EXT_ADDRESS_MIN
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return None
        return decode_ext_unit(self._view(index), offset - self._starts[index])

    def _view(self, index: int) -> memoryview:
        start = self._starts[index]
        view = self._views.get(start)
        if view is None:
            try:
                with open(self._paths[index], "rb") as file:
                    view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
            except (OSError, ValueError) as error:  # ValueError: it is empty.
                log.warning(
                    "a consume queue's extension cannot be read", path=str(self._paths[index]), error=str(error)
                )
                view = memoryview(b"")
            self._views[start] = view
        return view

    def delete_below(self, address: int) -> int:
        """Delete the files that lie wholly below an address; their number. Raises OSError."""
        offset, deleted = address - EXT_ADDRESS_MIN, 0
        while is_ext_address(address) and len(self._starts) > 1 and self._starts[1] <= offset:
            self._paths[0].unlink(missing_ok=True)
            self._views.pop(self._starts[0], None)
            del self._paths[0], self._starts[0]
            deleted += 1
        return deleted
