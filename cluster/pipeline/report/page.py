"""Files of an audit's report: one HTML page, JSON, and the findings as Parquet.

The page loads nothing, needs no script, and prints.
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from attrs import asdict, fields

from twinlog.cluster.admin.documents import SCHEMA
from twinlog.cluster.pipeline.audit.report import AuditedMember, AuditReport, ReportedFinding, to_json
from twinlog.cluster.pipeline.report.html import document, scrolled, sign_of, table
from twinlog.cluster.pipeline.report.picture import MEANINGS, legend, letter, picture
from twinlog.cluster.pipeline.report.summary import headline, sentences
from twinlog.cluster.text import moment, seconds, size
from twinlog.store.util.sync import write_durably
from twinlog.store.util.text import agreeing


def page(report: AuditReport) -> str:
    """The whole document."""
    sign, how = sign_of(report.verdict)
    drawn = picture(report)
    made = f"twinlog audit, {moment(report.started_ms, utc=True)}, in {seconds(report.seconds)}"
    parts = [
        "<h1>Audit of replicas</h1>",
        f'<p class="verdict {how}"><span aria-hidden="true">{sign}</span> {escape(headline(report))}</p>',
        *(f"<p>{escape(line)}</p>" for line in sentences(report)),
        '<h2 id="members">Members</h2>',
        _members(report.members),
        '<h2 id="picture">The logs, and where they differ</h2>' if drawn else "",
        f"{scrolled('The logs, and where they differ', drawn)}{legend(report)}" if drawn else "",
        '<h2 id="findings">Findings</h2>',
        _findings(report),
        _not_read(report.not_read),
    ]
    return document(headline(report), parts, made)


def _members(members: Iterable[AuditedMember]) -> str:
    titles = (
        ("Member", ""),
        ("Role", ""),
        ("Place", ""),
        ("Log", "number"),
        ("Confirmed", "number"),
        ("Behind", "number"),
    )
    rows = "".join(_member(member) for member in members)
    return table("Offsets are bytes of the log.", titles, rows)


def _member(member: AuditedMember) -> str:
    if member.problem is not None:
        log = f'<td colspan="3" class="bad">not read: {escape(member.problem)}</td>'
    else:
        log = (
            f'<td class="number">{member.first_offset} to {member.last_offset}</td>'
            f'<td class="number">{"unknown" if member.confirmed_offset is None else member.confirmed_offset}</td>'
            f'<td class="number">{size(member.behind_bytes or 0)}</td>'
        )
    place = f"<code>{escape(member.place)}</code>"
    role = "master" if member.is_master else "slave"
    return f'<tr><th scope="row">{escape(member.name)}</th><td>{role}</td><td>{place}</td>{log}</tr>'


def _findings(report: AuditReport) -> str:
    if not report.findings:
        return "<p>No findings.</p>"
    titles = (("", "number"), ("Class", ""), ("Member", ""), ("Offset", "number"), ("What", ""), ("Repair", ""))
    rows = "".join(_finding(finding) for finding in report.findings)
    left_out = report.findings_left_out
    more = f"<p>{left_out} more {agreeing(left_out, 'is', 'are')} counted only.</p>" if left_out else ""
    return table("Ordered by offset in the log; files beside it follow.", titles, rows) + more


def _finding(finding: ReportedFinding) -> str:
    offset = "" if finding.offset is None else str(finding.offset)
    if finding.end is not None:
        offset += f"<br>to {finding.end}"
    facts = [finding.why, *facts_of(finding)]
    mend = f"<code>{escape(finding.mend)}</code>" if finding.mend else ""
    return (
        f'<tr id="finding-{finding.number}"><td class="number">{finding.number}</td>'
        f'<td class="short" title="{escape(MEANINGS[finding.cls])}">{letter(finding.cls)} {escape(finding.cls.value)}</td>'
        f'<td class="short">{escape(finding.member)}</td><td class="number">{offset}</td>'
        f'<td>{escape(finding.what)}<div class="note">{escape("; ".join(filter(None, facts)))}</div></td>'
        f'<td>{mend}<div class="note">{escape(finding.mend_note)}</div></td></tr>'
    )


def facts_of(finding: ReportedFinding) -> list[str]:
    """Further facts, as text."""
    facts = []
    if finding.good is not None:
        facts.append(f"the copy of {finding.good} is right")
    if finding.since_ms:
        facts.append(f"since {moment(finding.since_ms, utc=True)}")
    if finding.epoch is not None:
        facts.append(f"epoch {finding.epoch}")
    if finding.topic is not None:
        facts.append(finding.topic if finding.queue_id is None else f"{finding.topic}/{finding.queue_id}")
    if finding.file is not None:
        facts.append(finding.file)
    if finding.count > 1:
        facts.append(f"{finding.count} in a row")
    return facts


def _not_read(problems: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return f'<h2 id="not-read">Not read</h2><ul>{items}</ul>' if items else ""


def write_report(report: AuditReport, directory: Path, *, parquet: bool) -> tuple[Path, ...]:
    """Write report.json, report.html and findings.parquet into a directory, which is created; each is complete or absent.

    Returns the files. Raises OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = {"report.json": to_json(report), "report.html": page(report).encode()}
    if parquet:
        files["findings.parquet"] = _parquet(report.findings)
    for name, data in files.items():
        write_durably(directory / name, data)
    return tuple(directory / name for name in files)


def _parquet(findings: Sequence[ReportedFinding]) -> bytes:
    """Findings as a table, one row each; columns are the fields of a finding."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = dict.fromkeys(("offset", "end", "epoch", "record", "record_end", "queue_offset", "count"), pa.int64())
    types |= {"since_ms": pa.timestamp("ms", tz="UTC"), "queue_id": pa.int32(), "number": pa.int32()}
    columns = [
        pa.field(each.name, types.get(each.name, pa.string()), metadata={"comment": each.metadata.get("doc", "")})
        for each in fields(ReportedFinding)
    ]
    schema = pa.schema(columns, metadata={"twinlog.version": str(SCHEMA)})
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist([asdict(finding) for finding in findings], schema=schema)
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
