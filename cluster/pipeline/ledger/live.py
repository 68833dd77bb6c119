"""A run over running brokers: they give digests of the planned ranges; where these differ, records are compared.

All members are asked for the same groups of blocks: 16 MiB each, and single blocks where groups differ. RocketMQ's brokers have
no digests: samples of the whole log are compared in each run, which takes as long for a log of any length.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from attrs import define, evolve, field

from twinlog.cluster.admin.roles import log_history
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.observe.gather import error_text, member_address
from twinlog.cluster.observe.log_side import LogMovedError, LogSide
from twinlog.cluster.pipeline.audit.compare import BlockRow, LogBounds, tail_findings
from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, FindingClass
from twinlog.cluster.pipeline.audit.live import (
    UNCOMMON_ERRORS,
    Asked,
    Steps,
    compare_all,
    inspect,
    leave_out_aliases,
    of_member,
)
from twinlog.cluster.pipeline.audit.report import LOG_CLASSES
from twinlog.cluster.pipeline.ledger.claims import Mark, check_ledger, check_marks, still_holding
from twinlog.cluster.pipeline.ledger.outcome import RunFacts, after
from twinlog.cluster.pipeline.ledger.pieces import differing, joined_pieces, parts_to_read, pieces_of
from twinlog.cluster.pipeline.ledger.plan import plan
from twinlog.cluster.pipeline.ledger.values import (
    Basis,
    Compared,
    LedgerState,
    LogEpoch,
    Look,
    Lost,
    Piece,
    Planned,
    Reason,
    RunResult,
    Span,
    mark_of,
)
from twinlog.ha.compare.digests import GROUP_BLOCKS_MAX, Digests
from twinlog.store.epoch_file import FIRST, EpochEntry
from twinlog.store.integrity.digest import BLOCK_SIZE, RangeDigests
from twinlog.store.util.progress import Progress, no_progress

KIND = "live"
PART = GROUP_BLOCKS_MAX * BLOCK_SIZE * 64  # Bytes of one question at most: 1 GiB, 64 digests.


async def run_live(
    api: ClientApi,
    state: LedgerState,
    members: Sequence[str],
    full_pass_ms: int,
    progress: Progress = no_progress,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
) -> tuple[RunResult, tuple[Asked, ...]]:
    """One run, the master comes first. Raises NoMemberError, and RemotingError when no member answers."""
    started_ms = int(time.time() * 1000)
    named = [await member_address(api, member) for member in members]
    asked = tuple(Asked(name, address, LogSide(api, address, name)) for name, address in named)
    leave_out_aliases(asked)
    errors = [
        error
        for error in await in_parallel(partial(inspect, each) for each in asked if each.problem is None)
        if error is not None
    ]
    there = tuple(each for each in asked if each.status is not None)
    if not there:
        raise errors[0]
    names = {look.place: look.name for look in state.members}
    for each in asked:
        if each.status is None:  # One named by its address has told its name in an earlier run.
            each.name = names.get(each.address, each.name)
    looks = list(await in_parallel(partial(_look, api, each) for each in asked))
    check_ledger(state, looks, KIND)
    state, lost = still_holding(state, looks)
    comparison = LiveComparison(api, {each.name: each for each in asked}, looks, Steps(progress), is_stopped)
    planned: tuple[Planned, ...]
    if all(each.side.is_twinlog for each in there):
        state, lost = await comparison.marked(state, lost)
        planned = plan(state, looks, started_ms, full_pass_ms)
        compared = await comparison.run(planned)
    else:
        planned, compared = await comparison.sampled()
    found = AuditFindings()
    for each in asked:
        found.extend(of_member(each, there))
    found.extend(tail_findings([LogBounds(each.name, each.now.min_offset, each.now.end_offset) for each in there]))
    compared = evolve(compared, findings=(*compared.findings, *found.kept))
    ended_ms = int(time.time() * 1000)
    facts = RunFacts(started_ms=started_ms, ended_ms=ended_ms, kind=KIND, full_pass_ms=full_pass_ms)
    return after(state, looks, planned, compared, facts, lost), asked


async def _look(api: ClientApi, asked: Asked) -> Look:
    if asked.status is None:
        return Look(name=asked.name, place=asked.address, problem=asked.problem or "it does not answer")
    store, entries = "", tuple[EpochEntry, ...]()
    if asked.side.is_twinlog:
        status = await api.member_status(asked.address)
        if status is not None and status.name:  # A name given is resolved by broker ids, which role changes exchange.
            asked.name = asked.side.name = status.name
        history = await log_history(api, asked.address)
        store = (status.member_id if status is not None else None) or ""
        entries = history.entries if history is not None and history.entries != (FIRST,) else ()
    return Look(
        name=asked.name,
        place=asked.address,
        first=asked.status.min_offset,
        last=asked.status.end_offset,
        store=store,
        epochs=tuple(LogEpoch(epoch=each.epoch, winner=each.winner, start=each.start_offset) for each in entries),
        software=asked.status.software,
    )


@define(eq=False)
class LiveComparison:
    """Compares ranges of several members' logs by the digests that they give."""

    api: ClientApi
    members: Mapping[str, Asked]
    looks: list[Look]
    steps: Steps
    is_stopped: Callable[[], bool]
    _read: int = field(default=0, init=False)
    _findings: AuditFindings = field(factory=AuditFindings, init=False)

    async def marked(self, state: LedgerState, lost: tuple[Lost, ...]) -> tuple[LedgerState, tuple[Lost, ...]]:
        """Check the last proved blocks. A member that does not answer keeps its proofs, and is away from then on."""
        asking = check_marks(state, self.looks)
        try:
            marks = next(asking)
            while True:
                answers = await in_parallel(partial(self._has, mark) for mark in marks)
                marks = asking.send(dict(zip(marks, answers, strict=True)))
        except StopIteration as end:
            state, more = end.value
        return state, (*lost, *more)

    async def _has(self, mark: Mark) -> bool:
        try:
            found = await self._digests(mark.member, Digests(mark.start, mark.end))
        except LogMovedError:
            return False
        except UNCOMMON_ERRORS as error:
            number = next(number for number, look in enumerate(self.looks) if look.name == mark.member)
            self.looks[number] = Look(name=mark.member, place=self.looks[number].place, problem=error_text(error))
            return True
        return found.end == mark.end and found.digests[0].hex() == mark.digest

    async def run(self, planned: Sequence[Planned]) -> Compared:
        """Compare the ranges, or as much as could be: a member that goes away, or loses bytes, ends it."""
        parts = list(parts_to_read(planned, self.looks, PART))
        self.steps.total = sum(span.end - span.start for span, _ in parts)
        pieces: list[Piece] = []
        for span, names in parts:
            if self.is_stopped():
                break
            try:
                pieces += await self._compared(span, names)
            except UNCOMMON_ERRORS as error:
                self._findings.add(_not_compared(names[-1], span, error_text(error)))
                break
            self.steps.done += span.end - span.start
            self.steps.at(0)
        joined = [await self._with_mark(piece) for piece in joined_pieces(pieces, planned)]
        for span, names in differing(joined):
            await self._judge(span, names)
        return Compared(
            pieces=tuple(joined), findings=tuple(self._findings.with_rest()), read_bytes=self._read, by=Basis.WRITTEN
        )

    async def _compared(self, span: Span, names: tuple[str, ...]) -> list[Piece]:
        """Groups of 16 MiB, and the blocks of those that differ."""
        found = list[Piece]()
        for piece in await self._asked(span, names, GROUP_BLOCKS_MAX):
            if piece.different:
                found += await self._asked(Span(piece.start, piece.end), names, 1)
            else:
                found.append(piece)
        return found

    async def _asked(self, span: Span, names: tuple[str, ...], blocks: int) -> list[Piece]:
        found, at = list[Piece](), span.start
        while at < span.end:
            question = Digests(at, span.end, blocks)
            answers = await in_parallel(partial(self._digests, name, question) for name in names)
            end = min(answer.end for answer in answers)
            rows = {name: _rows(answer, end) for name, answer in zip(names, answers, strict=True)}
            short = [each for each in rows.values() if not each or each[-1].end != end]
            if short:  # An answer ended within another one's group.
                again = Digests(at, end, blocks)
                answers = await in_parallel(partial(self._digests, name, again) for name in names)
                if min(answer.end for answer in answers) != end:
                    raise LogMovedError("a log changes while it is compared")
                rows = {name: _rows(answer, end) for name, answer in zip(names, answers, strict=True)}
            found += pieces_of(Span(at, end), names, rows, {})
            self._read += (end - at) * len(names)
            at = end
        return found

    async def _digests(self, name: str, question: Digests) -> RangeDigests:
        found = await self.members[name].side.digests(question)
        if found.start != question.start or not question.start < found.end <= question.end:
            raise LogMovedError(f"{name} gave digests of bytes {found.start} to {found.end}")
        return found

    async def _with_mark(self, piece: Piece) -> Piece:
        """The piece with the digest of its last block instead of that of its last group."""
        if len(piece.equal) < 2:
            return evolve(piece, digest="")
        try:
            found = await self._digests(piece.equal[0], Digests(*mark_of(piece.start, piece.end)))
        except UNCOMMON_ERRORS:
            return evolve(piece, digest="")
        return evolve(piece, digest=found.digests[0].hex())

    async def _judge(self, span: Span, names: Sequence[str]) -> None:
        """Compare records where digests differ."""
        asked = tuple(self.members[name] for name in self.members if name in names)
        await compare_all(self.api, asked, self._findings, self.steps, span.start, span.end)

    async def sampled(self) -> tuple[tuple[Planned, ...], Compared]:
        """Compare samples of all that members have in common."""
        there = tuple(each for each in self.members.values() if each.status is not None)
        await compare_all(self.api, there, self._findings, self.steps)
        start, end = max(each.now.min_offset for each in there), min(each.now.end_offset for each in there)
        wrong = {found.member for found in self._findings.kept if found.cls in LOG_CLASSES or _is_unread(found)}
        equal = tuple(each.name for each in there if each.name not in wrong)
        if start >= end or len(there) < 2:
            return (), Compared(findings=tuple(self._findings.with_rest()), by=Basis.SAMPLES)
        different = tuple(each.name for each in there if each.name in wrong)
        equal, different = (equal, different) if len(equal) > 1 else ((), tuple(each.name for each in there))
        piece = Piece(start=start, end=end, equal=equal, different=different)
        planned = (Planned(start=start, end=end, reason=Reason.NEW),)
        return planned, Compared(pieces=(piece,), findings=tuple(self._findings.with_rest()), by=Basis.SAMPLES)


def _not_compared(name: str, span: Span, why: str) -> AuditFinding:
    what = "not compared with the others from here on"
    return AuditFinding(cls=FindingClass.UNREADABLE, member=name, offset=span.start, end=span.end, what=what, why=why)


def _is_unread(finding: AuditFinding) -> bool:
    return finding.offset is not None and finding.end is not None and finding.offset < finding.end


def _rows(answer: RangeDigests, end: int) -> list[BlockRow]:
    return [BlockRow(*group) for group in answer.groups() if group[1] <= end]
