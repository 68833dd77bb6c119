"""What the audit's tasks do, wherever they run: digests of a part of a log, a look into what differs, a member's own tables.

No Spark here: a task is a function of what it is given. What cannot be read becomes part of the answer; the rest is audited.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, Protocol

from twinlog.cluster.pipeline.audit.classify import classify, tails
from twinlog.cluster.pipeline.audit.compare import Side, tail_findings
from twinlog.cluster.pipeline.audit.copies import StoreCopy
from twinlog.cluster.pipeline.audit.findings import AuditFinding
from twinlog.cluster.pipeline.audit.side_tables import check_range, check_tables
from twinlog.cluster.pipeline.audit.split_digests import (
    Differing,
    Digests,
    Part,
    SplitCompared,
    compared,
    digests_of,
    unreadable_finding,
)
from twinlog.cluster.pipeline.sources.files import StoreFiles, UnreadableError
from twinlog.cluster.pipeline.sources.splits import Split
from twinlog.store.errors import StoreError
from twinlog.store.offline.verify.log_check import Part as LogPart
from twinlog.store.offline.verify.verify import VerifyReport


class Sent(Protocol):
    """A value that every worker has once."""

    @property
    def value(self) -> dict[int, StoreFiles]:
        """The stores by number of member."""


class Counts(Protocol):
    """Adds up what tasks have done."""

    def add(self, term: int) -> None:
        """So many bytes more."""


def digest_parts(sent: Sent, done: Counts, parts: Iterable[Part]) -> Iterator[Digests]:
    """The digests of some parts of logs."""
    for part in parts:
        yield digests_of(sent.value[part.member], part)
        done.add(part.split.end - part.split.start)


def keyed(size: int, found: Digests) -> tuple[int, Digests]:
    """By the number of the split."""
    return found.start // size, found


def nothing(_found: Digests) -> None:
    """Where only that they were made counts."""


def compare_split(sides: Mapping[int, Side], size: int, found: tuple[int, Iterable[Digests]]) -> SplitCompared:
    """The digests of one split of all logs."""
    number, digests = found
    return compared(sides, Split(number * size, (number + 1) * size), digests)


def look_into_part(sent: Sent, done: Counts, sides: Mapping[int, Side], part: Differing) -> list[AuditFinding]:
    """What is wrong where logs differ, record by record."""
    with _copies(sent.value, sides, part.members) as copies:
        found = classify([copy for copy in copies if copy.side.has(*part.range)], *part.range)
    done.add(len(part.members) * (part.range.end - part.range.start))
    return found


def find_ends(sent: Sent, sides: Mapping[int, Side], members: Sequence[int]) -> list[AuditFinding]:
    """Who has not got everything yet, and who lost what it had."""
    try:
        with _copies(sent.value, sides, members) as copies:
            return tails(copies) if len(copies) > 1 else []
    except UnreadableError as error:
        shortest = min((sides[number] for number in members), key=lambda side: side.last)
        unreadable = unreadable_finding(shortest, (shortest.last, shortest.last, str(error)))
        return [*tail_findings([sides[number] for number in members]), unreadable]


@contextmanager
def _copies(
    stores: Mapping[int, StoreFiles], sides: Mapping[int, Side], members: Sequence[int]
) -> Iterator[list[StoreCopy]]:
    with ExitStack() as opened:
        yield [opened.enter_context(StoreCopy(sides[number], stores[number])) for number in members]


class FilePart(NamedTuple):
    """A part of a member's log, one file, that its queues and index are held against."""

    member: int
    start: int
    end: int


class Checked(NamedTuple):
    """What a check of one of these came to; `part` None: it could not be read, because of `problem`."""

    start: int
    part: LogPart | None
    problem: str


class MemberChecked(NamedTuple):
    """What lies beside a member's log; `report` None: it could not be checked, because of `problem`."""

    member: int
    report: VerifyReport | None
    problem: str


def check_file(sent: Sent, done: Counts, part: FilePart) -> tuple[int, Checked]:
    """The records of one file of a log, and what belongs to them in queues and index; by member."""
    try:
        found = check_range(sent.value[part.member], part.start, part.end, done.add)
    except (OSError, StoreError) as error:
        return part.member, Checked(part.start, None, str(error))
    return part.member, Checked(part.start, found, "")


def check_member(sent: Sent, found: tuple[int, Iterable[Checked]]) -> MemberChecked:
    """All that lies beside a member's log, once its files were checked."""
    member, checked = found[0], sorted(found[1], key=lambda each: each.start)
    parts = [each.part for each in checked if each.part is not None]
    if len(parts) < len(checked):
        return MemberChecked(member, None, next(each.problem for each in checked if each.part is None))
    try:
        return MemberChecked(member, check_tables(sent.value[member], parts), "")
    except (OSError, StoreError) as error:
        return MemberChecked(member, None, str(error))
