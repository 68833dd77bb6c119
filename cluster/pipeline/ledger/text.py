"""Standing of a ledger, as sentences for a terminal, a log and `twinlog check`. Pure."""

from collections.abc import Iterator

from twinlog.cluster.pipeline.audit.standing import Standing
from twinlog.cluster.text import count, moment, seconds, size
from twinlog.store.util.text import counted

_BY = {"digests": "", "written": "", "samples": " by samples"}


def proved(standing: Standing, now_ms: int | None = None) -> str:
    """Proved part, and how long ago it was looked at: `proved equal up to offset 1 234, 12 min ago`; None: just now."""
    if not standing.run:
        return "not audited yet"
    ago = "" if now_ms is None else f", {seconds(max(0, now_ms - standing.checked_ms) / 1000)} ago"
    if standing.proved_from is None or standing.proved_to is None:
        return f"nothing is proved equal: the members have no byte in common{ago}"
    if standing.proved_to <= standing.proved_from:
        return f"nothing is proved equal from offset {count(standing.proved_from)} on{ago}"
    behind = (standing.log_end or 0) - standing.proved_to
    rest = f", {size(behind)} before the end of the longest log" if behind > 0 else ""
    how = _BY.get(standing.compared_by, "")
    return f"proved equal{how} up to offset {count(standing.proved_to)}{rest}{ago}"


def line(standing: Standing, took: float) -> str:
    """One run in one line, for the log of a service."""
    away = [member.name for member in standing.members if member.is_away]
    parts = [
        f"run {standing.run}: {standing.verdict}",
        proved(standing),
        f"{size(standing.new_bytes)} new",
        f"{size(standing.again_bytes)} again",
        *([f"{size(standing.fault_bytes)} that differed"] if standing.fault_bytes else []),
        *([f"the proof of {size(standing.lost_bytes)} ended"] if standing.lost_bytes else []),
        f"{counted(standing.open_findings, 'finding')} open",
        *([f"away: {', '.join(away)}"] if away else []),
        f"in {seconds(took)}",
    ]
    return ", ".join(parts)


def sentences(standing: Standing) -> Iterator[str]:
    """Work of a run, and what holds after it."""
    again = f", {size(standing.again_bytes)} again as their share of the full pass" if standing.again_bytes else ""
    fault = f", {size(standing.fault_bytes)} because members differed there" if standing.fault_bytes else ""
    yield f"run {standing.run}: compared {size(standing.new_bytes)} that no proof covered{again}{fault}"
    if standing.lost_bytes:
        yield f"the proof of {size(standing.lost_bytes)} ended: a log was cut, written again or replaced"
    if standing.oldest_proof_ms is not None:
        within = seconds(standing.full_pass_seconds)
        yield f"oldest proof: {moment(standing.oldest_proof_ms)}; every byte is proved again within {within}"
    yield proved(standing)
