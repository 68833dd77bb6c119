"""`twinlog failover` on real processes: the master is dead, cut off, or not dead at all."""

import json
import signal

import pytest
import trio

from tests.support.clients.remoting import lock_queues
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group.roles import TOPIC, Traffic, in_thread, running
from twinlog.cluster.admin.admin import open_admin
from twinlog.cluster.client.api import SendStatus
from twinlog.cluster.remoting.errors import RemotingError
from twinlog.cluster.remoting.headers.messages import SendMessageV2

pytestmark = pytest.mark.timeout(120)
HANGING_SECONDS_MAX = 5.0  # haLeaseMs + 2 s, the start of the command included.
REJOIN_SECONDS_MAX = 10.0  # From SIGCONT until it follows, as a command sees it.


def test_refused_with_a_reason_dry_run_and_forced(tmp_path):
    """Of three members two must promise. With one left the range is named, and nothing is changed before somebody accepts it."""
    with running(tmp_path, 3) as group:
        first, second, third = group.members
        group.twinlog("send", TOPIC, "held by two")
        alive = group.twinlog("failover", "--candidate", second.label, "--yes", status=4)
        assert "switchover" in alive.stderr
        first.kill()
        third.kill()
        for option in ("--yes", "--dry-run"):
            refused = group.twinlog("failover", "--candidate", second.label, option, status=4)
            assert "may not be chosen: " in refused.stderr
            assert "would be given up" in refused.stderr
        group.twinlog("failover", "--candidate", second.label, "--accept-data-loss", "1GB", "--yes", status=4)
        forced = ("failover", "--candidate", second.label, "--accept-data-loss", "unknown")
        plan = json.loads(group.twinlog(*forced, "--dry-run", "-o", "json").stdout)
        assert [step["name"] for step in plan["steps"]][:2] == ["check", "promise"]
        assert group.listed()[second.label]["role"] == "slave"
        done = group.twinlog(*forced, "--yes", "--reason", "fire", "-o", "json", status=None)
        assert done.returncode in (0, 6), done.stderr
        assert json.loads(done.stdout)["lost_bytes"] is None
        assert group.master() is second
        first.start()
        third.start()
        group.wait_healthy()
        last = json.loads(group.twinlog("history", "-o", "json").stdout)["reigns"][-1]
        assert (last["kind"], last["new"], last["reason"]) == ("forced", second.label, "fire")


async def _send_to(address: str, namesrv: str, traffic: Traffic, number: int) -> None:
    """Straight to a broker, as a client does that has not heard of another master."""
    async with open_admin((namesrv,), timeout_ms=20_000) as admin:
        body = f"late-{number}".encode()
        traffic.sent.add(body)
        try:
            sent = await admin.api.send(
                address, SendMessageV2("late", TOPIC, "TBW102", 4, 0, 0, 1, 0, "", broker_name="broker-a"), body
            )
        except RemotingError:
            return
        if sent.status is SendStatus.SEND_OK:
            traffic.acknowledged[body] = (int(sent.offset_message_id[16:], 16), 0.0)


async def test_a_master_that_stood_still_acknowledges_nothing_of_its_own(tmp_path):
    """It wakes up with requests waiting, while another one is the master: what it says SEND_OK to is in that one's log.

    ORDERLY: a queue that a consumer has locked is its own still; one that nobody has is given at once.
    """
    with running(tmp_path, 3) as group:
        first, second, _ = group.members
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(20)
            assert lock_queues(first.address, "G", "one", TOPIC, [0, 1]) == {0, 1}
            first.send_signal(signal.SIGSTOP)
            async with trio.open_nursery() as late:
                for number in range(20):
                    late.start_soon(_send_to, first.address, group.namesrv.address, traffic, number)
                began = trio.current_time()
                done = await in_thread(group.twinlog, "failover", "--candidate", second.label, "--yes", status=None)
                took = trio.current_time() - began
                assert done.returncode in (0, 6), done.stderr
                await traffic.more(20)
                assert lock_queues(second.address, "G", "other", TOPIC, [0, 1, 2]) == {2}
                assert lock_queues(second.address, "G", "one", TOPIC, [0, 1, 2]) == {0, 1}
                first.send_signal(signal.SIGCONT)
                assert lock_queues(first.address, "G", "third", TOPIC, [0, 1, 2, 3]) in (None, set(), {3})
                woke = trio.current_time()
        await in_thread(group.wait_healthy)
        assert trio.current_time() - woke < REJOIN_SECONDS_MAX
        assert took < HANGING_SECONDS_MAX, f"{took:.1f} s past a master that hangs"
        assert await in_thread(group.master) is second
        traffic.check(await traffic.consumed())
        for member in group.members[1:]:
            wait_for_same_commitlog(first.commit_log, member.commit_log)
