"""Finds the one bit of a block that is not what it was, by trying all that no CRC covers. No I/O."""

from collections.abc import Iterable, Iterator

from twinlog.store.integrity.digest import digest
from twinlog.store.integrity.throttled_reader import Pace
from twinlog.store.record.message import RECORD_V4
from twinlog.store.record.scan import DispatchEntry

_HEAD_SIZE_MAX = RECORD_V4.size + 2 * 12  # With two IPv6 hosts.
_AROUND_TOPIC_MAX = 2 + 2  # The lengths of topic and properties.
_AT_A_TIME = 32


def without_bodies(entries: list[DispatchEntry], start: int, end: int) -> Iterator[int]:
    """The offsets in a range where no CRC would tell of a change."""
    at = start
    for entry in entries:
        behind = entry.phy_offset + entry.size
        body_end = behind - len(entry.properties) - len(entry.topic.encode()) - _AROUND_TOPIC_MAX
        body_start = entry.phy_offset + _HEAD_SIZE_MAX  # Some bytes too many are looked at; that is no matter.
        if body_start < body_end:
            yield from range(at, min(body_start, end))
            at = max(at, body_end)
    yield from range(at, end)


def find_flipped_bit(data: bytearray, expected: bytes, positions: Iterable[int]) -> tuple[int, int] | None:
    """Position and bit (0: the lowest) of the one flip that makes `data` what it was; None when there is no such.

    For a thread: 64 KiB take up to a second or two, in slices.
    """
    pace = Pace()
    for number, position in enumerate(positions):
        right = data[position]
        for bit in range(8):
            data[position] = right ^ (1 << bit)
            if digest(data) == expected:
                return position, bit
        data[position] = right
        if not number % _AT_A_TIME:
            pace.rest()
    return None
