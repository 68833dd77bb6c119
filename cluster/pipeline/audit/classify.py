"""Classifies the differences between logs, and decides whose copy is right. Pure: logs are accessed through the Copy protocol.

Evidence, in this order: a record whose fields add up, that names its own offset and whose body matches its CRC, against bytes
that are no record; then, between sound records, the digests that twinlog kept of what it wrote; then each member's own consume
queue; then the majority of members. Without any of these, no copy is called wrong.

Sound records that differ up to the end of the logs were written by two masters: the histories of their epochs show which one
continued, or else the store times show when the logs diverged. Histories are compared as in ha/election/epochs.py.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from attrs import define, evolve, field

from twinlog.cluster.pipeline.audit import shapes
from twinlog.cluster.pipeline.audit.cells import CELL_MAX, REACH, Cell, Copy, LogPiece, cells, record_start
from twinlog.cluster.pipeline.audit.compare import tail_findings, unreadable
from twinlog.cluster.pipeline.audit.evidence import DivergentCell, Group, believed, epoch_of, groups_of, newest_line
from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, FindingClass
from twinlog.store.record.scan import DispatchEntry
from twinlog.store.record.walk import FILE_ENDS
from twinlog.store.util.text import agreeing, counted

_RUN_IS_SURE = 256  # Consecutive records that differ; after so many the rest of the log is taken to differ as well.
_ISLAND_MAX = 2  # At most so many between equal records were not written by another master.


def classify(copies: Sequence[Copy], start: int, end: int, *, cell_max: int = CELL_MAX) -> list[AuditFinding]:
    """Classify the differences in bytes `start` to `end`; the first copy is the reference.

    A copy that cannot be read becomes a finding, and the others are compared. Of very many findings the last ones are merged.
    """
    try:
        return _Classification(copies, cell_max).run(start, end)
    except OSError:
        bad = {copy.side.name: why for copy in copies if (why := _unreadable(copy, start, end)) is not None}
        if not bad:
            raise
        sides = {copy.side.name: copy.side for copy in copies}
        found = [unreadable(sides[name], start, end, why) for name, why in bad.items()]
        rest = [copy for copy in copies if copy.side.name not in bad]
        return found + (classify(rest, start, end, cell_max=cell_max) if len(rest) > 1 else [])


def _unreadable(copy: Copy, start: int, end: int) -> str | None:
    """Error of reading a copy's bytes in this range, or those that a walk to them needs; None: they can be read."""
    low, high = max(copy.side.first, start - REACH), min(copy.side.last, end + REACH)
    try:
        for at in range(low, high, 1 << 20):
            copy.read(at, min(1 << 20, high - at))
    except OSError as error:
        return str(error)
    return None


@define
class _Classification:
    copies: Sequence[Copy]
    cell_max: int
    findings: AuditFindings = field(factory=AuditFindings)
    _run: list[DivergentCell] = field(factory=list)
    _done: int = 0  # Cells up to here are classified.

    def run(self, start: int, end: int) -> list[AuditFinding]:
        places = {place for copy in self.copies for place in (copy.side.first, copy.side.last) if start < place < end}
        bounds = [start, *sorted(places), end]
        for low, high in pairwise(bounds):
            inside = [copy for copy in self.copies if copy.side.first <= low and high <= copy.side.last]
            if len(inside) > 1:
                self._classify(inside, low, high)
        return self.findings.with_rest()

    def _classify(self, copies: Sequence[Copy], start: int, end: int) -> None:
        is_tail = end == min(copy.side.last for copy in copies)
        diverged_to = end
        for cell in cells(copies, record_start(copies, start), end, cell_max=self.cell_max):
            if cell.end <= self._done:
                continue
            self._done = cell.end
            self._judge(copies, cell)
            if cell.is_open or (is_tail and len(self._run) >= _RUN_IS_SURE):
                self._finish_run(diverged_to, is_tail=True)
                self._done = max(self._done, end)
                return
        self._finish_run(diverged_to, is_tail=is_tail)

    def _judge(self, copies: Sequence[Copy], cell: Cell) -> None:
        groups = groups_of(copies, cell)
        if len(groups) == 1:
            self._finish_run(cell.start, is_tail=False)
            return
        sound = [group for group in groups if group.is_sound]
        broken = [group for group in groups if not group.is_sound]
        divergent = DivergentCell(cell.start, cell.end, tuple(sound), cell.is_open)
        if len(sound) > 1 and not divergent.is_unused:
            self._run.append(divergent)
        else:
            self._finish_run(cell.start, is_tail=False)
        if len(sound) > 1 and divergent.is_unused:
            self.findings.extend(_changed(divergent))
        if sound:
            for group in broken:
                self.findings.extend(_damaged(group, sound[0], cell.start, _why_broken(group, sound[0])))
        elif (best := believed(broken)) is not None:
            for group in broken:
                if group is not best[0]:
                    self.findings.extend(_damaged(group, best[0], cell.start, best[1]))
        else:
            self.findings.extend(_undecided(broken, cell.start, "no copy is sound here"))

    def _finish_run(self, end: int, *, is_tail: bool) -> None:
        """Classify a run of consecutive cells in which sound records differ."""
        run, self._run = self._run, []
        if not run:
            return
        small = [cell for cell in run if cell.is_small]
        if len(small) == len(run) or (not is_tail and len(run) <= _ISLAND_MAX):
            for cell in run:
                self.findings.extend(_changed(cell))
        else:
            self.findings.extend(_diverged(run[0], end if is_tail else run[-1].end, is_tail=is_tail))


