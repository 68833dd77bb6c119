"""What the scrub does in a thread: walks the records of a piece of the log, and compares blocks with their digests."""

from attrs import frozen

from twinlog.store.integrity.digest import Block, digest
from twinlog.store.integrity.throttled_reader import Pace, PatientReader
from twinlog.store.record.message import MAGIC_BLANK, SIZE_AND_MAGIC
from twinlog.store.record.resync import next_record
from twinlog.store.record.scan import DispatchEntry, scan_records

_WINDOW = 64 << 10  # Bytes that are walked without a pause.


@frozen
class Piece:
    """What a thread found from one offset to `end`: records, and bytes that are none."""

    end: int
    entries: list[DispatchEntry]
    broken: list[tuple[int, int, str]]


def walk(reader: PatientReader, upto: int, *, file_size: int, delays_ms: tuple[int, ...], is_cached: bool) -> Piece:
    """The records that begin below `upto`. `is_cached`: it would be of no use to read them from the disk."""
    bytes_ = reader.bytes_
    start = offset = bytes_.start
    window, pace = _WINDOW, Pace()
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
            if _is_blank(data, offset, file_size):
                offset = bytes_.end  # The rest is looked at with its blocks.
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
        bytes_.forget_cached(start, upto - start)  # It must not drive out what consumers read.
    return Piece(offset, entries, broken)


def differing_blocks(reader: PatientReader, blocks: list[Block]) -> list[Block]:
    """Those of the blocks that are not what their digests say."""
    found, pace = [], Pace()
    for block in blocks:
        if digest(reader.read(block.start, block.end - block.start)) != block.digest:
            found.append(block)
        pace.rest()
    return found


def _is_blank(data: bytes, offset: int, file_size: int) -> bool:
    if len(data) < SIZE_AND_MAGIC.size:
        return False
    return SIZE_AND_MAGIC.unpack_from(data) == (file_size - offset % file_size, MAGIC_BLANK)
