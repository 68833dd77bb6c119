"""Reports of an audit: one with a finding of each kind."""

from attrs import evolve

from twinlog.cluster.pipeline.audit.assembly import assembled
from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, FindingClass
from twinlog.cluster.pipeline.audit.report import AuditedMember, AuditReport

MASTER = AuditedMember(
    name="broker-a-0",
    place="/data/broker-a-0",
    is_master=True,
    is_live=False,
    software="twinlog",
    is_running=False,
    first_offset=0,
    last_offset=1_000_000,
    confirmed_offset=900_000,
    compared_bytes=1_000_000,
    equal_bytes=1_000_000,
    read_bytes=1_000_000,
)


SLAVE = evolve(MASTER, name="broker-a-1", place="/data/broker <b>", is_master=False, last_offset=990_000)


def finding(cls: FindingClass, member: str = "broker-a-1", **more: object) -> AuditFinding:
    fields = {"offset": 500, "end": 600, "what": f"something is <{cls}>", "why": "told by the test"}
    return AuditFinding(cls=cls, member=member, **fields | more)


def report_of(*found: AuditFinding, members=(MASTER, SLAVE), **more: object) -> AuditReport:
    findings = AuditFindings()
    findings.extend(found)
    return assembled(members, findings, clock_ms=1_795_300_000_000, blocks=16, differing_blocks=1, **more)


ALL = [finding(cls, offset=1000 * n, end=1000 * n + 10) for n, cls in enumerate(FindingClass, start=1)]
