"""Summary of an audit in sentences, shared by terminal and page. Pure."""

from collections.abc import Iterator

from twinlog.cluster.pipeline.audit.report import LOG_CLASSES, AuditReport, AuditVerdict
from twinlog.cluster.pipeline.ledger import text
from twinlog.cluster.text import seconds, size
from twinlog.store.util.text import agreeing, counted


def headline(report: AuditReport) -> str:
    """One sentence."""
    match report.verdict:
        case AuditVerdict.EQUAL:
            up_to_lag = " up to lag" if any(member.behind_bytes for member in report.members) else ""
            return f"equal{up_to_lag}: every byte that members have in common"
        case AuditVerdict.SAMPLES_EQUAL:
            number = report.records or 0
            equal = f"{counted(number, 'record')} {agreeing(number, 'is', 'are')} equal"
            return f"sampled: {equal}; the others were not compared"
        case AuditVerdict.INCOMPLETE:
            return "not complete: equal as far as it could be read"
    faults = sum(count for cls, count in report.totals.items() if cls not in ("lag", "unreadable"))
    what = f"{counted(faults, 'thing')} {agreeing(faults, 'is not as it', 'are not as they')} should be"
    places = [each.offset for each in report.findings if each.offset is not None and each.cls in LOG_CLASSES]
    return f"divergent: {what}{f', in the log first at {min(places)}' if places else ''}"


def sentences(report: AuditReport) -> Iterator[str]:
    """Comparison, findings, and parts that were not read."""
    looked = [member for member in report.members if member.problem is None]
    if report.compared_by == "digests" and report.blocks:
        different = report.differing_blocks
        count = "" if different is None else f", {different} of them {agreeing(different, 'differs', 'differ')}"
        what = f"{counted(report.blocks, 'block')} of up to 64 KiB {agreeing(report.blocks, 'was', 'were')}"
        by = f"by {agreeing(report.blocks, 'its digest', 'their digests')}"
        yield f"{what} compared {by}{count}"
    read = sum(member.read_bytes for member in looked)
    if read:
        rate = f", {size(read / report.seconds)}/s" if report.seconds > 0 else ""
        yield f"read {size(read)} of log in {seconds(report.seconds)}{rate}"
    for member in looked:
        if member.confirmed_offset is None and member.is_running:
            yield f"{member.name} runs, and its confirmed offset is unknown: its newest bytes may still be replicating"
        if member.behind_bytes:
            yield f"{member.name} is {size(member.behind_bytes)} behind"
    if report.totals:
        yield "found: " + ", ".join(f"{count} {cls}" for cls, count in report.totals.items())
    for problem in report.not_read:
        yield f"not read: {problem}"
    if report.ledger is not None:
        yield from text.sentences(report.ledger)
