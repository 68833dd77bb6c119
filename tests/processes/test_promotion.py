"""A slave that takes over (apache/rocketmq#3015). In a group whose members keep their roles editing broker.conf alone changes
nothing, and `failover` does; elsewhere editing does it, see tests/pairs/test_promotion_by_editing.py.

Somebody writes random bytes to the HA port meanwhile; the master dies before it has flushed anything.
"""

import random
import socket
from pathlib import Path

import pytest
import trio

from tests.support.clients.promotion import NEVER, consume_all, send_until_refused
from tests.support.process_group import twinlog
from tests.support.process_group.member import TEST_SETTINGS
from tests.support.process_group.role_changes import change_role, wait_electable, wait_grouped

pytestmark = pytest.mark.timeout(120)
SETTINGS = {**TEST_SETTINGS, "flushIntervalCommitLog": NEVER, "flushCommitLogThoroughInterval": NEVER}


def _write_rubbish(port: int, rng: random.Random) -> None:
    """From an address that nobody registered; the answer, if there is one, is nobody's business."""
    for _ in range(20):
        with socket.socket() as stranger:
            stranger.bind(("127.0.0.9", 0))
            stranger.connect(("127.0.0.1", port))
            stranger.send(rng.choice([rng.randbytes(64), (1 << 50).to_bytes(8, "big"), bytes(8)]))


async def test_a_promoted_slave_has_every_message_that_was_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(3015)
    acknowledged: dict[bytes, int] = {}
    with (
        twinlog.NameServer(tmp_path / "namesrv") as namesrv,
        twinlog.Broker(tmp_path / "master", namesrv.address, role="SYNC_MASTER", settings=SETTINGS) as master,
        twinlog.Broker(tmp_path / "slave", namesrv.address, role="SLAVE", settings=SETTINGS) as slave,
    ):
        attempt = 0
        with trio.fail_after(30):
            while not acknowledged:  # Until the slave counts.
                attempt += 1
                await send_until_refused(namesrv.address, 1, acknowledged, b"first%d" % attempt)
        await trio.to_thread.run_sync(wait_grouped, master, 2)
        await trio.to_thread.run_sync(wait_electable, slave, 2)
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(send_until_refused, namesrv.address, 1_000_000, acknowledged, b"%d" % number)
            await trio.to_thread.run_sync(_write_rubbish, master.ha_port, rng)
            while len(acknowledged) < 300:
                await trio.sleep(0.01)
            master.kill()
        slave.stop()
        conf = slave.conf.read_text()
        assert "brokerRole=SLAVE" in conf
        slave.conf.write_text(
            conf.replace("brokerRole=SLAVE", "brokerRole=ASYNC_MASTER").replace("brokerId=1", "brokerId=0")
        )
        await trio.to_thread.run_sync(slave.start)
        await trio.to_thread.run_sync(change_role, "failover", slave)
        consumed = await consume_all(namesrv.address)
        assert set(consumed) >= acknowledged.keys()
        assert len(set(consumed)) == len(consumed)

        after: dict[bytes, int] = {}
        await send_until_refused(namesrv.address, 8, after, b"after")
        assert not after, "one copy is not what producers were promised"
        everything = await consume_all(namesrv.address)
        assert len([body for body in everything if body.startswith(b"after")]) == 8, "it takes messages"
