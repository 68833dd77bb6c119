"""Lays the records of several logs side by side, in cells: from where a piece begins in all of them to the next such place.

A piece is a record, a part of the unused rest of a file, or a stretch of bytes that are no sound record. In replicas nearly every
cell is one record. Where one log is damaged the cell goes up to the first record behind the damage; where two masters wrote,
places in common are rare, and a cell that grew too large is left open.
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

CELL_MAX = 8 << 20  # Twice what a message may have.
REACH = RECORD_MAX  # So far before and behind some bytes is looked for where a record begins, and ends.
_BACK_MIN, _WINDOW = 1 << 16, 1 << 20


@frozen
class LogPiece:
    """Bytes `start` to `end` of a log: the record of `entry`, what is `broken` for some reason, or unused."""

    start: int
    end: int
    entry: DispatchEntry | None = None
    broken: str | None = None


class Copy(Protocol):
    """One member's log, as far as it takes to find out what is wrong with it."""

    @property
    def side(self) -> LogBounds:
        """Its bounds."""

    def read(self, offset: int, size: int) -> bytes:
        """These bytes, zeros where a file is missing or short. Raises OSError."""

    def pieces(self, start: int, end: int) -> Iterator[LogPiece]:
        """What begins in bytes `start` to `end`, every byte in a piece; the last one may go on behind. Raises OSError."""

    def as_digested(self, start: int, end: int) -> bool | None:
        """Whether these bytes are those that twinlog digested when it wrote them; None: not known. Raises OSError."""

    def as_queued(self, entry: DispatchEntry) -> bool | None:
        """Whether the member's own consume queue agrees with a record; None: it does not tell. Raises OSError."""


@frozen
class Cell:
    """Bytes `start` to `end` of all logs, and each log's pieces of it. `is_open`: no place in common was found up to `end`."""

    start: int
    end: int
    pieces: Mapping[str, Sequence[LogPiece]]
    is_open: bool = False


def log_pieces(log: FileSeries, start: int, end: int) -> Iterator[LogPiece]:
    """What begins in bytes `start` to `end` of a log; `start` is where a record should begin. Raises OSError."""
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
    """Where to begin so that all logs are in step before `offset`: where in each log a record begins, or should, that reaches it.

    Else where the file begins. Raises OSError.
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
    """Where the last piece begins that lies before `offset` or across it; None when that may lie in a record.

    A sound one does not, nor does what comes behind such a one.
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
    """Goes through one log."""

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
        """End the last piece at a place, when it is a gap: what is no record has no bounds."""
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
    """Bytes `start` to `end` of all logs, cell by cell; all have a piece that begins at `start`. Ends behind an open cell."""
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
    """Whether two logs have pieces of the same bounds."""
    return [(piece.start, piece.end) for piece in one] == [(piece.start, piece.end) for piece in other]
