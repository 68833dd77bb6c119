"""Parts of a store that one member lacks though no byte of its log does: the index, the rest of its last file. Pure."""

from collections.abc import Collection, Iterator

from attrs import frozen

from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass

CUT_AT_END = "its last file is cut exactly at the log's end; nothing says that a record is lost"


@frozen
class StoreParts:
    """Of one member. `file_size`: what its files say that each has; `last_file` starts and ends there; None: it has no log.

    `index_files`: None for a store that has no queues either, an archive of the log alone.
    """

    name: str
    file_size: int
    log_end: int
    files: int
    last_file: tuple[int, int] | None
    index_files: int | None


def incomplete(members: Collection[StoreParts], truncated: Collection[str]) -> Iterator[AuditFinding]:
    """What each lacks. `truncated`: members of which anything says that they lost the end of their log."""
    for member in members:
        yield from _without_index(member, members)
        if member.name not in truncated:
            yield from _cut_file(member, members)


def _without_index(member: StoreParts, members: Collection[StoreParts]) -> Iterator[AuditFinding]:
    with_index = next((each for each in members if each.index_files), None)
    if member.index_files == 0 and with_index is not None:
        yield AuditFinding(
            cls=FindingClass.INDEX,
            member=member.name,
            what="it has no index: queries by key find nothing there",
            why=f"{with_index.name} has one, in {_files(with_index.index_files or 0)}",
            good=with_index.name,
            file="index",
        )


def _cut_file(member: StoreParts, members: Collection[StoreParts]) -> Iterator[AuditFinding]:
    if member.last_file is None:
        return
    start, end = member.last_file
    # A single file does not tell what size it should have: those of the others do.
    size = member.file_size if member.files > 1 else max(each.file_size for each in members)
    if end == member.log_end and end - start < size and start % size == 0:
        yield AuditFinding(
            cls=FindingClass.TRUNCATED,
            member=member.name,
            offset=end,
            end=start + size,
            what=CUT_AT_END,
            why=f"it has {end - start} bytes, and files of this log have {size}; RocketMQ does not open it so",
            file=f"commitlog/{start:020d}",
        )


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"
