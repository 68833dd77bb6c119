"""The newest report of `twinlog audit --out DIR`: what it came to, and when. Only its report.json is read."""

import time
from pathlib import Path
from typing import Any

import orjson

from twinlog.cluster.dashboard.model.snapshot import Look, Mark
from twinlog.cluster.dashboard.model.text import day_and_clock, seconds, several, size
from twinlog.cluster.dashboard.view.html import Markup, join, tag
from twinlog.cluster.dashboard.view.marks import mark
from twinlog.cluster.dashboard.view.tables import command

BYTES_MAX = 16 << 20
STALE_SECONDS = 7 * 86_400
VERDICTS: dict[str, tuple[Mark, str]] = {
    "equal": ("ok", "equal, every byte that was compared"),
    "samples-equal": ("ok", "equal, every record that was sampled"),
    "divergent": ("bad", "divergent"),
    "incomplete": ("warn", "equal as far as it could be read"),
}


def read_report(directory: Path | None) -> dict[str, Any] | str | None:
    """The report; a sentence where there is one that cannot be read; None without one."""
    if directory is None:
        return None
    path = directory / "report.json"
    try:
        if path.stat().st_size > BYTES_MAX:
            return f"{path} is too large to be shown here"
        told = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return f"{path} cannot be read: {error}"
    return told if isinstance(told, dict) and "verdict" in told else f"{path} is no report of twinlog audit"


def audit_section(report: dict[str, Any] | str | None, directory: Path | None, look: Look) -> Markup:
    """The last audit in a few lines, or how to make one."""
    if isinstance(report, str):
        return join(tag("p", mark("warn"), f"{report[0].upper()}{report[1:]}.", class_="quiet"), _how(directory, look))
    if report is None:
        return join(tag("p", "No audit yet that the dashboard knows of.", class_="quiet"), _how(directory, look))
    of, words = VERDICTS.get(str(report["verdict"]), ("none", str(report["verdict"])))
    at = float(report.get("started_ms") or 0) / 1000
    age = max(0.0, time.time() - at)
    names = ", ".join(str(each.get("name")) for each in report.get("members") or ())
    compared = max((each.get("compared_bytes") or 0 for each in report.get("members") or ()), default=0)
    found = len(report.get("findings") or ()) + (report.get("findings_left_out") or 0)
    rows = (
        ("Result", join(mark(of), words)),
        ("When", f"{day_and_clock(at)}, {seconds(age)} ago"),
        ("Compared", f"{size(compared)} of {names}"),
        ("Found", several(found, "thing", "things")),
    )
    told = tag("dl", [(tag("dt", title), tag("dd", value)) for title, value in rows], class_="facts")
    return join(told, _how(directory, look) if age > STALE_SECONDS or of != "ok" else None)


def _how(directory: Path | None, look: Look) -> Markup:
    group = look.groups[0] if look.groups else None
    names = " ".join(each.member.name for each in group.members) if group else "MASTER SLAVE"
    out = f" --out {directory}" if directory is not None else " --out DIR"
    hint = None if directory is not None else tag("p", "Shown here with: twinlog dashboard --audit DIR", class_="quiet")
    return join(command(f"twinlog audit --live {names}{out}"), hint)
