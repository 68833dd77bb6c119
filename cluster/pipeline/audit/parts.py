"""Divides the check of logs into parts: where members have the same bytes, the records of one of them are read for all. Pure.

What the members' own files say (queues, index, digests) is compared with these records for each member. A part begins and ends
with a record: at the ends of files, and at the end of a log, which another member's log with the same bytes continues.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from attrs import frozen

from twinlog.cluster.pipeline.audit.compare import ByteRange
from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.audit.side_tables import file_ranges
from twinlog.cluster.pipeline.sources.files import StoreFiles
from twinlog.cluster.pipeline.sources.log_bytes import Split
from twinlog.store.offline.verify.digest_check import NOTHING_COMPARED, ComparedDigests


@frozen
class LogPart:
    """A part of the log, and the members that have the same bytes there, or only one. `known`: for each of them."""

    members: tuple[int, ...]
    split: Split
    known: tuple[ComparedDigests, ...]


def parts_alone(files: Mapping[int, StoreFiles], known: Mapping[int, ComparedDigests]) -> list[list[LogPart]]:
    """The parts of each member that has any, each member for itself."""
    units = [[_part((number,), split, known) for split in file_ranges(each)] for number, each in files.items()]
    return [unit for unit in units if unit]  # An empty log has no queues or index to check.


def parts_together(
    files: Mapping[int, StoreFiles],
    known: Mapping[int, ComparedDigests],
    unequal: Sequence[ByteRange],
    alone: Collection[int] = (),
) -> list[LogPart]:
    """The parts of all members, in order. `unequal`: bytes in which they may differ; `alone`: members to read for themselves."""
    together: dict[tuple[int, int, int, bool], list[int]] = {}
    for number, each in files.items():
        whole = {file.start for file in each.log if file.size >= each.file_size} if number not in alone else set()
        has_crashed = each.has_abort and not each.is_running  # A last record that is torn is none then.
        for split in file_ranges(each):
            is_whole = split.start - split.start % each.file_size in whole
            key = (split.start, split.end, each.file_size if is_whole else -1 - number, has_crashed)
            together.setdefault(key, []).append(number)
    found: list[LogPart] = []
    for (start, end, *_), members in sorted(together.items()):
        ends = {number: max(start, min(files[number].end, end)) for number in members}
        found += (_part(group, split, known) for group, split in _shared(Split(start, end), ends, unequal))
    return found


def _shared(
    split: Split, ends: Mapping[int, int], unequal: Sequence[ByteRange]
) -> Iterator[tuple[tuple[int, ...], Split]]:
    """Parts of a file's bytes and their members. `ends`: of each member's log in them."""
    reached = dict.fromkeys(ends, split.start)
    low = split.start
    for high in sorted({end for end in ends.values() if end > split.start}):
        group = tuple(number for number, end in ends.items() if end >= high)
        if len(group) < 2 or any(part.start < high and low < part.end for part in unequal):
            break
        yield group, Split(low, high)
        reached |= dict.fromkeys(group, high)
        low = high
    for number, at in reached.items():
        if at < split.end:
            yield (number,), Split(at, split.end)


def _part(members: tuple[int, ...], split: Split, known: Mapping[int, ComparedDigests]) -> LogPart:
    compared = tuple(known.get(number, NOTHING_COMPARED).part(split.start, split.end) for number in members)
    return LogPart(members, split, compared)


def unequal_ranges(differing: Sequence[ByteRange], findings: Sequence[AuditFinding]) -> list[ByteRange]:
    """Bytes in which members may differ: those of findings about the logs, and differing ranges with one of these in them.

    A range whose digests differ because a log ends in it is equal when the comparison by records found nothing there.
    """
    found = [_span(each) for each in findings if each.cls is not FindingClass.LAG and each.offset is not None]
    return found + [
        part for part in differing if any(each.start < part.end and part.start < each.end for each in found)
    ]


def _span(finding: AuditFinding) -> ByteRange:
    """All bytes that a finding may be about."""
    starts = [at for at in (finding.offset, finding.record) if at is not None]
    ends = [at for at in (finding.end, finding.record_end) if at is not None]
    endless = finding.end is None or finding.cls in (FindingClass.TRUNCATED, FindingClass.DIVERGENT)
    return ByteRange(min(starts), 1 << 62 if endless else max([*ends, min(starts) + 1]))
