"""One thing that is wrong with a cluster, or worth knowing, and how bad it is."""

from enum import Enum

from attrs import frozen


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