def tails(copies: Sequence[Copy]) -> list[AuditFinding]:
    """Members that are behind, members that lost their end, and damage to last records. Raises OSError."""
    longest = max(copies, key=lambda copy: copy.side.last)
    found: list[AuditFinding] = []
    sides = []
    for copy in copies:
        side = copy.side
        if side.last < longest.side.last and not side.is_running:
            rotten, end = _beyond_end(copy, longest)
            found += rotten
            side = evolve(side, last=end)
        sides.append(side)
    return found + tail_findings(sides)


def _beyond_end(copy: Copy, longest: Copy) -> tuple[list[AuditFinding], int]:
    """Find the true end of a log that seems to end at a damaged record, and the damage before it."""
    at, found = copy.side.last, list[AuditFinding]()
    for piece in longest.pieces(at, min(longest.side.last, at + CELL_MAX)):
        size = piece.end - piece.start
        bad, good = copy.read(piece.start, size), longest.read(piece.start, size)
        if piece.broken is not None or piece.end > longest.side.last:
            break
        if bad != good:
            where = shapes.difference(bad, good)
            if not any(bad[where.first :]) or 2 * where.size > size:  # Incomplete, or another record.
                break
            reason = LogPiece(piece.start, piece.end, None, "it is no sound record")
            group, whole = Group((copy,), bad, (reason,)), Group((longest,), good, (piece,))
            found += _damaged(group, whole, piece.start, _why_broken(group, whole))
        at = piece.end
    return found, at


# Findings: name, place and evidence


def _why_broken(bad: Group, good: Group) -> str:
    reason = next(piece.broken for piece in bad.pieces if piece.broken is not None)
    return f"{reason}; sound on {good.name}"


def _damaged(bad: Group, good: Group, start: int, why: str) -> Iterator[AuditFinding]:
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


def _changed(cell: DivergentCell) -> Iterator[AuditFinding]:
    """A sound record that is different on some member, between equal records."""
    best = believed(cell.groups)
    if best is None:
        yield from _undecided(
            cell.groups, cell.start, "each copy is sound, and no digest or queue shows which is right"
        )
        return
    good, why = best
    for group in cell.groups:
        if group is not good:
            yield from _damaged(group, good, cell.start, why)


def _undecided(groups: Sequence[Group], start: int, why: str) -> Iterator[AuditFinding]:
    """Bytes that differ from the reference without evidence which are right."""
    reference, *others = groups
    for group in others:
        where = shapes.difference(group.data, reference.data)
        for copy in group.copies:
            common = evolve(_about(copy, reference, start, where), cls=FindingClass.DIFFERS, good=None)
            what = _what_changed(group, reference, where, verbs=("differs", "differ"))
            yield evolve(common, what=what, why=f"{why}; compared with {reference.name}")


def _diverged(first: DivergentCell, end: int, *, is_tail: bool) -> Iterator[AuditFinding]:
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
