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

LAST_RUN = "rocketmq_audit_last_run_timestamp_seconds"
DIVERGENT = "rocketmq_audit_divergent_records"
SIZE_MAX = 64 * 1024
_LINE = re.compile(r'(\w+)\{group="((?:[^"\\]|\\.)*)",pair="((?:[^"\\]|\\.)*)"\} ([0-9.]+)')


def text(group: str, pair: str, *, ended: float, divergent: int) -> str:
    """The file of one audit; `ended` in seconds since 1970."""
    labels = f'{{group="{_escaped(group)}",pair="{_escaped(pair)}"}}'
    return (
        f"# HELP {LAST_RUN} When the last audit of these members ended, seconds since 1970\n# TYPE {LAST_RUN} gauge\n"
        f"{LAST_RUN}{labels} {ended:.3f}\n"
        f"# HELP {DIVERGENT} Things that it found not to be as they should be\n# TYPE {DIVERGENT} gauge\n"
        f"{DIVERGENT}{labels} {divergent}\n"
    )


def of_report(report: "AuditReport") -> str:
    """The file of an audit that ends now. A pair is all members, the master first; the group is what their names begin with."""
    members = [member.name for member in report.members]
    groups = {name.rpartition("-")[0] for name in members}
    wrong = sum(count for cls, count in report.totals.items() if cls not in ("lag", "unreadable"))
    return text(groups.pop() if len(groups) == 1 else "", "/".join(members), ended=time.time(), divergent=wrong)


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
