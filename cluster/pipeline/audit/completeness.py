"""Parts of a store that a member lacks though its log has every byte: the index, and the rest of a file. Pure."""

from collections.abc import Collection, Iterator

from attrs import frozen

from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.store.util.text import counted

CUT_AT_END = "its last file is cut exactly at the log's end; nothing says that a record is lost"
CUT_BEHIND_END = "its last file is cut behind the log's end; nothing says that a record is lost"
CUT_BEHIND_RECORDS = "a file is cut behind its last record; nothing says that a record is lost"
CUT_WITH_RECORDS = "its last file is cut, and records with it: queues or index speak of more"
CUTS = frozenset({CUT_AT_END, CUT_BEHIND_END, CUT_BEHIND_RECORDS, CUT_WITH_RECORDS})


@frozen
class StoreExtent:
    """Extent of the parts of one member's store.

    `file_size`: of a log file, as names and lengths of all of them suggest. `last_file`: the bytes of the log that it holds;
    None: no log. `index_files`: None for an archive of the log alone, which has no queues either. `indexed`: bytes of the log
    from the first to the last record that has a key in the index; None: no index.
    """

    name: str
    file_size: int
    log_start: int
    log_end: int
    files: int
    last_file: tuple[int, int] | None
    index_files: int | None
    indexed: tuple[int, int] | None = None


def incomplete(members: Collection[StoreExtent], truncated: Collection[str]) -> Iterator[AuditFinding]:
    """Findings of missing parts. `truncated`: members already known to have lost the end of their log, or of a file."""
    for member in members:
        yield from _without_index(member, members)
        if member.name not in truncated:
            yield from _cut_single_file(member, members)


def _without_index(member: StoreExtent, members: Collection[StoreExtent]) -> Iterator[AuditFinding]:
    """A missing index that another member has for records common to both: a member that is behind lacks nothing."""
    if member.index_files != 0:
        return
    for other in members:
        first, last = other.indexed or (0, -1)
        if other.index_files and first < member.log_end and member.log_start <= last:
            yield AuditFinding(
                cls=FindingClass.INDEX,
                member=member.name,
                what="it has no index: queries by key find nothing there",
                why=f"{other.name} has one, in {counted(other.index_files, 'file')}",
                good=other.name,
                file="index",
            )
            return


def _cut_single_file(member: StoreExtent, members: Collection[StoreExtent]) -> Iterator[AuditFinding]:
    """A cut in a log of one file, whose right size only the other members show."""
    if member.last_file is None:
        return
    start, end = member.last_file
    size = member.file_size if member.files > 1 else max(each.file_size for each in members)
    if member.log_end <= end < start + size and start % size == 0:
        yield cut_file(member.name, start, end, size, is_last=True, log_end=member.log_end)


def cut_file(
    name: str, start: int, end: int, size: int, *, is_last: bool, log_end: int, lost_records: bool = False
) -> AuditFinding:
    """A log file that has bytes `start` to `end`, where every file of the log has `size` bytes."""
    if not is_last:
        what = CUT_BEHIND_RECORDS
    elif lost_records:
        what = CUT_WITH_RECORDS
    else:
        what = CUT_AT_END if end == log_end else CUT_BEHIND_END
    return AuditFinding(
        cls=FindingClass.TRUNCATED,
        member=name,
        offset=end,
        end=start + size,
        what=what,
        why=f"it has {counted(end - start, 'byte')}, and files of this log have {size}; RocketMQ does not open it so",
        file=f"commitlog/{start:020d}",
    )
