"""What a real RocketMQ broker answers to members that ask about its log, and comparing a running pair of both kinds."""

import json
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.support.clients.remoting import create_topic, request
from tests.support.disk.compare import wait_for_same_commitlog
from tests.support.process_group import jars, rocketmq, twinlog
from tests.support.process_group.up import run
from twinlog.cluster.broker.peers.ha_peer import RemotingPeer
from twinlog.cluster.client.api import ClientApi
from twinlog.cluster.client.messages import OutgoingMessage
from twinlog.cluster.client.producer import Producer
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.store.record.message import decode_message

TOPIC = "compared"
FILE_SIZE = 1 << 20  # As TEST_SETTINGS has it.
MESSAGES = 400


async def produce(namesrv: str) -> None:
    client = RemotingClient()
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        producer = Producer(ClientApi(client, (namesrv,)))
        for number in range(MESSAGES):
            await producer.send(OutgoingMessage(topic=TOPIC, body=b"%06d" % number * 500))
        nursery.cancel_scope.cancel()


async def ask(address: str, log: bytes) -> None:
    """The real broker as a peer; `log` is what it holds."""
    client = RemotingClient()
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        peer = RemotingPeer(address, client)
        told = await peer.log()
        assert (told.is_twinlog, told.min_offset, told.max_offset) == (False, 0, len(log))
        assert (told.file_size, told.is_master) == (FILE_SIZE, True)
        assert told.boot_ms > 1_600_000_000_000
        assert await peer.digests(0, len(log)) is None
        assert await peer._api.block_digests(address, 0, len(log)) is None, "code 3"
        assert await peer._api.record_at(address, 0) is None
        first = decode_message(log).size
        assert await peer.record(0) == log[:first]
        second = await peer.record(first)
        assert second == log[first : first + len(second)]
        for offset in (1, 4, 30, first - 1, first + 8, FILE_SIZE - 8, len(log), len(log) + 5, 1 << 50, -1):
            assert await peer.record(offset) is None
        nursery.cancel_scope.cancel()


def compare(namesrv: str, *arguments: str, status: int = 0) -> str:
    done = run(*arguments, namesrv=namesrv)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("version", [jars.VERSION, jars.VERSION_5])
def test_a_real_master_and_our_slave(root: Path, version: str) -> None:
    """Private requests are answered with code 3, bad offsets with errors or rubbish; samples of the two logs are compared."""
    with (
        twinlog.NameServer(root / "namesrv") as namesrv,
        rocketmq.Broker(root / "master", namesrv.address, version=version) as master,
    ):
        empty, _ = request(master.address, 20002, {"start": "0", "end": "5", "blocksPerDigest": "1"})
        assert empty["code"] == 3
        create_topic(master.address, TOPIC)
        with twinlog.Broker(root / "slave", namesrv.address, role="SLAVE") as slave:
            trio.run(produce, namesrv.address)
            start, end = wait_for_same_commitlog(master.commit_log, slave.commit_log)
            assert end > FILE_SIZE
            log = b"".join(path.read_bytes() for path in sorted(master.commit_log.iterdir()))[:end]
            trio.run(partial(ask, master.address, log))

            report = json.loads(
                compare(namesrv.address, "log", "diff", "--live", "broker-a-0", "broker-a-1", "-o", "json")
            )
            assert (report["verdict"], report["common_start"], report["equal_to"]) == ("samples-equal", start, end)
            assert report["left"]["software"].startswith("RocketMQ ")
            assert report["samples"] > 20
            checked = json.loads(compare(namesrv.address, "crosscheck", "-o", "json"))
            assert (checked["verdict"], checked["not_asked"]) == ("agree", [])
            spoil_last_message(slave.commit_log, end)
            text = compare(namesrv.address, "log", "diff", "--live", "broker-a-0", "broker-a-1", status=1)
            assert "sampled: different, first at" in text
            assert "the right one is damaged there" in text


def spoil_last_message(commit_log: Path, end: int) -> None:
    """Another digit in the body of the last message, whose CRC fits no longer."""
    path = max(commit_log.iterdir())
    at = path.read_bytes().rindex(b"%06d" % (MESSAGES - 1), 0, end - int(path.name))
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"!")
