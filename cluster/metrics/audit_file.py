"""File of an audit's results for another process, in Prometheus's text format.

`twinlog audit --metrics FILE` writes it; a broker with auditMetricsFile shows it on /metrics, as node_exporter's textfile
collector would. It is read in the thread of HTTP, never in a broker's loop, and only what is written here is taken from it.
"""

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinlog.cluster.pipeline.audit.report import AuditReport
    from twinlog.cluster.pipeline.audit.standing import Standing

LAST_RUN = "rocketmq_audit_last_run_timestamp_seconds"
DIVERGENT = "rocketmq_audit_divergent_records"
PROVED = "rocketmq_audit_proved_offset_bytes"
UNPROVED = "rocketmq_audit_unproved_bytes"
OLDEST = "rocketmq_audit_oldest_proof_timestamp_seconds"
SIZE_MAX = 64 * 1024
_LINE = re.compile(r'(\w+)\{group="((?:[^"\\]|\\.)*)",pair="((?:[^"\\]|\\.)*)"\} ([0-9.]+)')


_HELP = {
    LAST_RUN: "When the last audit of these members ended, seconds since 1970",
    DIVERGENT: "Things that it found not to be as they should be",
    PROVED: "All members are proved equal up to this offset",
    UNPROVED: "Bytes of the longest log behind that",
    OLDEST: "Time of the oldest proof that holds, seconds since 1970",
}


def text(group: str, pair: str, *, ended: float, divergent: int, standing: "Standing | None" = None) -> str:
    """The file of one audit; `ended` in seconds since 1970, `standing` of its ledger."""
    labels = f'{{group="{_escaped(group)}",pair="{_escaped(pair)}"}}'
    values = {LAST_RUN: f"{ended:.3f}", DIVERGENT: str(divergent)}
    if standing is not None and standing.proved_to is not None:
        values |= {PROVED: str(standing.proved_to), UNPROVED: str((standing.log_end or 0) - standing.proved_to)}
    if standing is not None and standing.oldest_proof_ms is not None:
        values[OLDEST] = f"{standing.oldest_proof_ms / 1000:.3f}"
    return "".join(
        f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n{name}{labels} {value}\n" for name, value in values.items()
    )


def of_report(report: "AuditReport") -> str:
    """The file of an audit that ends now. A pair is all members, the master first; the group is what their names begin with."""
    members = [member.name for member in report.members]
    groups = {name.rpartition("-")[0] for name in members}
    wrong = sum(count for cls, count in report.totals.items() if cls not in ("lag", "unreadable"))
    group = groups.pop() if len(groups) == 1 else ""
    return text(group, "/".join(members), ended=time.time(), divergent=wrong, standing=report.ledger)


def write(path: Path, content: str) -> None:
    """Write atomically: a reader sees the old file or the new one. Raises OSError."""
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(content)
    beside.replace(path)


def samples(path: str | None, name: str) -> Iterable[tuple[tuple[str, ...], float]]:
    """Group and pair, and the value. Nothing where there is no such file, or it is another one."""
    if path is None:
        return
    try:
        with Path(path).expanduser().open("rb") as file:
            content = file.read(SIZE_MAX).decode(errors="replace")
    except OSError:
        return
    for found in _LINE.finditer(content):
        if found[1] == name:
            yield (_plain(found[2]), _plain(found[3])), float(found[4])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value)
