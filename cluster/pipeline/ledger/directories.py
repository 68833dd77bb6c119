"""A run over store directories: looks at each, and compares the planned ranges by digests, and records where these differ.

It needs no Spark: what came since the last run is little. Each member is read in a thread of its own.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from attrs import define, evolve, field

from twinlog.cluster.pipeline.audit import tasks
from twinlog.cluster.pipeline.audit.compare import ByteRange, LogBounds, unreadable
from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, FindingClass
from twinlog.cluster.pipeline.audit.stores import Store, as_it_is_now, bounded, inspect_all, without_secrets
from twinlog.cluster.pipeline.audit.tasks import Differing, MemberSplit, SplitDigests
from twinlog.cluster.pipeline.ledger.claims import Mark, check_ledger, check_marks, still_holding
from twinlog.cluster.pipeline.ledger.outcome import RunFacts, after
from twinlog.cluster.pipeline.ledger.pieces import differing, joined_pieces, parts_to_read, pieces_of
from twinlog.cluster.pipeline.ledger.plan import plan
from twinlog.cluster.pipeline.ledger.values import (
    Compared,
    LedgerState,
    LogEpoch,
    LogPart,
    Look,
    Lost,
    Piece,
    Planned,
    RunResult,
    Span,
)
from twinlog.cluster.pipeline.sources.files import SIDE, StoreFiles
from twinlog.cluster.pipeline.sources.log_bytes import SPLIT_SIZE, LogBytes, Split
from twinlog.cluster.pipeline.sources.places import list_files, read_all
from twinlog.store.epoch_file import FIRST
from twinlog.store.integrity.digest import digest
from twinlog.store.member_file import NAME as MEMBER
from twinlog.store.member_file import decode_member
from twinlog.store.util.progress import Progress, no_progress

KIND = "directories"


def run_directories(
    state: LedgerState,
    places: Sequence[str],
    full_pass_ms: int,
    progress: Progress = no_progress,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
) -> tuple[RunResult, tuple[Store, ...]]:
    """One run; the master's directory comes first. `is_stopped`: end early, with what was compared until then."""
    started_ms = int(time.time() * 1000)
    stores = named_as_before(state, inspect_all(places))
    members = {store.name: store for store in stores}
    looks = tuple(_look(store) for store in stores)
    check_ledger(state, looks, KIND)
    state, lost = still_holding(state, looks)
    state, lost = _marked(state, looks, members, lost)
    planned = plan(state, looks, started_ms, full_pass_ms)
    compared = DirectoryComparison(members, looks, planned, progress, is_stopped).run()
    notes = [_unread(store, "a file beside the log cannot be used", note) for store in stores for note in store.notes]
    notes += [_unread(store, "it could not be read", store.problem) for store in stores if store.problem is not None]
    compared = evolve(compared, findings=(*compared.findings, *notes))
    ended_ms = int(time.time() * 1000)
    facts = RunFacts(started_ms=started_ms, ended_ms=ended_ms, kind=KIND, full_pass_ms=full_pass_ms)
    return after(state, looks, planned, compared, facts, lost), stores


def named_as_before(state: LedgerState, stores: Sequence[Store]) -> tuple[Store, ...]:
    """Stores by the names that the ledger has for their places; a new one gets a name that no other has."""
    known = {look.place: look.name for look in state.members}
    taken = {known[store.place] for store in stores if store.place in known}
    found = []
    for store in stores:
        name = known.get(store.place)
        if name is None:
            number, name = 1, store.name
            while name in taken:
                number, name = number + 1, f"{store.name} ({number + 1})"
            taken.add(name)
        found.append(evolve(store, name=name))
    return tuple(found)


def _look(store: Store) -> Look:
    files = store.files
    if files is None:
        return Look(name=store.name, place=store.place, problem=store.problem)
    software = "twinlog" if store.is_ours else "RocketMQ"
    epochs = () if files.epochs == (FIRST,) else files.epochs
    try:
        return Look(
            name=store.name,
            place=store.place,
            first=files.first,
            last=files.end,
            store=_identity(files),
            epochs=tuple(LogEpoch(epoch=each.epoch, winner=each.winner, start=each.start_offset) for each in epochs),
            parts=tuple(_parts(files)),
            software=software,
        )
    except OSError as error:
        return Look(name=store.name, place=store.place, problem=without_secrets(str(error)))


def _identity(files: StoreFiles) -> str:
    """The id in twinlog/member; "": there is none."""
    raw = read_all(files.uri.root.child(f"{SIDE}/{MEMBER}"))
    try:
        return decode_member(raw).id if raw is not None else ""
    except ValueError:
        return ""


def _parts(files: StoreFiles) -> Iterator[LogPart]:
    """Files that hold bytes of the log. Object storage has no ids, and a file in it is never written again in part."""
    places = files.uri.log_places or (files.uri.root.child("commitlog"),)
    times = {} if files.uri.is_local else {info.name: info.mtime_ns for place in places for info in list_files(place)}
    for file in files.log:
        start, end = max(file.start, files.first), min(file.start + files.file_size, files.end)
        if start >= end:
            continue
        status = os.stat(file.uri.path) if file.uri.is_local else None
        is_full = file.start + files.file_size <= files.end
        mtime = status.st_mtime_ns if status is not None else times.get(file.uri.name, 0)
        yield LogPart(
            start=file.start,
            end=file.start + files.file_size,
            id=str(status.st_ino) if status is not None else "",
            written=str(mtime) if is_full else "",
        )


