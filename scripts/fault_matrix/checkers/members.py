"""Are the members' logs the same bytes, and are queues and index what a rebuild from the log would make? Reads stores only."""

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen
from xxhash import xxh3_128_digest

from scripts.fault_matrix.checkers.verdict import Verdict, verdict
from tests.support.disk.compare import end_offset, start_offset
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.finding import Severity
from twinlog.store.offline.verify.verify import verify

BLOCK = 64 * 1024


@frozen
class LogDigest:
    """The digests of a log's blocks, by the offset of each block; the first and the last may be parts of one."""

    start: int
    end: int
    blocks: Mapping[int, bytes]


def digest_of(commit_log: Path) -> LogDigest:
    """Read a log."""
    start, end = start_offset(commit_log), end_offset(commit_log)
    files = {int(path.name): path for path in commit_log.iterdir() if path.name.isdigit()}
    blocks: dict[int, bytes] = {}
    for first, path in sorted(files.items()):
        data = path.read_bytes()[: max(0, end - first)]
        for at in range(0, len(data), BLOCK):
            blocks[first + at] = xxh3_128_digest(data[at : at + BLOCK])
    return LogDigest(start, end, blocks)


def wrong_logs(logs: Mapping[str, LogDigest]) -> list[str]:
    """Where members' logs differ, after all of them could catch up."""
    if not logs:
        return ["no log was compared"]
    (name, first), *others = sorted(logs.items())
    wrong = []
    for other, log in others:
        if log.end != first.end:
            wrong.append(f"{name} ends at {first.end}, {other} at {log.end}")
        low = max(first.start, log.start)
        shared = sorted(at for at in first.blocks.keys() | log.blocks.keys() if at >= low)
        common_end = min(first.end, log.end)
        for at in shared:
            is_whole = at + BLOCK <= common_end or first.end == log.end
            if is_whole and first.blocks.get(at) != log.blocks.get(at):
                wrong.append(f"{name} and {other} differ in the block at {at}")
                break
    return wrong


def wrong_store(name: str, root: Path) -> list[str]:
    """What a whole check finds in a stopped store: each record, and each entry of queues and index against its record."""
    with StoreDirectory.open(root) as directory:
        report = verify(directory, processes=1)
    errors = [each for each in report.findings if each.severity is Severity.ERROR]
    return [f"{name}: {each}" for each in errors]


def members_equal(stores: Mapping[str, Path]) -> Verdict:
    """Oracle B, of the store directories of members that were stopped."""
    logs = {name: digest_of(root / "commitlog") for name, root in stores.items()}
    wrong = wrong_logs(logs)
    for name, root in stores.items():
        wrong += wrong_store(name, root)
    size = max((log.end for log in logs.values()), default=0)
    if not size:
        wrong.append("the logs are empty, so nothing was shown")
    return verdict("B", wrong, f"{len(logs)} stores, {size} bytes of log each")
