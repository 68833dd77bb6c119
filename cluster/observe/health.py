"""What is wrong with a cluster, why, and what to do about it. Pure: facts in, findings out.

A rule is a function with a title; `examine` asks all of them. They lie in health_group.py, health_member.py,
health_security.py and role_views.py.
`twinlog check`, `explain` and `doctor` show what they find.
"""

from collections.abc import Callable, Iterator

from attrs import frozen

from twinlog.cluster.observe.facts import ClusterFacts
from twinlog.cluster.observe.finding import Finding, Level
from twinlog.cluster.observe.health_group import alone, file_sizes, followed, masters, name_servers, versions
from twinlog.cluster.observe.health_member import Limits, clocks, disks, ha_ports, lag, promises, refused, states
from twinlog.cluster.observe.health_security import access, encryption, replication_port, secret_files
from twinlog.cluster.observe.role_views import roles


@frozen(kw_only=True)
class RuleResult:
    """One rule and what it found."""

    title: str
    findings: tuple[Finding, ...]


@frozen(kw_only=True)
class Diagnosis:
    """What `twinlog doctor` prints. `verdict`: "findings" when there is something worse than a note, else "healthy"."""

    verdict: str
    rules: tuple[RuleResult, ...]
    findings: tuple[Finding, ...]


def diagnosis(facts: ClusterFacts) -> Diagnosis:
    """Ask every rule."""
    rules = tuple(RuleResult(title=title, findings=tuple(rule(facts))) for title, rule in RULES)
    findings = examine(facts)
    bad = any(finding.level is not Level.NOTE for finding in findings)
    return Diagnosis(verdict="findings" if bad else "healthy", rules=rules, findings=findings)


def examine(facts: ClusterFacts, limits: Limits | None = None) -> tuple[Finding, ...]:
    """Everything that the rules find, worst first."""
    found = [finding for _, rule in RULES for finding in rule(facts)]
    found += lag(facts, limits or Limits())
    order = [Level.CRITICAL, Level.WARNING, Level.NOTE]
    return tuple(sorted(found, key=lambda finding: order.index(finding.level)))


Rule = Callable[[ClusterFacts], Iterator[Finding]]
RULES: tuple[tuple[str, Rule], ...] = (
    ("name servers answer and agree", name_servers),
    ("each group has one master, each member its own brokerId", masters),
    ("a SYNC_MASTER has slaves", alone),
    ("members answer, take messages and follow", states),
    ("roles are settled, and could be changed", roles),
    ("HA ports take connections", ha_ports),
    ("slaves follow the address that their master tells", followed),
    ("commit log files have one size in a group", file_sizes),
    ("clocks agree", clocks),
    ("what an acknowledgement promises", promises),
    ("disks have room, logs are sound, nobody stands still", disks),
    ("nobody is refused", refused),
    ("one kind of broker in a group", versions),
    ("requests are checked where strangers can connect", access),
    ("connections are private where strangers can listen", encryption),
    ("only slaves get the log", replication_port),
    ("secrets are readable to their owner only", secret_files),
)
