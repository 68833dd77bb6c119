"""Audit of running brokers: `twinlog audit --live`. They compute digests themselves; no directory is read, no Spark needed.

The first member that answers is compared with each of the others, as `twinlog log diff --live` does
(cluster/observe/live_diff.py), but beyond the first difference. A member reads at most 64 MiB a second for all its clients, and
each member gets one request at a time.

A damaged record is wrong where the other copy is sound. Between two sound ones the majority of members decides, else the
histories: bytes of an older epoch were given up where another member has a newer epoch there.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from attrs import define, evolve, field

from twinlog.cluster.admin.roles import log_history
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.observe.gather import error_text, member_address
from twinlog.cluster.observe.live_diff import LiveDifference, Run, by_digests, by_samples, common_range, go_on
from twinlog.cluster.observe.log_side import LiveSide, LogMovedError, LogSide
from twinlog.cluster.pipeline.audit.assembly import assembled
from twinlog.cluster.pipeline.audit.compare import LogBounds, tail_findings
from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, FindingClass
from twinlog.cluster.pipeline.audit.report import AuditedMember, AuditReport
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.ha.compare.digests import Digests
from twinlog.ha.errors import HAPeerError
from twinlog.store.integrity.digest import BLOCK_SIZE, floor_block
from twinlog.store.util.progress import Progress
from twinlog.store.util.text import agreeing, counted

UNCOMMON_ERRORS = (RemotingError, HAPeerError, LogMovedError)


@define(eq=False)
class Asked:
    """A member of the audit; `status` None: it does not answer, because of `problem`. Sizes in bytes."""

    name: str
    address: str
    side: LogSide
    status: LiveSide | None = None
    problem: str | None = None
    compared: int = 0
    different: int = 0

    @property
    def now(self) -> LiveSide:
        """Status of a member that answered."""
        assert self.status is not None
        return self.status

    def to_member(self, *, is_master: bool) -> AuditedMember:
        """As part of the report."""
        member = AuditedMember(
            name=self.name, place=self.address, is_master=is_master, is_live=True, problem=self.problem
        )
        if self.status is None:
            return member
        return evolve(
            member,
            software=self.status.software,
            is_running=True,
            first_offset=self.status.min_offset,
            last_offset=self.status.end_offset,
            confirmed_offset=self.status.confirmed_offset,
            compared_bytes=self.compared,
            equal_bytes=self.compared - self.different,
        )


async def judge(pair: "Pair", run: Run, *, to_the_end: bool) -> tuple[AuditFinding, Asked]:
    """Classify the difference that a comparison found; returns the member that is wrong, too.

    `to_the_end`: treat all common bytes behind it as one difference.
    """
    difference, end = run.difference, run.end
    assert difference is not None
    offset, ours, theirs = difference.first_offset, difference.left, difference.right
    behind = min(end, max(offset + 1, ours.end_offset, theirs.end_offset))
    both_sound = ours.problem is None and theirs.problem is None
    if both_sound and (to_the_end or await _differs_at_end(pair, behind, end)):
        behind = end
    wrong, good, why = await _who_is_wrong(pair, offset, difference)
    epoch = await _epoch_at(pair.api, wrong, offset) if both_sound else None
    if both_sound and good is None and wrong is pair.other and epoch is not None:
        newer = await _epoch_at(pair.api, pair.reference, offset)
        if newer is not None and newer > epoch:
            good, why = pair.reference, f"written in epoch {epoch}, and {pair.reference.name} has epoch {newer} there"
    record = ours if wrong is pair.reference else theirs
    message = record.message
    damage = FindingClass.BIT_ROT if good is not None else FindingClass.DIFFERS
    finding = AuditFinding(
        cls=FindingClass.DIVERGENT if both_sound else damage,
        member=wrong.name,
        offset=record.start_offset if both_sound else offset,
        end=behind,
        what=_what(run, both_sound=both_sound, diverged=behind == end, problem=record.problem),
        why=why,
        good=good.name if good is not None else None,
        epoch=epoch,
        since_ms=message.stored_ms if message is not None else None,
        topic=message.topic if message is not None else None,
        queue_id=message.queue_id if message is not None else None,
        queue_offset=message.queue_offset if message is not None else None,
        record=next((each.start_offset for each in (record, ours, theirs) if each.problem is None), None),
        record_end=behind,
        count=run.damaged_records,
    )
    return finding, wrong


def _what(run: Run, *, both_sound: bool, diverged: bool, problem: str | None) -> str:
    if both_sound:
        return "other messages were written from here on" if diverged else "another message was written here"
    if run.damaged_records > 1:
        return f"{run.damaged_records} records in a row are damaged"
    return problem or "not what the others have"


async def _differs_at_end(pair: "Pair", start: int, end: int) -> bool:
    """True if the last common bytes differ, too: then the logs have diverged for good."""
    low = max(start, floor_block(end - 1))
    if low >= end:
        return True
    sides = pair.reference.side, pair.other.side
    try:
        answers = await in_parallel(partial(side.digests, Digests(low, end)) for side in sides)
    except UNCOMMON_ERRORS:
        return False
    return answers[0].digests != answers[1].digests


async def _who_is_wrong(pair: "Pair", offset: int, difference: LiveDifference) -> tuple[Asked, Asked | None, str]:
    """(wrong member, as far as known; member with the right copy; reason)."""
    reference, other = pair.reference, pair.other
    left, right = difference.left.problem, difference.right.problem
    if (left is None) != (right is None):
        wrong, good = (other, reference) if left is None else (reference, other)
        return wrong, good, f"{right or left}; the copy of {good.name} is sound"
    copies = await _copies(pair.everybody, offset)
    most = max(copies.values(), key=len, default=[])
    if 2 * len(most) > sum(map(len, copies.values())) > 2:
        wrong = reference if other in most else other
        if wrong not in most:
            names = ", ".join(each.name for each in most)
            return wrong, most[0], f"{len(most)} members have the same there: {names}"
    return other, None, f"it is not what {reference.name} has there"


async def _copies(everybody: Sequence[Asked], offset: int) -> Mapping[bytes, list[Asked]]:
    """Members by the bytes that they have at an offset."""
    found: dict[bytes, list[Asked]] = {}
    for each in everybody:
        try:
            record = await each.side.record_at(offset) if each.side.is_twinlog else None
        except UNCOMMON_ERRORS:
            continue
        if record is not None and record.data:
            found.setdefault(record.data, []).append(each)
    return found


async def _epoch_at(api: ClientApi, asked: Asked, offset: int) -> int | None:
    """Epoch of a member's bytes at an offset, by its own history."""
    history = await log_history(api, asked.address) if asked.side.is_twinlog else None
    entries = history.entries if history is not None else ()
    return next((entry.epoch for entry in reversed(entries) if entry.start_offset <= offset), None)


