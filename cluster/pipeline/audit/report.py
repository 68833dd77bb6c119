"""Report of an audit of replicas: plain values, and their JSON.

The table for terminals is cluster/cli/audit.py, the HTML page and files cluster/pipeline/report/page.py. Offsets and sizes are
bytes of the log, times ms since 1970; an unknown value is None.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import orjson
from attrs import asdict, evolve, field, frozen

from twinlog.cluster.admin.documents import SCHEMA
from twinlog.cluster.pipeline.audit.findings import AuditFinding, FindingClass, documented
from twinlog.cluster.pipeline.audit.standing import Standing

# Classes of findings about the log itself; the others are about files beside it.
LOG_CLASSES = (
    FindingClass.TRUNCATED,
    FindingClass.HOLE,
    FindingClass.DIVERGENT,
    FindingClass.SHIFTED,
    FindingClass.SWAPPED,
    FindingClass.BIT_ROT,
    FindingClass.DIFFERS,
)


class AuditVerdict(StrEnum):
    """Overall result."""

    EQUAL = "equal"  # All common bytes; some members may lag.
    SAMPLES_EQUAL = "samples-equal"  # Running RocketMQ brokers: all records that were compared.
    DIVERGENT = "divergent"
    INCOMPLETE = "incomplete"  # Equal as far as it could be read.


@frozen(kw_only=True)
class AuditedMember:
    """One copy of the log, as it was at the start of the audit. An unknown value is null."""

    name: str
    place: str = field(metadata={"doc": "directory or URI of its store; with --live HOST:PORT"})
    is_master: bool = field(metadata={"doc": "named first: the reference for the others"})
    is_live: bool = field(metadata={"doc": "a running broker, not a directory"})
    software: str | None = documented("software of the broker, if known")
    is_running: bool | None = documented("whether a broker had the store open")
    first_offset: int | None = documented("of its log")
    last_offset: int | None = documented("the end of its log: the byte behind the last one")
    confirmed_offset: int | None = documented("no role change removes bytes below it; null: unknown")
    behind_bytes: int | None = documented("how much longer the longest log is")
    compared_bytes: int = documented("bytes of its log that were compared with another member's", 0)
    equal_bytes: int = documented("bytes among these that are equal", 0)
    read_bytes: int = documented("bytes of its log that the audit read for digests", 0)
    problem: str | None = documented("why it could not be read; null: it was read")


@frozen(kw_only=True)
class ReportedFinding(AuditFinding):
    """One difference or damage on one member, and its repair. A field that does not apply or is unknown is null."""

    number: int = documented("number in tables and pictures", 0)
    mend: str = documented("the command that repairs it, or helps to; replace words in capitals", "")
    mend_note: str = documented("note to read before running it", "")


@frozen(kw_only=True)
class AuditReport:
    """Comparison of the copies of a log."""

    verdict: AuditVerdict
    members: tuple[AuditedMember, ...]
    start_offset: int | None = documented("where the first of the logs begins")
    end_offset: int | None = documented("where the longest of them ends")
    compared_by: str = documented(
        "digests: every byte; samples: some records of running brokers of RocketMQ", "digests"
    )
    blocks: int = documented("compared blocks of up to 64 KiB", 0)
    differing_blocks: int | None = documented("how many of them differ; null: not counted", 0)
    records: int | None = documented("compared samples; null: all bytes were compared")
    findings: tuple[ReportedFinding, ...] = ()
    totals: dict[str, int] = field(factory=dict, metadata={"doc": "things found, by class"})
    findings_left_out: int = documented("findings counted in totals and not listed", 0)
    not_read: tuple[str, ...] = documented("what could not be read, and why", ())
    started_ms: int = 0
    seconds: float = documented("duration of the audit without the start of Spark", 0.0)
    startup_seconds: float | None = documented("duration of the start of Spark; null: without Spark")
    ledger: Standing | None = documented(
        "what the ledger of --incremental proves after this run; null: without a ledger"
    )


def verdict_of(totals: Iterable[str], *, is_complete: bool, is_sampled: bool = False) -> AuditVerdict:
    """Overall result of findings of these classes. A difference takes precedence over unreadable parts."""
    classes = {FindingClass(each) for each in totals}
    if any(each.is_fault and each is not FindingClass.UNREADABLE for each in classes):
        return AuditVerdict.DIVERGENT
    if FindingClass.UNREADABLE in classes or not is_complete:
        return AuditVerdict.INCOMPLETE
    return AuditVerdict.SAMPLES_EQUAL if is_sampled else AuditVerdict.EQUAL


def totals_by_class(totals: Counter[tuple[str, FindingClass]]) -> dict[str, int]:
    """Number of things of each class, over all members; classes in their order."""
    found: Counter[FindingClass] = Counter()
    for (_, cls), count in totals.items():
        found[cls] += count
    return {cls.value: found[cls] for cls in FindingClass if found[cls]}


def numbered(findings: Iterable[ReportedFinding]) -> tuple[ReportedFinding, ...]:
    """Order the findings for a reader (faults of logs by offset, files beside them, lag) and number them from 1."""
    ordered = sorted(findings, key=_place_in_report)
    return tuple(evolve(finding, number=number) for number, finding in enumerate(ordered, start=1))


def _place_in_report(finding: AuditFinding) -> tuple[int, int, str]:
    if finding.cls is FindingClass.LAG:
        kind = 3
    elif finding.cls is FindingClass.UNREADABLE:
        kind = 2
    else:
        kind = 0 if finding.cls in LOG_CLASSES else 1
    return kind, finding.offset if finding.offset is not None else 1 << 62, finding.member


def to_json(report: AuditReport) -> bytes:
    """One JSON document with its schema number, as `twinlog audit -o json` prints it and `-o schema` describes it."""
    document = {"schema": SCHEMA, **asdict(report)}
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
