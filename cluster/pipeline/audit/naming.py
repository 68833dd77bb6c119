"""Builds findings about the log: name, place and evidence. Pure."""

from collections.abc import Iterator, Sequence

from attrs import evolve

from twinlog.cluster.pipeline.audit import shapes
from twinlog.cluster.pipeline.audit.cells import Copy
from twinlog.cluster.pipeline.audit.evidence import DivergentCell, Group, believed, epoch_of, newest_line
from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.store.record.scan import DispatchEntry
from twinlog.store.record.walk import FILE_ENDS
from twinlog.store.util.text import agreeing, counted


def why_broken(bad: Group, good: Group) -> str:
    reason = next(piece.broken for piece in bad.pieces if piece.broken is not None)
    return f"{reason}; sound on {good.name}"


def damaged(bad: Group, good: Group, start: int, why: str) -> Iterator[AuditFinding]:
    """Bytes of some members that another member has in sound form."""
    where = shapes.difference(bad.data, good.data)
    gap = shapes.hole(bad.data, where)
    if gap is None and any(piece.broken == FILE_ENDS for piece in bad.pieces) and not any(bad.data[where.first :]):
        gap = shapes.ChangedSpan(where.first, len(bad.data))
    for copy in bad.copies:
        common = _about(copy, good, start, where)
        if gap is not None:
            yield evolve(
                common,
                cls=FindingClass.HOLE,
                offset=start + gap.first,
                end=start + gap.end,
                what="a hole: zeros, or a file that is missing or too short",
                why=why.rpartition("; ")[2],  # The part that is the same for all parts of one hole.
            )
            continue
        elsewhere = [] if where.size <= shapes.FIELD_MAX else shapes.misplaced(bad.data, start, copy.side.file_size)
        if not elsewhere:
            yield evolve(common, what=_what_changed(bad, good, where), why=why)
            continue
        first, is_shift = elsewhere[0], shapes.is_shift(elsewhere)
        shift = first.claimed - first.offset
        distance = f"{counted(abs(shift), 'byte')} {'behind' if shift > 0 else 'before'}"
        yield evolve(
            common,
            cls=FindingClass.SHIFTED if is_shift else FindingClass.SWAPPED,
            offset=start,
            end=start + len(bad.data),
            what=f"records of {distance}" if is_shift else f"the record of offset {first.claimed} lies here",
            why=f"{'their own offsets say' if is_shift else 'its own offset says'} so; sound on {good.name}",
        )


def _about(copy: Copy, good: Group, start: int, where: shapes.ChangedSpan) -> AuditFinding:
    """A finding of bit rot at the bytes that differ; its texts are filled in by the caller."""
    at, end = start + where.first, start + where.end
    touched = [piece for piece in good.pieces if piece.start < end and at < piece.end]
    entry = next((piece.entry for piece in touched if piece.entry is not None), None)
    return AuditFinding(
        cls=FindingClass.BIT_ROT,
        member=copy.side.name,
        offset=at,
        end=end,
        what="",
        why="",
        good=good.name,
        since_ms=entry.store_timestamp if entry is not None else None,
        topic=entry.topic if entry is not None else None,
        queue_id=entry.queue_id if entry is not None else None,
        queue_offset=entry.queue_offset if entry is not None else None,
        file=copy.side.file_of(at),
        record=touched[0].start if touched else start,
        record_end=touched[-1].end if touched else end,
        count=max(1, len(touched)),
    )


def _what_changed(
    bad: Group, good: Group, where: shapes.ChangedSpan, verbs: tuple[str, str] = ("changed", "changed")
) -> str:
    """Text such as "3 bits changed in the body". `verbs`: singular and plural."""
    bits = shapes.changed_bits(bad.data, good.data, where)
    if where.size <= shapes.FIELD_MAX:
        many = f"{counted(bits, 'bit')} {agreeing(bits, *verbs)}"
    else:
        many = f"up to {counted(where.size, 'byte')} {verbs[1]}"
    start = good.pieces[0].start
    for piece in good.pieces:
        low, high = piece.start - start, piece.end - start
        if piece.entry is not None and low <= where.first and where.end <= high:
            inside = shapes.ChangedSpan(where.first - low, where.end - low)
            return f"{many} in the {shapes.fields_of(good.data[low:high], inside)}"
    return many


def changed(cell: DivergentCell) -> Iterator[AuditFinding]:
    """A sound record that is different on some member, between equal records."""
    best = believed(cell.groups)
    if best is None:
        yield from undecided(cell.groups, cell.start, "each copy is sound, and no digest or queue shows which is right")
        return
    good, why = best
    for group in cell.groups:
        if group is not good:
            yield from damaged(group, good, cell.start, why)


def undecided(groups: Sequence[Group], start: int, why: str) -> Iterator[AuditFinding]:
    """Bytes that differ from the reference without evidence which are right."""
    reference, *others = groups
    for group in others:
        where = shapes.difference(group.data, reference.data)
        for copy in group.copies:
            common = evolve(_about(copy, reference, start, where), cls=FindingClass.DIFFERS, good=None)
            what = _what_changed(group, reference, where, verbs=("differs", "differ"))
            yield evolve(common, what=what, why=f"{why}; compared with {reference.name}")


def diverged(first: DivergentCell, end: int, *, is_tail: bool) -> Iterator[AuditFinding]:
    """Sound records of several masters from an offset on."""
    good, why = newest_line(first)
    reference = good or first.groups[0]
    for group in first.groups:
        if group is reference:
            continue
        entry, other = group.entry, reference.entry
        for copy in group.copies:
            epoch = epoch_of(copy.side, first.start)
            yield AuditFinding(
                cls=FindingClass.DIVERGENT,
                member=copy.side.name,
                offset=first.start,
                end=copy.side.last if is_tail else end,
                what="other records from here on" if is_tail else "other records; equal again behind them",
                why=why or f"sound on both, stored at {_time(entry)} here and at {_time(other)} on {reference.name}",
                good=good.name if good is not None else None,
                epoch=epoch.epoch if epoch is not None else None,
                since_ms=entry.store_timestamp if entry is not None else (epoch.at_ms if epoch is not None else None),
                topic=entry.topic if entry is not None else None,
                queue_id=entry.queue_id if entry is not None else None,
                queue_offset=entry.queue_offset if entry is not None else None,
                file=copy.side.file_of(first.start),
                record=first.start,
                record_end=copy.side.last if is_tail else end,
            )


def _time(entry: DispatchEntry | None) -> str:
    return f"{entry.store_timestamp} ms" if entry is not None else "an unknown time"
