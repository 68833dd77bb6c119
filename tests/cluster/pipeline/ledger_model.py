"""A group of logs that grow, rot, are cut, replaced and repaired, and audits of them: a model in cells of half a block.

A cell has the value that was written, and the value that the disk gives. The ledger sees looks, digests and what is compared.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from attrs import define, field

from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.ledger import outcome
from twinlog.cluster.pipeline.ledger.claims import Mark, check_marks, still_holding
from twinlog.cluster.pipeline.ledger.outcome import RunFacts, after
from twinlog.cluster.pipeline.ledger.plan import plan, share_of
from twinlog.cluster.pipeline.ledger.values import (
    Compared,
    LedgerState,
    LogEpoch,
    Look,
    Piece,
    Planned,
    Reason,
    RunResult,
    Span,
    mark_of,
    size_of,
)
from twinlog.store.integrity.digest import BLOCK_SIZE, digest

CELL = BLOCK_SIZE // 2
HOUR, WEEK = 3_600_000, 7 * 24 * 3_600_000


@define(eq=False)
class Copy:
    """One member. `written` and `disk`: values by cell."""

    name: str
    store: str
    has_history: bool
    written: dict[int, int] = field(factory=dict)
    disk: dict[int, int] = field(factory=dict)
    first: int = 0
    last: int = 0
    epochs: tuple[LogEpoch, ...] = ()
    is_away: bool = False

    def put(self, cell: int, value: int) -> None:
        assert cell == self.last
        self.written[cell] = self.disk[cell] = value
        self.last += 1

    def cut(self, cell: int) -> None:
        for each in range(max(cell, self.first), self.last):
            del self.written[each], self.disk[each]
        self.last = max(self.first, min(self.last, cell))

    def look(self) -> Look:
        problem = "it does not answer" if self.is_away else None
        return Look(
            name=self.name,
            place=f"/data/{self.name}",
            first=self.first * CELL,
            last=self.last * CELL,
            store=self.store if self.has_history else "",
            epochs=self.epochs if self.has_history else (),
            problem=problem,
        )

    def digest(self, start: int, end: int) -> str:
        """Of bytes that need not be bounds of cells."""
        if start < self.first * CELL or end > self.last * CELL:
            return "nothing"
        cells = range(start // CELL, -(-end // CELL))
        return digest(repr((start, end, [self.disk[cell] for cell in cells])).encode()).hex()


@define(eq=False)
class World:
    """A group, its ledger's state, and what the members had when each run began."""

    seed: int
    has_history: bool
    count: int = 3
    chance: random.Random = field(init=False)
    members: list[Copy] = field(init=False)
    state: LedgerState = field(factory=LedgerState)
    now_ms: int = HOUR
    values: int = 0
    epoch: int = 0
    stores: int = 0
    then: dict[int, dict[str, tuple[str, dict[int, int], dict[int, int]]]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.members = [self.new(f"m{number}") for number in range(self.count)]
        self.elect(self.members[0])

    def new(self, name: str) -> Copy:
        self.stores += 1
        return Copy(name, f"s{self.stores}", self.has_history)

    @property
    def master(self) -> Copy:
        return self.members[0]

    # What happens to logs

    def elect(self, winner: Copy) -> None:
        self.members.remove(winner)
        self.members.insert(0, winner)
        self.epoch += 1
        winner.epochs = (*winner.epochs, LogEpoch(epoch=self.epoch, winner=winner.name, start=winner.last * CELL))

    def append(self, count: int) -> None:
        for _ in range(count):
            self.values += 1
            self.master.put(self.master.last, self.values)

    def follow(self, copy: Copy, count: int) -> None:
        """Cut what the master does not have, and fetch; the history is the master's, up to there."""
        master = self.master
        if copy is master:
            return
        if copy.last < master.first or copy.last == copy.first:
            copy.cut(copy.first)
            copy.first = copy.last = master.first
        at = copy.first
        while at < min(copy.last, master.last) and (at < master.first or copy.written[at] == master.written[at]):
            at += 1
        copy.cut(at)
        for cell in range(copy.last, min(master.last, copy.last + count)):
            copy.put(cell, master.written[cell])
        copy.epochs = tuple(each for each in master.epochs if each.start <= copy.last * CELL)

    def happen(self) -> None:
        """One event."""
        copy = self.chance.choice(self.members)
        kind = self.chance.choices(
            ("append", "follow", "rot", "heal", "role", "empty", "retention", "away", "member", "time"),
            (6, 8, 3, 3, 1, 1, 1, 1, 0.5, 2),
        )[0]
        if kind == "append":
            self.append(self.chance.randrange(8))
        elif kind == "follow":
            for each in self.members:
                self.follow(each, self.chance.choice((1, 5, 1000)))
        elif kind == "rot" and copy.disk:
            copy.disk[self.chance.choice(list(copy.disk))] = -self.chance.randrange(1, 1 << 40)
        elif kind == "heal":
            copy.disk.update(copy.written)
        elif kind == "role" and copy.last > copy.first:
            self.elect(copy)
        elif kind == "empty" and copy is not self.master:
            self.members[self.members.index(copy)] = self.new(copy.name)
        elif kind == "retention":
            first = min(copy.last, copy.first + self.chance.randrange(6))
            for cell in range(copy.first, first):
                del copy.written[cell], copy.disk[cell]
            copy.first = first
        elif kind == "away":
            copy.is_away = not copy.is_away
        elif kind == "member":
            if len(self.members) > self.count and copy is not self.master:
                self.members.remove(copy)
            elif len(self.members) == self.count:
                self.members.append(self.new(f"n{self.stores}"))
        self.now_ms += self.chance.choice((1, HOUR, 10 * HOUR)) if kind == "time" else 1

    # An audit

    def audit(self, *, is_whole: bool = True) -> RunResult:
        """One run. Not `is_whole`: it is interrupted."""
        looks = [copy.look() for copy in sorted(self.members, key=lambda copy: copy.name)]
        state, lost = still_holding(self.state, looks)
        asking = check_marks(state, looks)
        answers = None
        while True:
            try:
                marks = asking.send(answers)  # type: ignore[arg-type]
            except StopIteration as end:
                state, more = end.value
                break
            answers = {mark: self._has(mark) for mark in marks}
        planned = plan(state, looks, self.now_ms, WEEK)
        again = size_of(each for each in planned if each.reason is Reason.AGAIN)
        assert again <= share_of(state, self.now_ms, WEEK) + BLOCK_SIZE
        pieces = [piece for part in planned for piece in self._compared(part)]
        if not is_whole:
            pieces = pieces[: self.chance.randrange(len(pieces) + 1)]
        findings = tuple(
            AuditFinding(cls=FindingClass.DIFFERS, member=name, offset=piece.start, end=piece.end, what="", why="")
            for piece in pieces
            for name in piece.different
        )
        facts = RunFacts(started_ms=self.now_ms, ended_ms=self.now_ms, kind="directories", full_pass_ms=WEEK)
        result = after(state, looks, planned, Compared(pieces=tuple(pieces), findings=findings), facts, (*lost, *more))
        self.state = result.state
        self.then[self.state.run] = {
            copy.name: (copy.store, dict(copy.written), dict(copy.disk)) for copy in self.members
        }
        self.now_ms += 1
        return result

    def _has(self, mark: Mark) -> bool:
        copy = next(each for each in self.members if each.name == mark.member)
        return copy.digest(mark.start, mark.end) == mark.digest

    def _compared(self, part: Planned) -> Iterator[Piece]:
        step = outcome.MARK_EVERY
        bounds = sorted({part.start, part.end, *(at for at in range(0, part.end, CELL) if at > part.start)})
        spans = [Span(low, high) for low, high in pairwise(bounds)]
        for (*_, equal, different), same in groupby(spans, lambda span: (span.start // step, *self._groups(span))):
            found = list(same)
            start, end = found[0].start, found[-1].end
            copy = next((each for each in self.members if each.name in equal), None)
            mark = copy.digest(*mark_of(start, end)) if copy is not None else ""
            yield Piece(start=start, end=end, equal=equal, different=different, digest=mark)

    def _groups(self, span: Span) -> tuple[tuple[str, ...], tuple[str, ...]]:
        having = [copy for copy in self.members if copy.look().has(span)]
        cell = span.start // CELL
        values: dict[int, list[str]] = {}
        for copy in having:
            values.setdefault(copy.disk[cell], []).append(copy.name)
        most = max(values.values(), key=len)
        if len(most) < 2:
            return (), tuple(sorted(copy.name for copy in having))
        return tuple(sorted(most)), tuple(sorted(copy.name for copy in having if copy.name not in most))

    # What must hold

    def problems(self) -> Iterator[str]:
        """Claims that are not true."""
        proofs = self.state.proofs
        for before, proof in pairwise(proofs):
            if before.end > proof.start:
                yield f"{before} and {proof} overlap"
        now = {copy.name: copy for copy in self.members}
        for proof in proofs:
            then = self.then[proof.run]
            for cell in range(proof.start // CELL, -(-proof.end // CELL)):
                values = {then[name][2].get(cell) for name in proof.members if name in then}
                runs = [run for run in range(proof.run, self.state.run + 1) if self._equal_at(run, proof.members, cell)]
                if not runs:
                    yield f"{proof}: cell {cell} was never equal since: {values}"
                    continue
                for name in proof.members:
                    copy = now[name]
                    store, written, _ = self.then[runs[-1]][name]
                    if copy.is_away:
                        continue
                    if copy.written.get(cell) != written.get(cell):
                        yield f"{proof}: cell {cell} of {name} was written again"
                    if self.has_history and copy.store != store:
                        yield f"{proof}: {name} is another store"

    def _equal_at(self, run: int, names: Sequence[str], cell: int) -> bool:
        then = self.then[run]
        if not set(names) <= then.keys():
            return False
        values = {then[name][2].get(cell) for name in names}
        return len(values) == 1 and None not in values

    def unclaimed(self) -> Iterator[str]:
        """Bytes that readable members have, and that are neither proved of all of them nor known to differ."""
        bounds = sorted({copy.look().first for copy in self.members} | {copy.look().last for copy in self.members})
        for low in range(bounds[0], bounds[-1], CELL):
            span = Span(low, low + CELL)
            having = {copy.name for copy in self.members if copy.look().has(span)}
            proof = next((each for each in self.state.proofs if each.start <= low < each.end), None)
            fault = next((each for each in self.state.faults if each.start <= low < each.end), None)
            claimed = set(proof.members if proof is not None else ()) | set(fault.members if fault is not None else ())
            if len(having) > 1 and not having <= claimed:
                yield f"{span}: {sorted(having - claimed)} of {sorted(having)}"

    def heal(self) -> None:
        """Everything is repaired, nobody is away."""
        for copy in self.members:
            copy.disk.update(copy.written)
            copy.is_away = False
            self.follow(copy, 1 << 20)
