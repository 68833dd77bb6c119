"""The page of a ledger: what is proved of a log's copies, since when, what was found, and the last runs.

It loads nothing, needs no script, and prints, as the report of one audit does (page.py).
"""

from html import escape
from pathlib import Path

from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.report import AuditVerdict
from twinlog.cluster.pipeline.ledger.rows import FindingRow, MemberRow, RunRow
from twinlog.cluster.pipeline.report import coverage, lives
from twinlog.cluster.pipeline.report.coverage import duration
from twinlog.cluster.pipeline.report.history import History, read_history
from twinlog.cluster.pipeline.report.html import document, scrolled, sign_of, table
from twinlog.cluster.pipeline.report.picture import MEANINGS, letter
from twinlog.cluster.text import count, moment, seconds, size
from twinlog.store.util.sync import write_durably
from twinlog.store.util.text import agreeing, counted

PAGE = "ledger.html"
_FINDINGS_MAX = 200


def write_ledger_page(ledger: Path, target: Path) -> Path:
    """Write the page of a ledger's runs to a file. Returns it. Raises LedgerError and OSError."""
    write_durably(target, ledger_page(read_history(ledger)).encode())
    return target


def ledger_page(history: History) -> str:
    """The whole document."""
    run = history.last.run
    sign, how = sign_of(AuditVerdict(run.verdict))
    numbers = f"run {run.run}" if run.run == history.first else f"runs {history.first} to {run.run}"
    parts = [
        "<h1>Audit of replicas, run by run</h1>",
        f'<p class="verdict {how}"><span aria-hidden="true">{sign}</span> {escape(headline(history))}</p>',
        *(f"<p>{escape(line)}</p>" for line in sentences(history)),
        '<h2 id="replicas">What is proved of each replica</h2>',
        _drawn("What is proved of each replica", coverage.replicas(history)),
        coverage.legend(history) if coverage.known(history.last) else "",
        _members(history),
        '<h2 id="time">What was proved when</h2>',
        _drawn("What was proved when", coverage.over_time(history)),
        '<p class="note">Times are UTC. Patterns as above; a column stands for the time from one run to the next.</p>',
        '<h2 id="findings">Findings, from first seen to repaired</h2>',
        _drawn("Findings, from first seen to repaired", lives.lives(history)),
        _findings(history),
        '<h2 id="runs">The last runs</h2>',
        _runs(history),
    ]
    return document(headline(history), parts, f"twinlog audit, {numbers}, {moment(run.ended, utc=True)}")


def headline(history: History) -> str:
    """One sentence."""
    run = history.last.run
    faults = [row for row in history.findings if row.closed is None]
    match AuditVerdict(run.verdict):
        case AuditVerdict.DIVERGENT:
            return f"divergent: {counted(len(faults), 'finding')} {agreeing(len(faults), 'is', 'are')} open"
        case AuditVerdict.INCOMPLETE:
            return f"not complete: {_proved(run)}"
        case AuditVerdict.SAMPLES_EQUAL:
            return "sampled: the records that were compared are equal; the others were not compared"
    return f"equal: {_proved(run)}"


def _proved(run: RunRow) -> str:
    if run.proved_from is None or run.proved_to is None or run.proved_to <= run.proved_from:
        return "nothing is proved of all members"
    return f"all members are proved equal from {count(run.proved_from)} to {count(run.proved_to)}"


def sentences(history: History) -> list[str]:
    """Facts beside the headline."""
    run, found = history.last.run, []
    if run.proved_to is not None and run.log_end is not None and run.proved_to < run.log_end:
        found.append(
            f"{size(run.log_end - run.proved_to)} up to the end of the longest log are not proved of all members."
        )
    if run.oldest_proof is not None:
        limit = coverage.pass_ms(history)
        age = run.ended - run.oldest_proof
        kept = "as it should be" if age <= limit else "which is too long"
        found.append(
            f"The oldest proof is {duration(age)} old; every byte is to be proved again within {duration(limit)}: {kept}."
        )
    away = [member.member for member in history.last.members if member.problem is not None]
    if away:
        found.append(f"The last run could not read {', '.join(away)}.")
    repaired = sum(row.state == "repaired" for row in history.findings)
    if repaired:
        found.append(f"{counted(repaired, 'finding')} of the last runs {agreeing(repaired, 'was', 'were')} repaired.")
    return found


def _drawn(label: str, picture: str) -> str:
    return scrolled(label, picture) if picture else ""


def _members(history: History) -> str:
    titles = (
        ("Member", ""),
        ("Role", ""),
        ("Place", ""),
        ("Log", "number"),
        ("Proved up to", "number"),
        ("Not proved", "number"),
    )
    rows = "".join(_member(member) for member in history.last.members)
    return table("Members in the last run. Offsets are bytes of the log.", titles, rows)


