"""`twinlog crosscheck` against members that run."""

import json
import socket

import trio

from tests.cluster.cli.json_schema import violations
from tests.cluster.cli.live_logs import change, level, send
from twinlog.cluster.admin.documents import schema_of
from twinlog.cluster.observe.cross_check import Crosscheck
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.command import RemotingCommand


async def crosscheck(cluster, *more: str, status: int = 0):
    result = await cluster.twinlog("crosscheck", *more, ok=False)
    assert result.exit_code == status, result.output
    return result


async def document(cluster, *more: str, status: int = 0) -> dict:
    found = json.loads((await crosscheck(cluster, *more, "-o", "json", status=status)).stdout)
    assert violations(found, schema_of(Crosscheck)) == []
    return found


async def test_a_pair_in_traffic_agrees(cluster):
    """Although nothing stands still while they are asked."""
    await send(cluster, b"first")
    await level(cluster)
    going_on = True

    async def produce():
        while going_on:
            await send(cluster, *(b"x" * 3_000 for _ in range(20)))

    async with trio.open_nursery() as producing:
        producing.start_soon(produce)
        found = await document(cluster)
        going_on = False
    assert (found["verdict"], found["findings"], found["not_asked"]) == ("agree", [], [])
    (direction,) = found["directions"]
    assert (direction["slave"], direction["master"], direction["counted"]) == ("broker-a-1", "broker-a-0", True)
    assert direction["slave_connects_to"] == cluster.master.settings.ha_address
    assert [report["verdict"] for report in found["logs"]] == ["equal"]
    text = (await crosscheck(cluster)).stdout
    assert "broker-a-0 and broker-a-1: equal where they overlap" in text
    assert text.endswith("all agree\n")


async def test_logs_that_differ(cluster):
    await send(cluster, *(b"x" * 1_000 for _ in range(9)))
    await level(cluster)
    change(cluster.slave, 2_000)
    found = await document(cluster, status=1)
    assert found["verdict"] == "contradictions"
    assert [each["cause"] for each in found["findings"]] == ["logs differ"]
    text = (await crosscheck(cluster, status=1)).stdout
    assert "the logs of broker-a-0 and broker-a-1 differ from byte 2000 on" in text
    assert "twinlog log diff --live broker-a-0 broker-a-1" in text
    assert (await document(cluster, "--last", "500B"))["verdict"] == "agree", "only the end was compared"


async def test_a_member_that_does_not_answer(cluster, nursery):
    """It is registered, and nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    header = {
        "brokerName": "broker-a",
        "brokerAddr": f"127.0.0.1:{port}",
        "clusterName": "DefaultCluster",
        "haServerAddr": "127.0.0.1:1",
        "brokerId": "2",
    }
    client = RemotingClient()
    await nursery.start(client.run)
    await client.request(cluster.namesrv, RemotingCommand(103, ext=header))
    found = await document(cluster, status=6)
    assert found["verdict"] == "incomplete"
    assert found["not_asked"][0].startswith(f"broker-a-2 at 127.0.0.1:{port} does not answer")
    assert "not asked  broker-a-2" in (await crosscheck(cluster, status=6)).stdout


async def test_tsv_and_usage(cluster):
    lines = (await crosscheck(cluster, "-o", "tsv")).stdout.splitlines()
    assert lines[0].split("\t")[0] == "slave"
    assert lines[1].split("\t")[0] == "broker-a-1"
    await crosscheck(cluster, "--last", "much", status=2)


async def test_without_a_name_server(cluster):
    await crosscheck(cluster, "-n", "127.0.0.1:1", status=3)
