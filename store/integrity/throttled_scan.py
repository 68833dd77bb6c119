"""Reading and checking the log in threads, at a throttled pace and past unreadable sectors: for scrub, digests and repair."""

import errno
import time
from collections.abc import Iterable, Iterator

from attrs import define, field, frozen

from twinlog.store.integrity.digest import DigestBlock, digest
from twinlog.store.log.range import LogRange
from twinlog.store.record.message import RECORD_V4
from twinlog.store.record.resync import next_record
from twinlog.store.record.scan import DispatchEntry, scan_records
from twinlog.store.record.walk import is_blank

_PAGE = 4096
SLICE_SECONDS = 0.001
SHARE = 5  # A thread takes one part in so many of a core.


@define(eq=False)
class ThrottledReader:
    """Reads around bad sectors: pages that the disk refuses are zeros, and noted."""

    bytes_: LogRange
    _unreadable: list[tuple[int, OSError]] = field(factory=list, init=False)

    def read(self, offset: int, size: int) -> bytes:
        """Like LogRange.read(). Raises OSError unless it is an I/O error of the disk."""
        try:
            return self.bytes_.read(offset, size)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        pieces, end = [], min(offset + size, self.bytes_.end)
        while offset < end:
            part = min(end, offset - offset % _PAGE + _PAGE) - offset
            try:
                pieces.append(self.bytes_.read(offset, part))
            except OSError as error:
                self._unreadable.append((offset, error))
                pieces.append(bytes(part))
            offset += part
        return b"".join(pieces)

    def unreadable_in(self, start: int, end: int) -> str:
        """The error of the first unreadable page in a range; "" for none."""
        return next((f"{error} at {offset}" for offset, error in self._unreadable if start <= offset < end), "")


@define(eq=False)
class ThreadPace:
    """Makes a thread sleep so much that it keeps to its share of a core."""

    _began: float = field(factory=time.monotonic, init=False)

    def rest(self) -> None:
        """Sleep if it is time to; to be called after each step."""
        busy = time.monotonic() - self._began
        if busy >= SLICE_SECONDS:
            time.sleep(busy * (SHARE - 1))
            self._began = time.monotonic()


_WINDOW = 64 << 10  # Bytes that are walked without a pause.


@frozen
class WalkedPiece:
    """The result of a walk from one offset to `end`: sound records, and broken ranges with reasons."""

    end: int
    entries: list[DispatchEntry]
    broken: list[tuple[int, int, str]]


def walk(
    reader: ThrottledReader, upto: int, *, file_size: int, delays_ms: tuple[int, ...], is_cached: bool
) -> WalkedPiece:
    """The records that begin below `upto`. `is_cached`: it would be of no use to read them from the disk."""
    bytes_ = reader.bytes_
    start = offset = bytes_.start
    window, pace = _WINDOW, ThreadPace()
    if not is_cached:
        bytes_.forget_cached(start, upto - start)
    entries: list[DispatchEntry] = []
    broken: list[tuple[int, int, str]] = []
    while offset < upto:
        data = reader.read(offset, window)
        scan = scan_records(data, offset, file_size, check_crc=True, delays_ms=delays_ms)
        entries += scan.entries
        offset += scan.consumed
        error = scan.error
        if error is None and scan.consumed == 0:
            if is_blank(data, 0, file_size - offset % file_size):
                offset = bytes_.end  # The rest is checked with its blocks.
            elif len(data) < window:
                error = "a record that does not end"
            else:
                window = max(window * 2, scan.needed)
        elif scan.consumed:
            window = _WINDOW
        if error is not None:
            found = next_record(reader.read, offset + 1, bytes_.end, file_size)
            behind = bytes_.end if found is None else found
            unreadable = reader.unreadable_in(offset, behind)
            broken.append((offset, behind, f"the disk does not read it ({unreadable})" if unreadable else error))
            offset = behind
        pace.rest()
    if not is_cached:
        bytes_.forget_cached(start, upto - start)  # It must not evict what consumers read.
    return WalkedPiece(offset, entries, broken)


def differing_blocks(reader: ThrottledReader, blocks: list[DigestBlock]) -> list[DigestBlock]:
    """The blocks that differ from their digests."""
    found, pace = [], ThreadPace()
    for block in blocks:
        if digest(reader.read(block.start, block.end - block.start)) != block.digest:
            found.append(block)
        pace.rest()
    return found


_HEAD_SIZE_MAX = RECORD_V4.size + 2 * 12  # With two IPv6 hosts.
_AROUND_TOPIC_MAX = 2 + 2  # The lengths of topic and properties.
_AT_A_TIME = 32


def without_bodies(entries: list[DispatchEntry], start: int, end: int) -> Iterator[int]:
    """The offsets in a range that no CRC covers."""
    at = start
    for entry in entries:
        behind = entry.phy_offset + entry.size
        body_end = behind - len(entry.properties) - len(entry.topic.encode()) - _AROUND_TOPIC_MAX
        body_start = entry.phy_offset + _HEAD_SIZE_MAX  # Includes some bytes of the body, which does no harm.
        if body_start < body_end:
            yield from range(at, min(body_start, end))
            at = max(at, body_end)
    yield from range(at, end)


def find_flipped_bit(data: bytearray, expected: bytes, positions: Iterable[int]) -> tuple[int, int] | None:
    """Position and bit (0: the lowest) of the single flip that makes `data` match its digest again; None for none.

    For a thread: 64 KiB take up to two seconds, in slices.
    """
    pace = ThreadPace()
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
