"""Members of an audit of directories, opened once each, and how the work on them is divided. No Spark.

A member that is no store, or cannot be read, is named in the report and left out.
"""

import os
import re
from collections.abc import Iterable, Sequence

from attrs import evolve, frozen

from twinlog.cluster.pipeline.audit.assembly import names_of
from twinlog.cluster.pipeline.audit.compare import ByteRange, LogBounds
from twinlog.cluster.pipeline.audit.copies import side_of
from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass
from twinlog.cluster.pipeline.audit.report import AuditedMember
from twinlog.cluster.pipeline.audit.tasks import Differing
from twinlog.cluster.pipeline.sources.files import SIDE, NotAStoreError, StoreFiles, inspect_store
from twinlog.cluster.pipeline.sources.log_bytes import SPLIT_SIZE
from twinlog.cluster.pipeline.sources.places import StoreUri, UnreadableError, list_files


@frozen(kw_only=True)
class Store:
    """A member; `files` None: it could not be opened, because of `problem`. `notes`: small files that could not be read."""

    name: str
    place: str
    is_master: bool = False
    files: StoreFiles | None = None
    problem: str | None = None
    notes: tuple[str, ...] = ()
    is_ours: bool = False  # twinlog wrote to it.

    @property
    def side(self) -> LogBounds:
        """Bounds of its log."""
        assert self.files is not None
        return side_of(self.name, self.files)

    def to_member(self) -> AuditedMember:
        """As part of the report, before anything is compared."""
        member = AuditedMember(
            name=self.name, place=self.place, is_master=self.is_master, is_live=False, problem=self.problem
        )
        files = self.files
        if files is None:
            return member
        return evolve(
            member,
            software="twinlog" if self.is_ours else "RocketMQ",
            is_running=files.is_running,
            first_offset=files.first,
            last_offset=files.end,
            confirmed_offset=files.confirmed,
        )


def inspect_all(places: Sequence[str | StoreUri]) -> list[Store]:
    """Inspect each member; the first one is the master."""
    texts = [place.text if isinstance(place, StoreUri) else place for place in places]
    names = names_of(texts)
    return [_inspect(names[number], text, is_master=number == 0) for number, text in enumerate(texts)]


def same_places(places: Sequence[str]) -> tuple[str, str] | None:
    """The first two names of the same store; None when all are different stores."""
    known: dict[str, str] = {}
    for place in places:
        uri = StoreUri(place).root
        real = os.path.realpath(uri.path) if uri.is_local else uri.shown
        if real in known:
            return known[real], place
        known[real] = place
    return None


def _inspect(name: str, text: str, *, is_master: bool) -> Store:
    uri, place = StoreUri(text), without_secrets(text)
    try:
        files = inspect_store(uri)
        is_ours = bool(list_files(uri.child(SIDE)))
    except NotAStoreError as error:
        return Store(name=name, place=place, is_master=is_master, problem=without_secrets(error.why))
    except UnreadableError as error:
        return Store(name=name, place=place, is_master=is_master, problem=without_secrets(str(error)))
    notes = tuple(map(without_secrets, files.problems))
    return Store(name=name, place=place, is_master=is_master, files=files, notes=notes, is_ours=is_ours)


def without_secrets(text: str) -> str:
    """Text with places in it, without the parts that may hold keys: those behind ? or before @."""
    return re.sub(r"(\w+://)(?:[^/@\s]*@)?([^?;\s]*)(?:\?[^;\s']*?(?=: |[;\s']|$))?", r"\1\2", text)


SPLIT_SIZE_LARGE = 256 << 20
RANGES_MAX = 10_000  # Ranges compared one by one; the rest is one range.
_SPLITS_PER_CORE = 8


def split_size(sides: Iterable[LogBounds], cores: int) -> int:
    """Size of splits: large if there are enough to keep all cores busy, since each needs a walk before its start."""
    total = sum(side.last - side.first for side in sides)
    return SPLIT_SIZE_LARGE if total >= _SPLITS_PER_CORE * cores * SPLIT_SIZE_LARGE else SPLIT_SIZE


def bounded(parts: Sequence[Differing]) -> list[Differing]:
    """Limit the number of ranges: those beyond the limit are merged into one."""
    if len(parts) <= RANGES_MAX:
        return list(parts)
    rest = parts[RANGES_MAX - 1 :]
    members = tuple(sorted({number for part in rest for number in part.members}))
    return [*parts[: RANGES_MAX - 1], Differing(ByteRange(rest[0].range.start, rest[-1].range.end), members)]


def before_unreadable_end(side: LogBounds, findings: Iterable[AuditFinding]) -> LogBounds:
    """The bounds without an unreadable tail, since the end of such a log is unknown; else the same object."""
    mine = (found for found in findings if found.member == side.name and found.cls is FindingClass.UNREADABLE)
    for found in sorted(mine, key=lambda found: found.end or 0, reverse=True):
        if found.offset is not None and found.end is not None and found.offset < side.last <= found.end:
            side = evolve(side, last=max(side.first, found.offset), claimed=None)
    return side


def as_it_is_now(side: LogBounds, files: StoreFiles) -> LogBounds:
    """The bounds after a running broker removed files or cut its log: missing bytes are no difference then."""
    if not files.is_running:
        return side
    try:
        now = inspect_store(files.uri)
    except (NotAStoreError, UnreadableError):
        return side  # The next read reports it.
    first = max(side.first, now.first)
    return evolve(side, first=first, last=max(first, min(side.last, now.end)))


def is_known(finding: AuditFinding, log: Iterable[AuditFinding]) -> bool:
    """True if the finding repeats that a file cannot be read."""
    return finding.cls is FindingClass.UNREADABLE and any(
        (known.cls, known.member, known.file) == (finding.cls, finding.member, finding.file) for known in log
    )
