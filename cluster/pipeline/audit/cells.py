"""Aligns the records of several logs in cells; a cell ends at the next offset where a piece begins in all of the logs.

A piece is a record, a part of the unused rest of a file, or a stretch of bytes that are no sound record. In replicas nearly every
cell is one record. Where one log is damaged the cell extends to the first record behind the damage. Where two masters wrote,
common offsets are rare, and a cell that grows too large is left open.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Protocol

from attrs import define, evolve, field, frozen

from twinlog.cluster.pipeline.audit.compare import LogBounds
from twinlog.cluster.pipeline.sources.log_bytes import RECORD_MAX
from twinlog.store.integrity.digest import ceil_block
from twinlog.store.offline.file_series import FileSeries
from twinlog.store.offline.walk import Gap, walk
from twinlog.store.record.scan import DispatchEntry

CELL_MAX = 8 << 20  # Twice the size of the largest message.
REACH = RECORD_MAX  # Distance before and behind a range within which the records at its ends must begin and end.
_BACK_MIN, _WINDOW = 1 << 16, 1 << 20


@frozen
class LogPiece:
    """Bytes `start` to `end` of a log: the record of `entry`, damaged for the reason `broken`, or unused."""

    start: int
    end: int
    entry: DispatchEntry | None = None
    broken: str | None = None


class Copy(Protocol):
    """One member's log, with the operations that a comparison needs."""

    @property
    def side(self) -> LogBounds:
        """Bounds of the log."""

    def read(self, offset: int, size: int) -> bytes:
        """Read these bytes; zeros where a file is missing or short. Raises OSError."""

    def pieces(self, start: int, end: int) -> Iterator[LogPiece]:
        """Pieces that begin in bytes `start` to `end`, without holes; the last one may end later. Raises OSError."""

    def as_digested(self, start: int, end: int) -> bool | None:
        """True if these bytes are the ones that twinlog digested when it wrote them; None: unknown. Raises OSError."""

    def as_queued(self, entry: DispatchEntry) -> bool | None:
        """True if the member's own consume queue agrees with a record; None: unknown. Raises OSError."""


@frozen
class Cell:
    """Bytes `start` to `end` of all logs, and the pieces of each. `is_open`: no common offset was found up to `end`."""

    start: int
    end: int
    pieces: Mapping[str, Sequence[LogPiece]]
    is_open: bool = False


def log_pieces(log: FileSeries, start: int, end: int) -> Iterator[LogPiece]:
    """Pieces that begin in bytes `start` to `end` of a log; a record should begin at `start`. Raises OSError."""
    for found in walk(log, start, min(log.end, end + REACH), window=_WINDOW):
        if found.start >= end:
            return
        if isinstance(found, Gap):
            yield LogPiece(found.start, found.end, None, found.reason)
            continue
        at = found.start
        for entry in found.entries:
            yield from _unused(at, entry.phy_offset)
            at = entry.phy_offset + entry.size
            if entry.phy_offset >= end:
                return
            yield LogPiece(entry.phy_offset, at, entry)
        yield from _unused(at, found.end)


def _unused(start: int, end: int) -> Iterator[LogPiece]:
    """The rest of a file, in parts that can be compared."""
    while start < end:
        behind = min(end, max(ceil_block(start + 1), start + 1))
        yield LogPiece(start, behind)
        start = behind


def record_start(copies: Sequence[Copy], offset: int) -> int:
    """The last offset up to `offset` at which a record begins, or should, in all logs; else the start of the file.

    Raises OSError.
    """
    size, low = _BACK_MIN, 0
    while True:
        bounds = [copy.side.first for copy in copies] + [offset - offset % copies[0].side.file_size]
        low = max([0, offset - size, *bounds])
        starts = [_last_start(copy, low, offset) for copy in copies]
        if None not in starts and len(set(starts)) == 1:
            return starts[0] or 0
        if low == max(bounds) or size >= REACH:
            return low
        size *= 4


def _last_start(copy: Copy, low: int, offset: int) -> int | None:
    """Start of the last piece that begins before `offset`; None when that place may lie within a record.

    A sound piece does not lie within a record, nor does the piece behind a sound one.
    """
    if low == offset:
        return offset
    last, is_sure = None, low in (copy.side.first, low - low % copy.side.file_size)
    for piece in copy.pieces(low, offset):
        is_sound = piece.broken is None
        last = piece.start if is_sound or is_sure else None
        is_sure = is_sound
    return last


@define
class _Walker:
    """Position in one log."""

    ahead: Iterator[LogPiece]
    at: int
    end: int
    pieces: list[LogPiece] = field(factory=list)

    def step(self) -> None:
        piece = next(self.ahead, None)
        if piece is None:
            piece = LogPiece(self.at, max(self.end, self.at + 1), None, "the log ends here")
        self.pieces.append(piece)
        self.at = piece.end

    def cut(self, at: int) -> bool:
        """End the last piece at an offset if it is a gap: bytes that are no record have no bounds of their own."""
        last = self.pieces[-1]
        if last.end == at:
            return True
        if last.start == at:
            self.ahead = chain([self.pieces.pop()], self.ahead)
        elif last.broken is not None and last.start < at:
            self.pieces[-1] = evolve(last, end=at)
            self.ahead = chain([evolve(last, start=at)], self.ahead)
        else:
            return False
        self.at = at
        return True

    def take(self) -> list[LogPiece]:
        taken, self.pieces = self.pieces, []
        return taken


def cells(copies: Sequence[Copy], start: int, end: int, *, cell_max: int = CELL_MAX) -> Iterator[Cell]:
    """Split bytes `start` to `end` of all logs into cells; all logs have a piece that begins at `start`.

    Ends behind an open cell.
    """
    walkers = {copy.side.name: _Walker(copy.pieces(start, end), start, end) for copy in copies}
    while start < end:
        min(walkers.values(), key=lambda walker: walker.at).step()
        places = {walker.at for walker in walkers.values()}
        at, is_open = min(places), False
        if at - start >= cell_max and len(places) > 1:
            is_open = not all([walker.cut(at) for walker in walkers.values()])  # noqa: C419 - each is to be cut.
        elif at < end and len(places) > 1:
            continue
        yield Cell(start, at, {name: walker.take() for name, walker in walkers.items()}, is_open)
        if is_open:
            return
        start = at


def same_bounds(one: Sequence[LogPiece], other: Sequence[LogPiece]) -> bool:
    """True if two logs have pieces with the same bounds."""
    return [(piece.start, piece.end) for piece in one] == [(piece.start, piece.end) for piece in other]
