"""What a difference between two running brokers is: who has the right bytes there, as far as somebody's answer tells.

A damaged record is wrong where the other one is sound. Of sound ones that differ the larger number of members decides, and else
the histories: what was written in an older epoch, where another member has a newer one, was given up.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from attrs import define, frozen

from twinlog.cluster.admin.roles import log_history
from twinlog.cluster.client.api.api import ClientApi, StoredRecord
from twinlog.cluster.client.tasks import in_parallel
from twinlog.cluster.observe.live_diff import LiveDifference, Run
from twinlog.cluster.observe.log_side import LiveSide, LogMovedError, LogSide
from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.audit.report import AuditedMember
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.ha.compare.digests import Question
from twinlog.ha.errors import HAPeerError
from twinlog.store.epoch_file import EpochEntry
from twinlog.store.integrity.digest import floor_block

UNCOMMON_ERRORS = (RemotingError, HAPeerError, LogMovedError)


@define(eq=False)
class Asked:
    """A member that is part of the audit; `look` None: it does not answer, because of `problem`. Sizes in bytes."""

    name: str
    address: str
    side: LogSide
    look: LiveSide | None = None
    problem: str | None = None
    compared: int = 0
    different: int = 0

    @property
    def now(self) -> LiveSide:
        """The look at one that answers."""
        assert self.look is not None
        return self.look

    def told(self, *, is_master: bool) -> AuditedMember:
        """For the report."""
        if self.look is None:
            return AuditedMember(
                name=self.name, place=self.address, is_master=is_master, is_live=True, problem=self.problem
            )
        return AuditedMember(
            name=self.name,
            place=self.address,
            is_master=is_master,
            is_live=True,
            software=self.look.software,
            is_running=True,
            first_offset=self.look.min_offset,
            last_offset=self.look.end_offset,
            confirmed_offset=self.look.confirmed_offset,
            compared_bytes=self.compared,
            equal_bytes=self.compared - self.different,
        )


@frozen
class Pair:
    """Two that are compared, and everybody who can be asked what they have in a place."""

    reference: Asked
    other: Asked
    everybody: tuple[Asked, ...]


class Judged(NamedTuple):
    """What a difference is; the comparison goes on at `behind`."""

    finding: AuditFinding
    wrong: Asked
    behind: int


async def judge(api: ClientApi, pair: Pair, run: Run, *, to_the_end: bool) -> Judged:
    """Say what the difference is that a comparison found. `to_the_end`: take all that both have behind it for one difference."""
    difference, end = run.difference, run.end
    assert difference is not None
    offset, ours, theirs = difference.first_offset, difference.left, difference.right
    behind = min(end, max(offset + 1, ours.end_offset, theirs.end_offset))
    both_sound = ours.problem is None and theirs.problem is None
    if both_sound and (to_the_end or await _differs_at_end(pair, behind, end)):
        behind = end
    wrong, good, why = await _who_is_wrong(pair, offset, difference)
    epoch = await _epoch_at(api, wrong, offset) if both_sound else None
    if both_sound and good is None and wrong is pair.other and epoch is not None:
        newer = await _epoch_at(api, pair.reference, offset)
        if newer is not None and newer > epoch:
            good, why = pair.reference, f"written in epoch {epoch}, and {pair.reference.name} has epoch {newer} there"
    record = ours if wrong is pair.reference else theirs
    message = record.message
    finding = AuditFinding(
        cls=_class_of(both_sound=both_sound, good=good),
        member=wrong.name,
        offset=record.start_offset if both_sound else offset,
        end=behind,
        what=_what(run, both_sound=both_sound, parted=behind == end, problem=record.problem),
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
    return Judged(finding, wrong, behind)


def _class_of(*, both_sound: bool, good: Asked | None) -> FindingClass:
    if both_sound:
        return FindingClass.DIVERGENT
    return FindingClass.BIT_ROT if good is not None else FindingClass.DIFFERS


def _what(run: Run, *, both_sound: bool, parted: bool, problem: str | None) -> str:
    if both_sound:
        return "other messages were written from here on" if parted else "another message was written here"
    if run.damaged_records > 1:
        return f"{run.damaged_records} records in a row are damaged"
    return problem or "not what the others have"


async def _differs_at_end(pair: Pair, start: int, end: int) -> bool:
    """Whether the last bytes that both have differ, too: then the logs have parted for good."""
    low = max(start, floor_block(end - 1))
    if low >= end:
        return True
    sides = pair.reference.side, pair.other.side
    try:
        answers = await in_parallel(partial(side.digests, Question(low, end, 1)) for side in sides)
    except UNCOMMON_ERRORS:
        return False
    return answers[0].digests != answers[1].digests


async def _who_is_wrong(pair: Pair, offset: int, difference: LiveDifference) -> tuple[Asked, Asked | None, str]:
    """(who is wrong, as far as that is known, whose copy is right, why)."""
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
    """Who has what there."""
    found: dict[bytes, list[Asked]] = {}
    for each in everybody:
        record = await _record(each, offset)
        if record is not None and record.data:
            found.setdefault(record.data, []).append(each)
    return found


async def _record(asked: Asked, offset: int) -> StoredRecord | None:
    try:
        return await asked.side.record_at(offset) if asked.side.is_twinlog else None
    except UNCOMMON_ERRORS:
        return None


async def _epoch_at(api: ClientApi, asked: Asked, offset: int) -> int | None:
    """In which epoch a member's bytes there were written, by its own history."""
    return next((entry.epoch for entry in reversed(await _epochs(api, asked)) if entry.start_offset <= offset), None)


async def _epochs(api: ClientApi, asked: Asked) -> tuple[EpochEntry, ...]:
    history = await log_history(api, asked.address) if asked.side.is_twinlog else None
    return tuple(history.entries) if history is not None else ()
