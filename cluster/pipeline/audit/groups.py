"""Which members have the same bytes where logs differ. Pure."""

from collections.abc import Sequence

from attrs import frozen

from twinlog.cluster.pipeline.audit import shapes
from twinlog.cluster.pipeline.audit.cells import Cell, Copy, Piece, same_bounds
from twinlog.store.record.scan import DispatchEntry


@frozen
class Group:
    """The members that have the same bytes in a cell."""

    copies: tuple[Copy, ...]
    data: bytes
    pieces: tuple[Piece, ...]

    @property
    def name(self) -> str:
        return self.copies[0].side.name

    @property
    def is_sound(self) -> bool:
        return all(piece.broken is None for piece in self.pieces)

    @property
    def entry(self) -> DispatchEntry | None:
        """The first record."""
        return next((piece.entry for piece in self.pieces if piece.entry is not None), None)


@frozen
class Parted:
    """A cell in which several groups have sound bytes; the first one has most members, or the reference."""

    start: int
    end: int
    groups: tuple[Group, ...]
    is_open: bool

    @property
    def is_unused(self) -> bool:
        """Whether there is no record in it, for anybody."""
        return all(group.entry is None for group in self.groups)

    @property
    def is_small(self) -> bool:
        """Whether no more changed than a field of one record."""
        first, *others = self.groups
        return not self.is_open and all(
            same_bounds(first.pieces, other.pieces)
            and shapes.difference(first.data, other.data).size <= shapes.FIELD_MAX
            for other in others
        )


def groups_of(copies: Sequence[Copy], cell: Cell) -> list[Group]:
    """Who has the same bytes; the larger groups first."""
    size = cell.end - cell.start
    by_data: dict[bytes, list[Copy]] = {}
    for copy in copies:
        by_data.setdefault(copy.read(cell.start, size), []).append(copy)
    groups = [Group(tuple(same), data, tuple(cell.pieces[same[0].side.name])) for data, same in by_data.items()]
    return sorted(groups, key=lambda group: -len(group.copies))
