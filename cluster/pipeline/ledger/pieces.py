"""From digests of several copies of a range to the pieces that are equal, and who differs. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from attrs import evolve

from twinlog.cluster.pipeline.audit.compare import BlockRow
from twinlog.cluster.pipeline.ledger.values import MARK_EVERY, Look, Piece, Planned, Span

PIECES_MAX = 20_000  # Of one run; what differs behind them is one piece, in which nothing is proved.


def parts_to_read(
    planned: Iterable[Planned], looks: Sequence[Look], size: int
) -> Iterator[tuple[Span, tuple[str, ...]]]:
    """The planned ranges in parts of up to `size` bytes, and the members that have all of each: several."""
    readable = [look for look in looks if look.problem is None]
    ends = sorted({bound for look in readable for bound in (look.first, look.last)})
    for each in planned:
        cuts = chain(range(each.start - each.start % size + size, each.end, size), ends)
        bounds = sorted({each.start, each.end, *(at for at in cuts if each.start < at < each.end)})
        for span in map(Span, bounds, bounds[1:]):
            names = tuple(look.name for look in readable if look.has(span))
            if len(names) > 1:
                yield span, names


def pieces_of(
    span: Span, names: Sequence[str], rows: Mapping[str, Sequence[BlockRow]], bad: Mapping[str, Sequence[Span]]
) -> Iterator[Piece]:
    """Pieces of a part, a block each, or as many as have the same members equal. `bad`: bytes that a member cannot read.

    Of several groups of equal members the largest counts; of two of one size that of the member named first.
    """
    if not any(bad.values()) and len({tuple(rows[name]) for name in names}) == 1 and _is_cover(rows[names[0]], span):
        yield Piece(start=span.start, end=span.end, equal=tuple(names), digest=rows[names[0]][-1].digest.hex())
        return
    by_block: dict[Span, dict[str, bytes]] = {}
    for name in names:
        for row in rows[name]:
            by_block.setdefault(Span(row.start, row.end), {})[name] = row.digest
    at = span.start
    for block in sorted(by_block):
        if at < block.start:  # Nobody has a digest: files are missing or short.
            yield Piece(start=at, end=block.start, equal=(), different=tuple(names))
        found = by_block[block]
        if block.start >= at:
            yield _piece(block, names, found)
            at = block.end
    if at < span.end:
        yield Piece(start=at, end=span.end, equal=(), different=tuple(names))


def _is_cover(rows: Sequence[BlockRow], span: Span) -> bool:
    return (
        bool(rows)
        and (rows[0].start, rows[-1].end) == span
        and sum(row.end - row.start for row in rows) == span.end - span.start
    )


def _piece(block: Span, names: Sequence[str], found: Mapping[str, bytes]) -> Piece:
    groups: dict[bytes, list[str]] = {}
    for name in names:
        if name in found:
            groups.setdefault(found[name], []).append(name)
    digest, equal = max(groups.items(), key=lambda group: len(group[1]))
    if len(equal) < 2:
        return Piece(start=block.start, end=block.end, equal=(), different=tuple(names))
    rest = tuple(name for name in names if name not in equal)
    return Piece(start=block.start, end=block.end, equal=tuple(equal), different=rest, digest=digest.hex())


def joined_pieces(pieces: Iterable[Piece], planned: Iterable[Planned]) -> Iterator[Piece]:
    """Neighbours of one planned range with the same members as one, except at multiples of MARK_EVERY.

    No more than PIECES_MAX, and one for each planned range.
    """
    last: Piece | None = None
    count, bounds = 0, {each.start for each in planned}
    for piece in pieces:
        if last is None:
            last = piece
        elif last.end == piece.start and piece.start not in bounds and (count >= PIECES_MAX or _are_alike(last, piece)):
            if _are_alike(last, piece):
                last = evolve(piece, start=last.start)
            else:
                names = dict.fromkeys((*last.equal, *last.different, *piece.equal, *piece.different))
                last = Piece(start=last.start, end=piece.end, equal=(), different=tuple(names))
        else:
            yield last
            count += 1
            last = piece
    if last is not None:
        yield last


def _are_alike(one: Piece, other: Piece) -> bool:
    return bool(one.end % MARK_EVERY) and (one.equal, one.different) == (other.equal, other.different)


def differing(pieces: Iterable[Piece]) -> list[tuple[Span, tuple[str, ...]]]:
    """Ranges to compare record by record, and the members that have them."""
    found: list[tuple[Span, tuple[str, ...]]] = []
    for piece in pieces:
        if not piece.different:
            continue
        names = tuple(sorted({*piece.equal, *piece.different}))
        if found and found[-1][0].end == piece.start and found[-1][1] == names:
            piece = evolve(piece, start=found.pop()[0].start)
        found.append((Span(piece.start, piece.end), names))
    return found