def _marked(
    state: LedgerState, looks: Sequence[Look], members: Mapping[str, Store], lost: tuple[Lost, ...]
) -> tuple[LedgerState, tuple[Lost, ...]]:
    """Check the last proved blocks."""
    asking = check_marks(state, looks)
    try:
        marks = next(asking)
        while True:
            marks = asking.send({mark: _has(members[mark.member], mark) for mark in marks})
    except StopIteration as end:
        state, more = end.value
    return state, (*lost, *more)


def _has(store: Store, mark: Mark) -> bool:
    assert store.files is not None
    buffer = bytearray(mark.end - mark.start)
    with closing(LogBytes(store.files.log, store.files.file_size)) as source:
        return not source.fill(mark.start, memoryview(buffer)) and digest(buffer).hex() == mark.digest


def _unread(store: Store, what: str, why: str | None) -> AuditFinding:
    return AuditFinding(cls=FindingClass.UNREADABLE, member=store.name, what=what, why=without_secrets(why or ""))


@define
class _Sent:
    """As a broadcast value of Spark."""

    value: dict[int, StoreFiles]


@define(eq=False)
class DirectoryComparison:
    """Compares the planned ranges. Members are read by number, as in tasks.py."""

    members: Mapping[str, Store]
    looks: Sequence[Look]
    planned: Sequence[Planned]
    progress: Progress
    is_stopped: Callable[[], bool]
    _files: dict[int, StoreFiles] = field(init=False)
    _sides: dict[int, LogBounds] = field(init=False)
    _numbers: dict[str, int] = field(init=False)
    _findings: list[AuditFinding] = field(factory=list, init=False)
    _read: int = field(default=0, init=False)
    _total: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        stores = list(self.members.values())
        self._numbers = {store.name: number for number, store in enumerate(stores)}
        self._files = {number: store.files for number, store in enumerate(stores) if store.files is not None}
        self._sides = {number: stores[number].side for number in self._files}

    def run(self) -> Compared:
        """Compare all, or as much as could be before it was stopped."""
        parts = list(parts_to_read(self.planned, self.looks, SPLIT_SIZE))
        self._total = sum((span.end - span.start) * len(names) for span, names in parts)
        with ThreadPoolExecutor(max(1, len(self._files))) as pool:
            pieces = tuple(joined_pieces(self._pieces(parts, pool), self.planned))
        if any(piece.different for piece in pieces):
            self._compare_records(pieces)
        if not self.is_stopped():
            self._find_ends()
        findings = AuditFindings()
        findings.extend(sorted(self._findings, key=lambda found: (found.member, found.cls, found.offset or 0)))
        return Compared(
            pieces=pieces,
            findings=tuple(evolve(found, why=without_secrets(found.why)) for found in findings.with_rest()),
            read_bytes=self._read,
        )

    def _pieces(self, parts: Sequence[tuple[Span, tuple[str, ...]]], pool: ThreadPoolExecutor) -> Iterator[Piece]:
        for span, names in parts:
            if self.is_stopped():
                return
            found = dict(zip(names, pool.map(self._digests, names, [span] * len(names)), strict=True))
            rows = {name: each.rows() for name, each in found.items()}
            bad = {name: [Span(start, end) for start, end, _ in each.unreadable] for name, each in found.items()}
            for name, each in found.items():
                side = self._sides[self._numbers[name]]
                self._findings += [unreadable(side, *gap) for gap in each.unreadable]
            self._read += sum(row.end - row.start for each in rows.values() for row in each)
            self.progress(min(self._read, self._total), self._total)
            yield from pieces_of(span, names, rows, bad)

    def _digests(self, name: str, span: Span) -> SplitDigests:
        number = self._numbers[name]
        files = evolve(self._files[number], first=span.start, end=span.end)
        return tasks.digests_of(files, MemberSplit(number, Split(span.start, span.end)))

    def _compare_records(self, pieces: Sequence[Piece]) -> None:
        """Findings where digests differ. What a running broker cut or deleted in the meantime is no difference."""
        sides = {number: as_it_is_now(side, self._files[number]) for number, side in self._sides.items()}
        parts = [
            Differing(ByteRange(*span), tuple(self._numbers[name] for name in names))
            for span, names in differing(pieces)
        ]
        for part in bounded(parts):
            readable = tuple(number for number in part.members if not self._is_unreadable(number, part.range))
            if self.is_stopped():
                return
            if len(readable) > 1:
                self._compare_part(sides, Differing(part.range, readable))

    def _compare_part(self, sides: Mapping[int, LogBounds], part: Differing) -> None:
        try:
            self._findings += tasks.compare_part(_Sent(self._files), lambda _: None, sides, part)
        except OSError as error:
            self._findings.append(unreadable(sides[part.members[-1]], *part.range, str(error)))

    def _is_unreadable(self, number: int, part: ByteRange) -> bool:
        name = self._sides[number].name
        return any(
            each.cls is FindingClass.UNREADABLE
            and each.member == name
            and each.offset is not None
            and each.offset < part.end
            and part.start < (each.end or 0)
            for each in self._findings
        )

    def _find_ends(self) -> None:
        numbers = tuple(number for number, side in self._sides.items() if side.first < side.last)
        if len(numbers) > 1:
            self._findings += tasks.find_ends(_Sent(self._files), self._sides, numbers)
