"""`twinlog switchover` on real processes: planned, carried out in traffic, paused, refused."""

import json

import pytest

from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group.roles import Group, Traffic, in_thread, running

pytestmark = pytest.mark.timeout(120)


def in_names(text: str, group: Group) -> str:
    for member in group.members:
        text = text.replace(member.address, member.label)
    return text


async def test_there_and_back_in_traffic_without_a_message_lost(tmp_path):
    """Each change: a plan first, which changes nothing; then the same steps, the pause in ms, and the history."""
    with running(tmp_path) as group:
        first, second = group.members
        planned = group.twinlog("switchover", "--dry-run", "-o", "json").stdout
        steps = [step["text"] for step in json.loads(planned)["steps"]]
        assert group.master() is first
        traffic = Traffic(group.namesrv.address)
        results = []
        async with traffic.flowing(3):
            for candidate in (second, first):
                await traffic.more(20)
                done = await in_thread(
                    group.twinlog,
                    "switchover",
                    "--candidate",
                    candidate.label,
                    "--yes",
                    "--reason",
                    "test",
                    "-o",
                    "json",
                )
                results.append(json.loads(done.stdout))
                if candidate is second:
                    told = [line.partition(". ")[2].rpartition(":")[0] for line in done.stderr.splitlines()]
                    assert told == [in_names(step, group) for step in steps], "what was planned is what was done"
                await traffic.more(20)
        await in_thread(group.wait_healthy)
        assert await in_thread(group.master) is first
        traffic.check(await traffic.consumed())
        assert [result["winner"] for result in results] == [second.address, first.address]
        assert all(result["pause_ms"] < 2500 and result["lost_bytes"] == 0 for result in results)
        reigns = json.loads(group.twinlog("history", "-o", "json").stdout)["reigns"]
        last = [(each["old"], each["new"], each["kind"], each["reason"], each["lost_bytes"]) for each in reigns[-2:]]
        assert last == [
            (first.label, second.label, "switchover", "test", 0),
            (second.label, first.label, "switchover", "test", 0),
        ]
        assert [each["epoch"] for each in reigns] == sorted({each["epoch"] for each in reigns})
        wait_for_same_commitlog(first.commit_log, second.commit_log)


def test_a_pause_refuses_and_runs_out(tmp_path):
    """It is shown, it refuses with exit status 4, it ends by itself or is taken back."""
    with running(tmp_path) as group:
        group.twinlog("pause", "--for", "1h", "--reason", "new switches")
        assert "paused until" in group.twinlog("list").stdout
        refused = group.twinlog("switchover", "--yes", status=4)
        assert "new switches" in refused.stderr
        group.twinlog("failover", "--candidate", group.members[1].label, "--yes", status=4)
        group.twinlog("resume")
        assert "paused" not in group.twinlog("list").stdout
        group.twinlog("pause", "--for", "0.5s")
        done = None
        while done is None or done.returncode == 4:
            done = group.twinlog("switchover", "--yes", status=None)
        assert done.returncode == 0, done.stderr
        assert group.master() is group.members[1]


def test_roles_survive_a_restart_whatever_broker_conf_says(tmp_path):
    """The store's role wins over the file, and the broker says so."""
    with running(tmp_path) as group:
        first, second = group.members
        group.twinlog("switchover", "--yes")
        for member in group.members:
            member.stop()
        for member in group.members:
            member.start()
        group.wait_healthy()
        assert group.master() is second
        assert "brokerRole=SYNC_MASTER" in first.conf.read_text()
        assert "the store's role wins" in first.log.read_text()
        group.twinlog("send", "after", "the restart")
