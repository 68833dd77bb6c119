"""The answer of `twinlog check` in the words of monitoring systems."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinlog.cluster.observe.findings import CheckResult

_CODES = {"ok": 0, "warning": 1, "critical": 2, "unknown": 3}


def nagios(result: "CheckResult", limits: dict[str, Any]) -> str:
    """One line, then one for each further finding; behind the bar what Nagios draws.

    Source: monitoring-plugins development guidelines, "Plugin output for Nagios", "Performance data".
    """
    bad = [finding.what for finding in result.findings if finding.level.value != "note"]
    slaves = [member for member in result.members if member.role == "slave"]
    summary = bad[0] if bad else f"{len(result.members)} members, slaves among them: {len(slaves)}"
    data = []
    for member in slaves:
        for label, value, unit, kind in (
            ("lag", member.lag_bytes, "B", "bytes"),
            ("behind", member.lag_seconds, "s", "seconds"),
        ):
            if value is not None:
                warning, critical = (limits.get(f"{level}_{kind}") for level in ("warning", "critical"))
                bounds = ";".join("" if bound is None else str(bound) for bound in (warning, critical))
                data.append(f"'{member.name}_{label}'={round(value, 3)}{unit};{bounds};0")
    first = f"TWINLOG {result.level.upper()} - {_one_line(summary)}"
    return "\n".join([f"{first} | {' '.join(data)}" if data else first, *map(_one_line, bad[1:])])


def prometheus(result: "CheckResult") -> str:
    """The text format 0.0.4, for node_exporter's textfile collector."""
    lines = [*_metric("twinlog_check_status", "0 ok, 1 warning, 2 critical, 3 unknown.", [("", _CODES[result.level])])]
    counts = [
        (f'{{level="{level}"}}', sum(finding.level.value == level for finding in result.findings))
        for level in ("note", "warning", "critical")
    ]
    lines += _metric("twinlog_check_findings", "How much was found.", counts)
    for name, what, attribute in (
        ("twinlog_member_written_offset_bytes", "End of the member's log.", "written_offset"),
        ("twinlog_replica_lag_bytes", "What a slave has not acknowledged.", "lag_bytes"),
        ("twinlog_replica_lag_seconds", "Age of the oldest byte that a slave has not acknowledged.", "lag_seconds"),
    ):
        rows = [(_labels(member), getattr(member, attribute)) for member in result.members]
        lines += _metric(name, what, [(labels, value) for labels, value in rows if value is not None])
    up = [(_labels(member), int(member.state != "unreachable")) for member in result.members]
    lines += _metric("twinlog_member_up", "Whether the member answers.", up)
    return "\n".join(lines)


def unknown(fmt: str, why: str) -> str:
    """When nobody answers."""
    if fmt == "json":
        import orjson

        return orjson.dumps({"schema": 1, "level": "unknown", "findings": [], "members": [], "why": why}).decode()
    if fmt == "prometheus":
        return "\n".join(_metric("twinlog_check_status", "0 ok, 1 warning, 2 critical, 3 unknown.", [("", 3)]))
    return f"TWINLOG UNKNOWN - {_one_line(why)}"


def _metric(name: str, what: str, rows: list[tuple[str, Any]]) -> list[str]:
    return [f"# HELP {name} {what}", f"# TYPE {name} gauge", *(f"{name}{labels} {value}" for labels, value in rows)]


def _labels(member: Any) -> str:
    pairs = (("cluster", member.cluster), ("group", member.group), ("member", member.name), ("role", member.role))
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _one_line(text: str) -> str:
    return " ".join(text.replace("|", "/").split())
