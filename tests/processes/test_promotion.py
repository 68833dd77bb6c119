"""A slave that takes over: a RocketMQ user edits broker.conf and restarts (apache/rocketmq#3015). In a group whose members keep
their roles that alone changes nothing, and `failover` does.

Somebody writes random bytes to the HA port meanwhile; the master dies before it has flushed anything.
"""

import random
import socket
from pathlib import Path

import pytest
import trio

from cluster.admin import open_admin
from cluster.client.api import SendStatus
from cluster.client.producer import OutgoingMessage, Producer
from cluster.remoting.errors import RemotingError
from tests.interop import twinlog
from tests.interop.member import TEST_SETTINGS
from tests.interop.role_changes import change_role, wait_grouped

pytestmark = pytest.mark.timeout(120)
TOPIC = "promoted"
NEVER = str(1 << 30)  # ms between flushes.
SETTINGS = {**TEST_SETTINGS, "flushIntervalCommitLog": NEVER, "flushCommitLogThoroughInterval": NEVER}


def _write_rubbish(port: int, rng: random.Random) -> None:
    """From an address that nobody registered; the answer, if there is one, is nobody's business."""
    for _ in range(20):
        with socket.socket() as stranger:
            stranger.bind(("127.0.0.9", 0))
            stranger.connect(("127.0.0.1", port))
            stranger.send(rng.choice([rng.randbytes(64), (1 << 50).to_bytes(8, "big"), bytes(8)]))


async def _send(namesrv: str, count: int, acknowledged: dict[bytes, int], prefix: bytes) -> None:
    async with open_admin((namesrv,), timeout_ms=5000) as admin:
        producer = Producer(admin.api, tries_max=1)
        for number in range(count):
            body = b"%s-%d" % (prefix, number)
            try:
                sent = await producer.send(OutgoingMessage(topic=TOPIC, body=body))
            except RemotingError:
                return  # The master is gone.
            if sent.status is SendStatus.SEND_OK:
                acknowledged[body] = sent.queue_offset


async def _consume(namesrv: str) -> list[bytes]:
    found: list[bytes] = []
    async with open_admin((namesrv,)) as admin:
        await admin.consume(TOPIC, lambda message: found.append(message.body) or True)  # type: ignore[func-returns-value]
    return found


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
                await _send(namesrv.address, 1, acknowledged, b"first%d" % attempt)
        await trio.to_thread.run_sync(wait_grouped, master, 2)
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(_send, namesrv.address, 1_000_000, acknowledged, b"%d" % number)
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
        consumed = await _consume(namesrv.address)
        assert set(consumed) >= acknowledged.keys()
        assert len(set(consumed)) == len(consumed)

        after: dict[bytes, int] = {}
        await _send(namesrv.address, 8, after, b"after")
        assert not after, "one copy is not what producers were promised"
        everything = await _consume(namesrv.address)
        assert len([body for body in everything if body.startswith(b"after")]) == 8, "it takes messages"
