"""A slave that takes over as RocketMQ's users do it: they edit broker.conf and restart (apache/rocketmq#3015).

Its master is RocketMQ's, so that no role is recorded anywhere; that one dies before anything was flushed on either side.
"""

from pathlib import Path

import pytest
import trio

from tests.support.clients.promotion import NEVER, consume_all, send_until_refused
from tests.support.process_group import jars, rocketmq, twinlog
from tests.support.process_group.member import TEST_SETTINGS

pytestmark = pytest.mark.timeout(120)
SETTINGS = {**TEST_SETTINGS, "flushIntervalCommitLog": NEVER, "flushCommitLogThoroughInterval": NEVER}


def promote(conf: Path) -> None:
    """What a person types."""
    text = conf.read_text()
    assert "brokerRole=SLAVE" in text
    assert "brokerId=1" in text
    conf.write_text(text.replace("brokerRole=SLAVE", "brokerRole=ASYNC_MASTER").replace("brokerId=1", "brokerId=0"))


@pytest.mark.parametrize("version", [jars.VERSION, jars.VERSION_5])
async def test_a_slave_of_rocketmq_is_promoted_by_editing_its_configuration(tmp_path: Path, version: str) -> None:
    acknowledged: dict[bytes, int] = {}
    in_sync = {"inSyncReplicas": "2"} if version == jars.VERSION_5 else {}  # 4.9's meaning of SYNC_MASTER.
    with (
        twinlog.NameServer(tmp_path / "namesrv") as namesrv,
        rocketmq.Broker(
            tmp_path / "master",
            namesrv.address,
            role="SYNC_MASTER",
            settings={**SETTINGS, **in_sync, "autoCreateTopicEnable": "true"},
            version=version,
        ) as master,
        twinlog.Broker(tmp_path / "slave", namesrv.address, role="SLAVE", settings=SETTINGS) as slave,
    ):
        attempt = 0
        with trio.fail_after(60):
            while not acknowledged:  # Until the slave counts.
                attempt += 1
                await send_until_refused(namesrv.address, 1, acknowledged, b"first%d" % attempt)
                await trio.sleep(0.1)
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(send_until_refused, namesrv.address, 1_000_000, acknowledged, b"%d" % number)
            with trio.fail_after(30):
                while len(acknowledged) < 300:
                    await trio.sleep(0.01)
            master.kill()
        slave.stop()
        promote(slave.conf)
        await trio.to_thread.run_sync(slave.start)

        consumed = await consume_all(namesrv.address)
        assert set(consumed) >= acknowledged.keys()
        assert len(set(consumed)) == len(consumed)
        after: dict[bytes, int] = {}
        await send_until_refused(namesrv.address, 8, after, b"after")
        assert len(after) == 8
