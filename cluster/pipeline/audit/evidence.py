"""Decides which copy is right where bytes differ, and names the evidence. Pure.

Digests come first: each member's own, of the bytes it wrote. Next each member's own consume queue, which has the offset, size and
tags of a record; then the majority of members. Of two histories the one with the newest epoch was continued, as in
ha/election/epochs.py.
"""

from collections.abc import Callable, Sequence

from attrs import frozen

from twinlog.cluster.pipeline.audit import shapes
from twinlog.cluster.pipeline.audit.cells import Cell, Copy, LogPiece, same_bounds
from twinlog.cluster.pipeline.audit.compare import LogBounds
from twinlog.ha.election.epochs import epoch_at, key_of
from twinlog.store.epoch_file import FIRST, EpochEntry
from twinlog.store.record.scan import DispatchEntry


@frozen
class Group:
    """Members that have the same bytes in a cell."""

    copies: tuple[Copy, ...]
    data: bytes
    pieces: tuple[LogPiece, ...]

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
class DivergentCell:
    """A cell in which groups have different sound bytes; the first group is the largest, or has the reference."""

    start: int
    end: int
    groups: tuple[Group, ...]
    is_open: bool

    @property
    def is_unused(self) -> bool:
        """True if no copy has a record in it."""
        return all(group.entry is None for group in self.groups)

    @property
    def is_small(self) -> bool:
        """True if at most one field of one record differs."""
        first, *others = self.groups
        return not self.is_open and all(
            same_bounds(first.pieces, other.pieces)
            and shapes.difference(first.data, other.data).size <= shapes.FIELD_MAX
            for other in others
        )


def groups_of(copies: Sequence[Copy], cell: Cell) -> list[Group]:
    """Members grouped by their bytes, larger groups first."""
    size = cell.end - cell.start
    by_data: dict[bytes, list[Copy]] = {}
    for copy in copies:
        by_data.setdefault(copy.read(cell.start, size), []).append(copy)
    groups = [Group(tuple(same), data, tuple(cell.pieces[same[0].side.name])) for data, same in by_data.items()]
    return sorted(groups, key=lambda group: -len(group.copies))


def believed(groups: Sequence[Group]) -> tuple[Group, str] | None:
    """The group whose bytes are right, and the evidence; None without evidence."""
    for ask, said in ((_as_digested, "digested when it wrote them"), (_as_queued, "says in its consume queue")):
        answers = [_verdict(group, ask) for group in groups]
        if answers.count(True) == 1:
            good = groups[answers.index(True)]
            return good, f"these bytes are what {good.name} {said}"
        refuted = answers.count(False)
        if refuted and len(groups) - refuted == 1:
            good, bad = (
                next(g for g, a in zip(groups, answers, strict=True) if (a is False) is w) for w in (False, True)
            )
            return good, f"these bytes are not what {bad.name} itself {said}"
    return by_number(groups)


def by_number(groups: Sequence[Group]) -> tuple[Group, str] | None:
    """The group that has the majority among three or more members."""
    members = sum(len(group.copies) for group in groups)
    most = max(groups, key=lambda group: len(group.copies))
    if members > 2 and 2 * len(most.copies) > members:
        return most, f"{len(most.copies)} of {members} have the same"
    return None


def _verdict(group: Group, ask: Callable[[Copy, Group], bool | None]) -> bool | None:
    """Combined answer of the members that can tell; one True is enough."""
    answers = {ask(copy, group) for copy in group.copies}
    return True if True in answers else False if False in answers else None


def _as_digested(copy: Copy, group: Group) -> bool | None:
    start = group.pieces[0].start
    return copy.as_digested(start, start + len(group.data))


def _as_queued(copy: Copy, group: Group) -> bool | None:
    answers = {copy.as_queued(piece.entry) for piece in group.pieces if piece.entry is not None}
    return False if False in answers else True if True in answers else None


def newest_line(cell: DivergentCell) -> tuple[Group | None, str]:
    """The group whose history continued, and the evidence."""
    groups = cell.groups
    epochs = [(epoch_of(group.copies[0].side, cell.start), group.name) for group in groups]
    keys = [max(_key(copy) for copy in group.copies) for group in groups]
    newest, before = sorted(keys, reverse=True)[:2]
    if newest[:3] != before[:3] and len({epoch.id if epoch is not None else None for epoch, _ in epochs}) > 1:
        good = groups[keys.index(newest)]
        lines = [f"epoch {epoch.epoch if epoch is not None else 'unknown'} on {name}" for epoch, name in epochs]
        return good, f"written in {' and '.join(lines)}; the newest history is that of {good.name}"
    return by_number(groups) or (None, "")


def epoch_of(side: LogBounds, offset: int) -> EpochEntry | None:
    """Epoch in which a byte was written; None without a history."""
    return epoch_at(side.epochs, offset) if side.epochs not in ((), (FIRST,)) else None


def _key(copy: Copy) -> tuple[int, bool, str, int]:
    side = copy.side
    return key_of(side.epochs, side.last) if side.epochs else (0, True, "", side.last)
