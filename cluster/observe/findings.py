"""Findings about a cluster, with their level."""

from enum import Enum

from attrs import frozen

from twinlog.cluster.observe.members import Member


class Level(Enum):
    """Severity, as in Nagios, with notes in addition."""

    NOTE = "note"
    WARNING = "warning"
    CRITICAL = "critical"


@frozen(kw_only=True)
class Finding:
    """A problem, or a note. `subject`: a member, group or name server. `cause`: the rule's case, in documented words."""

    level: Level
    cause: str
    subject: str
    what: str
    fix: str = ""


@frozen(kw_only=True)
class CheckResult:
    """The state of a whole cluster for a monitoring system. `level` is that of the worst finding, "ok" without any."""

    level: str
    findings: tuple[Finding, ...]
    members: tuple[Member, ...]