PLACES_MAX = 100  # Differences of one pair that are examined one by one.
_ATTEMPTS = 5  # For logs that lose files or are truncated in the meantime.


class _Compared(NamedTuple):
    """Bytes of two logs that were compared; `samples` None: all of them."""

    size: int
    samples: int | None
    is_complete: bool


async def audit_live(api: ClientApi, members: Sequence[str], progress: Progress) -> AuditReport:
    """Compare running brokers, named as in `twinlog list`, or by HOST:PORT; the master comes first.

    A member that does not answer is named in the report. Raises NoMemberError for an unknown name, and RemotingError when no
    member answers, or no name server that is needed for a name.
    """
    clock_ms = int(time.time() * 1000)
    named = [await member_address(api, member) for member in members]
    asked = [Asked(name, address, LogSide(api, address, name)) for name, address in named]
    leave_out_aliases(asked)
    others = (each for each in asked if each.problem is None)
    errors = [error for error in await in_parallel(partial(inspect, each) for each in others) if error is not None]
    there = tuple(each for each in asked if each.status is not None)
    if not there:
        raise errors[0]
    findings = AuditFindings()
    for each in asked:
        findings.extend(of_member(each, there))
    findings.extend(tail_findings([LogBounds(each.name, each.now.min_offset, each.now.end_offset) for each in there]))
    compared = await compare_all(api, there, findings, Steps(progress))
    is_sampled = any(each.samples is not None for each in compared)
    return assembled(
        [each.to_member(is_master=number == 0) for number, each in enumerate(asked)],
        findings,
        clock_ms=clock_ms,
        is_complete=all(each.is_complete for each in compared) and len(there) > 1,
        is_sampled=is_sampled,
        blocks=sum(-(-each.size // BLOCK_SIZE) for each in compared if each.samples is None),
        differing_blocks=None,
        records=sum(each.samples or 0 for each in compared) if is_sampled else None,
    )


def leave_out_aliases(asked: Sequence[Asked]) -> None:
    """Leave out further names of the same broker: its equality to itself proves nothing."""
    known: dict[str, str] = {}
    for each in asked:
        if each.address in known:
            each.problem = f"it is {known[each.address]}, by another name"
        known.setdefault(each.address, each.name)


async def inspect(asked: Asked) -> RemotingError | None:
    """Ask for the member's status; returns why it does not answer."""
    try:
        asked.status = await asked.side.look()
    except RemotingError as error:
        asked.problem = error_text(error)
        return error
    if asked.name == asked.address:
        asked.name = asked.side.name = asked.status.name
    return None


@define
class Steps:
    """Overall progress of all pairs."""

    progress: Progress
    total: int = 0
    done: int = 0

    def at(self, size: int) -> None:
        """Show that so many bytes of the current pair are compared."""
        self.progress(min(self.total, self.done + size), self.total)


async def compare_all(
    api: ClientApi,
    members: tuple[Asked, ...],
    findings: AuditFindings,
    steps: Steps,
    start: int = 0,
    limit: int | None = None,
) -> list[_Compared]:
    """Compare all with the first member; where that one is wrong, the others with each other from there on.

    Only bytes `start` to `limit`; None: to the end.
    """
    found, everybody = list[_Compared](), members
    while len(members) > 1:
        pairs = [Pair(api, members[0], other, everybody, findings, steps, start, limit) for other in members[1:]]
        steps.total += sum(max(0, end - start) for start, end in (pair.bounds() for pair in pairs))
        found += [await pair.run() for pair in pairs]
        wrong_from = [pair.reference_wrong_from for pair in pairs if pair.reference_wrong_from is not None]
        if not wrong_from:
            break
        members, start = members[1:], min(wrong_from)
    return found


@define(eq=False)
class Pair:
    """Compares two members over the bytes that both have, in bytes `start` to `limit`, beyond the first difference."""

    api: ClientApi
    reference: Asked
    other: Asked
    everybody: tuple[Asked, ...]  # All members whose copies can be requested.
    findings: AuditFindings
    steps: Steps
    start: int = 0
    limit: int | None = None
    reference_wrong_from: int | None = field(default=None, init=False)

    def bounds(self) -> tuple[int, int]:
        start, end = common_range(self.reference.now, self.other.now)
        start = max(start, self.start)
        return start, end if self.limit is None else max(start, min(end, self.limit))

    async def run(self) -> _Compared:
        start, end = self.bounds()
        sides = self.reference.side, self.other.side
        is_sampled = not all(side.is_twinlog for side in sides)
        at, samples, places, is_complete = start, 0, 0, not self._have_nothing_in_common()
        while at < end and is_complete:
            run = Run(at, end, at)
            await self._run(run, at - start, is_sampled=is_sampled)
            samples += run.samples
            if run.difference is None:
                if run.reason is not None:
                    self.findings.add(self._not_compared(run.equal_to, run.end, run.reason))
                is_complete = run.reason is None
                break
            places += 1
            last = is_sampled or places == PLACES_MAX
            at = self._take(*await judge(self, run, to_the_end=is_sampled))
            if last and at < end:
                why = (
                    "samples tell the first difference only"
                    if is_sampled
                    else f"{counted(PLACES_MAX, 'place')} that {agreeing(PLACES_MAX, 'differs is', 'differ are')} listed"
                )
                self.findings.add(self._not_compared(at, end, f"{why}; the rest was not compared"))
                break
        for member in (self.reference, self.other):
            member.compared = max(member.compared, end - start)
        self.steps.done += max(0, end - start)
        self.steps.at(0)
        return _Compared(max(0, end - start), samples if is_sampled else None, is_complete)

    def _have_nothing_in_common(self) -> bool:
        """Report logs of which one ends before the other begins: they are not equal."""
        sides = self.reference.now, self.other.now
        start, end = common_range(*sides)
        if start < end or any(side.end_offset <= side.min_offset for side in sides):
            return False
        self.findings.add(self._not_compared(start, start, "one log ends before the other one begins"))
        return True

    def _take(self, finding: AuditFinding, wrong: Asked) -> int:
        """Add a finding, and return its end. A member that differs from several others is listed once."""
        assert finding.offset is not None
        assert finding.end is not None
        if wrong is self.reference:
            before = self.reference_wrong_from
            self.reference_wrong_from = finding.offset if before is None else min(finding.offset, before)
        if all((each.member, each.offset) != (finding.member, finding.offset) for each in self.findings.kept):
            self.findings.add(finding)
            wrong.different += finding.end - finding.offset
        return finding.end

    async def _run(self, run: Run, base: int, *, is_sampled: bool) -> None:
        """Compare up to the first difference or the end. Logs may lose files or be truncated in the meantime."""
        sides = self.reference.side, self.other.side
        compare = by_samples if is_sampled else by_digests
        for _ in range(_ATTEMPTS):
            if run.equal_to >= run.end or run.difference is not None:
                break
            if await go_on(sides, run, lambda done, _total: self.steps.at(base + done), compare):
                break
        if run.equal_to >= run.end:  # All that both logs still have.
            run.reason = None

    def _not_compared(self, start: int, end: int, why: str) -> AuditFinding:
        return AuditFinding(
            cls=FindingClass.UNREADABLE,
            member=self.other.name,
            offset=start,
            end=end,
            what=f"not compared with {self.reference.name} from here on",
            why=why,
        )


def of_member(asked: Asked, there: Sequence[Asked]) -> list[AuditFinding]:
    """Findings from one member's own status."""
    if asked.status is None:
        why = asked.problem or "it does not answer"
        return [
            AuditFinding(cls=FindingClass.UNREADABLE, member=asked.name, what="the broker does not answer", why=why)
        ]
    if not asked.status.damaged_bytes:
        return []
    others = [each for each in there if each is not asked]
    return [
        AuditFinding(
            cls=FindingClass.BIT_ROT,
            member=asked.name,
            what=f"{counted(asked.status.damaged_bytes, 'byte')} changed on its disk since they were written",
            why="its own scrub found them; digests are of what was written",
            good=others[0].name if others else None,
        )
    ]
