"""What `twinlog check` answers."""

from attrs import frozen

from twinlog.cluster.observe.finding import Finding
from twinlog.cluster.observe.members import Member


@frozen(kw_only=True)
class CheckResult:
    """The state of a whole cluster for a monitoring system. `level` is that of the worst finding, "ok" without any."""

    level: str
    findings: tuple[Finding, ...]
    members: tuple[Member, ...]