def _member(member: MemberRow) -> str:
    if member.problem is not None or member.first is None or member.last is None:
        cells = f'<td colspan="3" class="bad">not read: {escape(member.problem or "unknown")}</td>'
    else:
        behind = max(0, member.last - (member.proved_to if member.proved_to is not None else member.first))
        cells = (
            f'<td class="number">{member.first} to {member.last}</td>'
            f'<td class="number">{"" if member.proved_to is None else member.proved_to}</td>'
            f'<td class="number">{size(behind)}</td>'
        )
    lost = (
        f'<div class="note">{size(member.lost_bytes)} to prove again: {escape(member.lost_why or "")}</div>'
        if member.lost_bytes
        else ""
    )
    role = "master" if member.is_master else "slave"
    return (
        f'<tr><th scope="row">{escape(member.member)}</th><td>{role}</td>'
        f"<td><code>{escape(member.place)}</code>{lost}</td>{cells}</tr>"
    )


def _findings(history: History) -> str:
    rows = lives.order(history.findings)
    if not rows:
        return "<p>No findings.</p>"
    titles = (
        ("", "number"),
        ("Class", ""),
        ("Member", ""),
        ("Offset", "number"),
        ("What", ""),
        ("First seen", ""),
        ("State", ""),
    )
    shown = "".join(_finding(row) for row in rows[:_FINDINGS_MAX])
    more = len(rows) - _FINDINGS_MAX
    return table("Open ones first, by offset in the log.", titles, shown) + (
        f"<p>{more} more {agreeing(more, 'is', 'are')} in the ledger.</p>" if more > 0 else ""
    )


def _finding(row: FindingRow) -> str:
    cls = FindingClass(row.cls)
    offset = "" if row.offset is None else str(row.offset)
    if row.end is not None:
        offset += f"<br>to {row.end}"
    facts = [row.why, f"the copy of {row.good} is right" if row.good is not None else "", row.file or ""]
    if row.closed is None:
        state = (
            f'<span class="bad">open</span><div class="note">{_STATES.get(row.state, "")} {_when(row.last_seen)}</div>'
        )
    else:
        state = f'{escape(row.state)}<div class="note">{_when(row.closed)}</div>'
    return (
        f'<tr id="finding-{row.id}"><td class="number">{row.id}</td>'
        f'<td class="short" title="{escape(MEANINGS[cls])}">{letter(cls)} {escape(row.cls)}</td>'
        f'<td class="short">{escape(row.member)}</td><td class="number">{offset}</td>'
        f'<td>{escape(row.what)}<div class="note">{escape("; ".join(filter(None, facts)))}</div></td>'
        f'<td class="short">{_when(row.first_seen)}</td><td class="short">{state}</td></tr>'
    )


_STATES = {"new": "seen", "seen": "seen again", "unchecked": "not compared since"}


def _runs(history: History) -> str:
    titles = (
        *(("Run", "number"), ("Began", ""), ("Took", "number"), ("Verdict", ""), ("Proved up to", "number")),
        *(("New", "number"), ("Again", "number"), ("Read", "number"), ("Findings", "number")),
    )
    return table(
        "The newest first. New: bytes that no proof covered; again: bytes whose proof was the oldest.",
        titles,
        "".join(_run(row) for row in reversed(history.listed)),
    )


def _run(row: RunRow) -> str:
    sign, how = sign_of(AuditVerdict(row.verdict))
    findings = str(row.findings_open)
    changes = [f"{row.findings_new} new"] * bool(row.findings_new) + [f"{row.findings_closed} closed"] * bool(
        row.findings_closed
    )
    lost = f'<div class="note">{size(row.lost_bytes)} proofs ended</div>' if row.lost_bytes else ""
    return (
        f'<tr><th scope="row" class="number">{row.run}</th><td class="short">{_when(row.started)}</td>'
        f'<td class="number">{seconds((row.ended - row.started) / 1000)}</td>'
        f'<td class="short {how}"><span aria-hidden="true">{sign}</span> {escape(row.verdict)}</td>'
        f'<td class="number">{"" if row.proved_to is None else row.proved_to}{lost}</td>'
        f'<td class="number">{size(row.new_bytes)}</td><td class="number">{size(row.again_bytes)}</td>'
        f'<td class="number">{size(row.read_bytes)}</td>'
        f'<td class="number">{findings}<div class="note">{", ".join(changes)}</div></td></tr>'
    )


def _when(at_ms: int) -> str:
    """To the minute: an audit takes longer."""
    return moment(at_ms, utc=True)[:16]
