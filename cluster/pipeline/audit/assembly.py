"""Builds the report of an audit from its findings. Pure."""

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

from attrs import asdict, evolve

from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, FindingClass
from twinlog.cluster.pipeline.audit.remedies import with_repair
from twinlog.cluster.pipeline.audit.report import AuditedMember, AuditReport, numbered, totals_by_class, verdict_of
from twinlog.cluster.pipeline.sources.places import StoreUri

T = TypeVar("T", AuditedMember, AuditFinding)


def names_of(places: Sequence[str]) -> list[str]:
    """Short names for several places: as many of the last parts of each path as make it unique."""
    parts = [_parts(place) for place in places]
    names = []
    for number, own in enumerate(parts):
        others = [each for i, each in enumerate(parts) if i != number]
        size = next((n for n in range(1, len(own)) if all(own[-n:] != each[-n:] for each in others)), len(own))
        name = "/".join(own[-size:])
        names.append(name if name not in names else f"{name} ({number + 1})")
    return names


def _parts(place: str) -> list[str]:
    path = StoreUri(place).root.shown
    return [part for part in path.split("/") if part] or [path]


def assembled(
    members: Sequence[AuditedMember],
    findings: AuditFindings,
    *,
    clock_ms: int,
    is_complete: bool = True,
    is_sampled: bool = False,
    **facts: Any,
) -> AuditReport:
    """Build the report. `clock_ms` is the start of the audit; `facts` are further fields of AuditReport."""
    firsts = [member.first_offset for member in members if member.first_offset is not None]
    end = max((member.last_offset for member in members if member.last_offset is not None), default=None)
    shown = tuple(_as_text(_behind(member, end)) for member in members)
    by_name = {member.name: member for member in shown}
    totals = totals_by_class(findings.totals)
    return AuditReport(
        verdict=verdict_of(totals, is_complete=is_complete, is_sampled=is_sampled),
        members=shown,
        start_offset=min(firsts, default=None),
        end_offset=end,
        compared_by="samples" if is_sampled else "digests",
        findings=numbered(with_repair(_as_text(finding), by_name) for finding in findings.kept),
        totals=totals,
        findings_left_out=findings.left_out,
        not_read=_not_read(shown, findings),
        started_ms=clock_ms,
        seconds=max(0.0, time.time() - clock_ms / 1000),
        **facts,
    )


def _as_text(value: T) -> T:
    """Escape file names that are not valid UTF-8, so that they can be printed and sent."""
    texts: dict[str, Any] = {
        name: text.encode(errors="backslashreplace").decode()
        for name, text in asdict(value, recurse=False).items()
        if isinstance(text, str) and not isinstance(text, StrEnum)
    }
    return evolve(value, **texts)


def _behind(member: AuditedMember, end: int | None) -> AuditedMember:
    if member.last_offset is None or end is None:
        return member
    return evolve(member, behind_bytes=end - member.last_offset)


def _not_read(members: Sequence[AuditedMember], findings: AuditFindings) -> tuple[str, ...]:
    whole = [f"{member.name}: {member.problem}" for member in members if member.problem is not None]
    unread = {member.name for member in members if member.problem is not None}
    parts = [
        f"{found.member}: {found.file or found.what}: {found.why}"
        for found in findings.kept
        if found.cls is FindingClass.UNREADABLE and found.member not in unread
    ]
    return (*whole, *parts)
