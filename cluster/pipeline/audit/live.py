"""An audit of running brokers: `twinlog audit --live`. They answer digests themselves; no directory is read, no Spark needed.

The first member that answers is what the others are held against, as `twinlog log diff --live` does
(cluster/observe/live_diff.py), but past the first difference. A member reads 64 MiB a second at most for all who ask it, and
each is asked one thing at a time.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from attrs import define, field

from twinlog.cluster.client.api.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.observe.gather import member_address, words_of
from twinlog.cluster.observe.live_diff import Run, by_digests, by_samples, common_range, go_on
from twinlog.cluster.observe.log_side import LogSide
from twinlog.cluster.pipeline.audit.assembly import assembled
from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, FindingClass
from twinlog.cluster.pipeline.audit.live_judge import Asked, Judged, Pair, judge
from twinlog.cluster.pipeline.audit.report import AuditReport
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.store.integrity.digest import BLOCK_SIZE
from twinlog.store.util.text import agreeing, counted

Progress = Callable[[int, int], None]  # Bytes done, bytes in all.
PLACES_MAX = 100  # Of one pair, that are looked at one by one.
_ATTEMPTS = 5  # With logs that lose files or are cut meanwhile.


class _Compared(NamedTuple):
    """Bytes of two logs that were held against each other; `samples` None: all of them."""

    size: int
    samples: int | None
    is_complete: bool


async def audit_live(api: ClientApi, members: Sequence[str], progress: Progress) -> AuditReport:
    """Compare running brokers, named as `twinlog list` does, or by HOST:PORT; the master comes first.

    Who does not answer is named in the report. Raises NoMemberError for a name that nobody has, and RemotingError when nobody
    answers, or no name server that is needed for a name.
    """
    clock_ms = int(time.time() * 1000)
    named = [await member_address(api, member) for member in members]
    asked = [Asked(name, address, LogSide(api, address, name)) for name, address in named]
    _leave_out_aliases(asked)
    others = (each for each in asked if each.problem is None)
    errors = [error for error in await in_parallel(partial(_look, each) for each in others) if error is not None]
    there = tuple(each for each in asked if each.look is not None)
    if not there:
        raise errors[0]
    findings = AuditFindings()
    for each in asked:
        findings.extend(_of_member(each, there))
    compared = await _compare_all(api, there, findings, _Steps(progress))
    is_sampled = any(each.samples is not None for each in compared)
    return assembled(
        [each.told(is_master=number == 0) for number, each in enumerate(asked)],
        findings,
        clock_ms=clock_ms,
        is_complete=all(each.is_complete for each in compared) and len(there) > 1,
        is_sampled=is_sampled,
        blocks=sum(-(-each.size // BLOCK_SIZE) for each in compared if each.samples is None),
        differing_blocks=None,
        records=sum(each.samples or 0 for each in compared) if is_sampled else None,
    )


def _leave_out_aliases(asked: Sequence[Asked]) -> None:
    """A broker is equal to itself, by whatever names, which proves nothing."""
    known: dict[str, str] = {}
    for each in asked:
        if each.address in known:
            each.problem = f"it is {known[each.address]}, by another name"
        known.setdefault(each.address, each.name)


async def _look(asked: Asked) -> RemotingError | None:
    try:
        asked.look = await asked.side.look()
    except RemotingError as error:
        asked.problem = words_of(error)
        return error
    if asked.name == asked.address:
        asked.name = asked.side.name = asked.look.name
    return None


@define
class _Steps:
    """How far all pairs together are."""

    progress: Progress
    total: int = 0
    done: int = 0

    def at(self, size: int) -> None:
        self.progress(min(self.total, self.done + size), self.total)


async def _compare_all(
    api: ClientApi, members: tuple[Asked, ...], findings: AuditFindings, steps: _Steps
) -> list[_Compared]:
    """Hold all against the first one; where that one is wrong itself, the others against each other from there on."""
    found, everybody, start = list[_Compared](), members, 0
    while len(members) > 1:
        pairs = [_Comparison(api, Pair(members[0], other, everybody), findings, steps, start) for other in members[1:]]
        steps.total += sum(max(0, end - start) for start, end in (pair.bounds() for pair in pairs))
        found += [await pair.run() for pair in pairs]
        wrong_from = [pair.reference_wrong_from for pair in pairs if pair.reference_wrong_from is not None]
        if not wrong_from:
            break
        members, start = members[1:], min(wrong_from)
    return found


@define(eq=False)
class _Comparison:
    """Of two members, from where both begin, not before `start`, to where one ends, past differences."""

    api: ClientApi
    pair: Pair
    findings: AuditFindings
    steps: _Steps
    start: int = 0
    reference_wrong_from: int | None = field(default=None, init=False)

    def bounds(self) -> tuple[int, int]:
        start, end = common_range(self.pair.reference.now, self.pair.other.now)
        return max(start, self.start), end

    async def run(self) -> _Compared:
        start, end = self.bounds()
        sides = self.pair.reference.side, self.pair.other.side
        is_sampled = not all(side.is_twinlog for side in sides)
        at, samples, places, is_complete = start, 0, 0, not self._have_nothing_in_common()
        while at < end and is_complete:
            run = Run(at, end, at)
            await self._run(run, at - start, is_sampled=is_sampled)
            samples += run.samples
            if run.difference is None:
                is_complete = self._is_whole(run)
                break
            places += 1
            last = is_sampled or places == PLACES_MAX
            judged = await judge(self.api, self.pair, run, to_the_end=is_sampled)
            self._take(judged)
            at = judged.behind
            if last and at < end:
                why = (
                    "samples tell the first difference only"
                    if is_sampled
                    else f"{counted(PLACES_MAX, 'place')} that {agreeing(PLACES_MAX, 'differs is', 'differ are')} listed"
                )
                self.findings.add(self._not_compared(at, end, f"{why}; the rest was not looked at"))
                break
        for member in (self.pair.reference, self.pair.other):
            member.compared = max(member.compared, end - start)
        self.steps.done += max(0, end - start)
        self.steps.at(0)
        return _Compared(max(0, end - start), samples if is_sampled else None, is_complete)

    def _have_nothing_in_common(self) -> bool:
        """One log ends before the other one begins: that is no equality."""
        looks = self.pair.reference.now, self.pair.other.now
        start, end = common_range(*looks)
        if start < end or any(look.end_offset <= look.min_offset for look in looks):
            return False
        self.findings.add(self._not_compared(start, start, "one log ends before the other one begins"))
        return True

    def _take(self, judged: Judged) -> None:
        """Whoever is wrong in the eyes of several is listed once."""
        finding = judged.finding
        assert finding.offset is not None
        if judged.wrong is self.pair.reference:
            before = self.reference_wrong_from
            self.reference_wrong_from = finding.offset if before is None else min(finding.offset, before)
        if all((each.member, each.offset) != (finding.member, finding.offset) for each in self.findings.kept):
            self.findings.add(finding)
            judged.wrong.different += judged.behind - finding.offset

    async def _run(self, run: Run, base: int, *, is_sampled: bool) -> None:
        """Up to the first difference, or the end. The logs may lose files, or be cut, meanwhile."""
        sides = self.pair.reference.side, self.pair.other.side
        for _ in range(_ATTEMPTS):
            if run.equal_to >= run.end or run.difference is not None:
                break
            progress = partial(self._tell, base)
            if await go_on(sides, run, progress, by_samples if is_sampled else by_digests):
                break
        if run.equal_to >= run.end:  # All that both still have.
            run.reason = None

    def _tell(self, base: int, done: int, _total: int) -> None:
        self.steps.at(base + done)

    def _is_whole(self, run: Run) -> bool:
        if run.reason is not None:
            self.findings.add(self._not_compared(run.equal_to, run.end, run.reason))
        return run.reason is None

    def _not_compared(self, start: int, end: int, why: str) -> AuditFinding:
        return AuditFinding(
            cls=FindingClass.UNREADABLE,
            member=self.pair.other.name,
            offset=start,
            end=end,
            what=f"not compared with {self.pair.reference.name} from here on",
            why=why,
        )


def _of_member(asked: Asked, there: Sequence[Asked]) -> list[AuditFinding]:
    """What one member's own answers say."""
    if asked.look is None:
        why = asked.problem or "it does not answer"
        return [
            AuditFinding(cls=FindingClass.UNREADABLE, member=asked.name, what="the broker cannot be asked", why=why)
        ]
    found = []
    longest = max(there, key=lambda each: each.now.end_offset)
    others = [each for each in there if each is not asked]
    if asked.look.end_offset < longest.now.end_offset:
        found.append(
            AuditFinding(
                cls=FindingClass.LAG,
                member=asked.name,
                offset=asked.look.end_offset,
                end=longest.now.end_offset,
                what="ends earlier",
                why=f"{longest.name} goes on",
                good=longest.name,
            )
        )
    if asked.look.damaged_bytes:
        found.append(
            AuditFinding(
                cls=FindingClass.BIT_ROT,
                member=asked.name,
                what=f"{counted(asked.look.damaged_bytes, 'byte')} changed on its disk since they were written",
                why="its own scrub found them; digests are of what was written",
                good=others[0].name if others else None,
            )
        )
    return found
