"""Running twinlog groups: audited in traffic, and after two members wrote divergent logs."""

import json
from pathlib import Path

import pytest

from tests.spark.logs import parting
from tests.support.process_group.roles import TOPIC, Group, RoleBroker, Traffic, in_thread, running
from tests.support.waiting import wait_for
from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.audit.report import AuditReport, AuditVerdict
from twinlog.cluster.pipeline.jobs.audit import AuditOptions, audit
from twinlog.cluster.pipeline.sources.places import StoreUri

pytestmark = pytest.mark.timeout(180)


def audited(spark, group: Group) -> AuditReport:
    """Audit the directories of all members in their current state."""
    return audit(spark, [StoreUri(str(member.store)) for member in group.members], AuditOptions())


def asked(group: Group, status: int = 0) -> dict:
    """Audit the same members by `--live`."""
    addresses = [member.address for member in group.members if member.running]
    done = group.twinlog("audit", "--live", *addresses, "-o", "json", status=status)
    return json.loads(done.stdout)


def knows_topic(member: RoleBroker) -> bool:
    """True if the member has the topic: slaves fetch topics every few seconds only."""
    file = member.store / "config" / "topics.json"
    return file.exists() and TOPIC in file.read_text()


async def test_members_in_traffic_are_equal_up_to_lag(spark, tmp_path: Path):
    """Repeatedly, while messages arrive: late bytes count as no difference."""
    with running(tmp_path, 3) as group:
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing(2):
            await traffic.more(200)
            await in_thread(wait_for, lambda: all(map(knows_topic, group.members)), "the topic at the slaves")
            for _ in range(2):
                before = len(traffic.acknowledged)
                report = await in_thread(audited, spark, group)
                assert report.verdict is AuditVerdict.EQUAL, report
                assert {each.cls for each in report.findings} <= {FindingClass.LAG}
                assert all(member.is_running for member in report.members)
                assert report.blocks > 0
                assert len(traffic.acknowledged) > before, "there was no traffic meanwhile"
            live = await in_thread(asked, group)
            assert live["verdict"] == "equal", live
        traffic.check(await traffic.consumed())


async def test_where_a_master_wrote_alone_is_named_after_the_failover(spark, tmp_path: Path):
    """The dead master has a message that no other member has; the elected one wrote at the same offset."""
    with running(tmp_path, 3, haAutoRewind="false") as group:
        first, second, third = group.members
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(100)
        group.twinlog("wait", "level")
        second.kill()
        third.kill()
        for number in range(3):
            group.twinlog("send", TOPIC, f"nobody else has this {number}", status=None)
        first.kill()
        second.start()
        third.start()
        done = group.twinlog("failover", "--candidate", second.label, "--yes", status=None)
        assert done.returncode in (0, 6), done.stderr
        for number in range(5):
            group.twinlog("send", TOPIC, f"of the new master {number}")
        parted = parting(first.store, second.store)

        report = await in_thread(audited, spark, group)
        assert report.verdict is AuditVerdict.DIVERGENT
        old, *others = report.members
        divergent = [each for each in report.findings if each.cls is FindingClass.DIVERGENT]
        assert [(each.member, each.offset) for each in divergent] == [(old.name, parted)], report.findings
        assert divergent[0].good in {each.name for each in others}
        assert divergent[0].since_ms
        assert "rewind" in divergent[0].mend

        first.start()
        group.twinlog("wait", f"{first.label}=diverged", "--timeout", "30")
        live = await in_thread(asked, group, status=1)
        (found,) = [each for each in live["findings"] if each["cls"] == "divergent"]
        assert found["offset"] == parted
