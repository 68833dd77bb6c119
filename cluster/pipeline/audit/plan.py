"""What the audit of directories decides between its steps: how to cut the work, and what of a log can be compared. No Spark."""

from collections.abc import Iterable, Sequence

from attrs import evolve

from twinlog.cluster.pipeline.audit.compare import Range, Side
from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.audit.split_digests import Differing
from twinlog.cluster.pipeline.sources.files import NotAStoreError, StoreFiles, UnreadableError, look
from twinlog.cluster.pipeline.sources.splits import SPLIT_SIZE

SPLIT_SIZE_LARGE = 256 << 20
RANGES_MAX = 10_000  # Looked into one by one; what is behind them is looked into as one.
_SPLITS_PER_CORE = 8


def split_size(sides: Iterable[Side], cores: int) -> int:
    """Large ones, where there are enough of them to keep all cores busy: what lies before a split is looked at, too."""
    total = sum(side.last - side.first for side in sides)
    return SPLIT_SIZE_LARGE if total >= _SPLITS_PER_CORE * cores * SPLIT_SIZE_LARGE else SPLIT_SIZE


def bounded(parts: Sequence[Differing]) -> list[Differing]:
    """So many ranges at most: what comes behind is one of them."""
    if len(parts) <= RANGES_MAX:
        return list(parts)
    rest = parts[RANGES_MAX - 1 :]
    members = tuple(sorted({number for part in rest for number in part.members}))
    return [*parts[: RANGES_MAX - 1], Differing(Range(rest[0].range.start, rest[-1].range.end), members)]


def before_unreadable_end(side: Side, findings: Iterable[AuditFinding]) -> Side:
    """A log whose last bytes cannot be read ends nobody knows where: what lies before them; the same side where they can."""
    mine = (found for found in findings if found.member == side.name and found.cls is FindingClass.UNREADABLE)
    for found in sorted(mine, key=lambda found: found.end or 0, reverse=True):
        if found.offset is not None and found.end is not None and found.offset < side.last <= found.end:
            side = evolve(side, last=max(side.first, found.offset), claimed=None)
    return side


def as_it_is_now(side: Side, files: StoreFiles) -> Side:
    """A running broker may have removed files meanwhile, or cut its log: what it has no more is no difference."""
    if not files.is_running:
        return side
    try:
        now = look(files.uri)
    except (NotAStoreError, UnreadableError):
        return side  # Whoever reads it next says so.
    first = max(side.first, now.first)
    return evolve(side, first=first, last=max(first, min(side.last, now.end)))


def is_known(finding: AuditFinding, log: Iterable[AuditFinding]) -> bool:
    """Whether it says once more that a file cannot be read."""
    return finding.cls is FindingClass.UNREADABLE and any(
        (known.cls, known.member, known.file) == (finding.cls, finding.member, finding.file) for known in log
    )
