"""One thing that is wrong with a cluster, or worth knowing, and how bad it is."""

from enum import Enum

from attrs import frozen

from twinlog.cluster.observe.members import Member


class Level(Enum):
    """How bad. Nagios has the same, in the same order, but for notes."""

    NOTE = "note"
    WARNING = "warning"
    CRITICAL = "critical"


@frozen(kw_only=True)
class Finding:
    """One thing that is wrong, or worth knowing. `subject`: a member, a group or a name server. `cause` names the rule's case."""

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
