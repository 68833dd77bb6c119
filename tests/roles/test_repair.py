"""`twinlog rewind` and `twinlog reinit` on real processes."""

import json
import shutil

import pytest

from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group.roles import Traffic, in_thread, running

pytestmark = pytest.mark.timeout(120)


async def test_a_tail_that_was_given_up_is_cut_when_somebody_says_so(tmp_path):
    """With haAutoRewind=false the returning master shows what it has too much, and keeps it until `rewind`; it stays readable."""
    with running(tmp_path, 3, haAutoRewind="false") as group:
        first, second, third = group.members
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(20)
        second.kill()
        third.kill()
        group.twinlog("send", "tail", "nobody else has this", status=None)
        first.kill()
        second.start()
        third.start()
        done = group.twinlog("failover", "--candidate", second.label, "--yes", status=None)
        assert done.returncode in (0, 6), done.stderr
        first.start()
        group.twinlog("wait", f"{first.label}=diverged", "--timeout", "30")
        plan = group.twinlog("rewind", first.label, "--dry-run")
        assert f"of {first.label} would be moved aside" in plan.stdout
        assert group.listed()[first.label]["state"] == "diverged"
        result = json.loads(group.twinlog("rewind", first.label, "--yes", "-o", "json").stdout)
        (kept,) = result["kept"]
        assert kept["size"] > 0
        assert (
            "nobody else has this"
            in group.twinlog("log", "dump", kept["path"], "--from", str(kept["first_offset"]), "--body").stdout
        )
        group.wait_healthy()
        await in_thread(wait_for_same_commitlog, first.commit_log, second.commit_log)
        traffic.check(await traffic.consumed())


async def test_reinit_begins_anew(tmp_path):
    """The whole log comes again, the old one is kept; a master is refused."""
    with running(tmp_path) as group:
        first, second = group.members
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(50)
        group.twinlog("wait", "level")
        group.twinlog("reinit", first.label, "--yes", status=4)
        group.twinlog("reinit", second.label, "--dry-run")
        result = json.loads(group.twinlog("reinit", second.label, "--yes", "-o", "json").stdout)
        assert result["written_offset"] > 0
        assert result["kept"]
        group.wait_healthy()
        await in_thread(wait_for_same_commitlog, first.commit_log, second.commit_log)
        group.twinlog("switchover", "--candidate", second.label, "--yes")
        traffic.check(await traffic.consumed())


async def test_an_emptied_master_comes_back_as_a_slave(tmp_path):
    """Its broker.conf says master still, and no moment is there in which it is one: producers are at it all the time."""
    with running(tmp_path, 3) as group:
        first, second, _third = group.members
        traffic = Traffic(group.namesrv.address)
        async with traffic.flowing():
            await traffic.more(20)
            first.kill()
            done = await in_thread(lambda: group.twinlog("failover", "--candidate", second.label, "--yes"))
            missing = (
                "missing: broker-a-0, unreachable since before this began. It follows by itself when it comes back"
            )
            assert missing in done.stdout.splitlines()
            assert "Error" not in done.stderr
            await traffic.more(20)
            shutil.rmtree(first.store)
            said = len(first.tail(1000).splitlines())
            await in_thread(first.start)
            await in_thread(group.wait_healthy)
            await traffic.more(20)
        told = "\n".join(first.tail(1000).splitlines()[said:])
        assert told.index("every other voter has to be heard first") < told.index("ready broker="), told
        assert group.master() is second
        group.twinlog("wait", "level")
        await in_thread(wait_for_same_commitlog, first.commit_log, second.commit_log)
        traffic.check(await traffic.consumed())
