"""Our name server and the real one, asked the same: the same answers. And a real broker and mqadmin at home with ours."""

import json
import struct
import zlib
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import trio

from tests.support.clients.java_client import JavaClient
from tests.support.clients.java_reader import Tool
from tests.support.process_group import rocketmq
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.command import ROCKETMQ, RemotingCommand
from twinlog.cluster.remoting.config import ServerConfig

A, B, D = "192.0.2.11:10911", "192.0.2.12:10911", "192.0.2.21:10911"


def ask(code: int, body: bytes = b"", *, version: int = 409, serialize_type: int = 0, **ext: object) -> RemotingCommand:
    fields = {name: str(value) for name, value in ext.items()}
    return RemotingCommand(code, ext=fields or None, body=body, version=version, serialize_type=serialize_type)


def register(
    number: int = 0,
    address: str = A,
    counter: int = 1,
    topics: Iterable[str] = ("T1", "TBW102"),
    name: str = "broker-a",
    cluster: str = "C1",
    compressed: bool = False,
    flag: int = 0,
    **more: object,
) -> RemotingCommand:
    version = {"counter": counter, "timestamp": 5}
    if compressed:
        texts = [json.dumps(version), *(f"{topic} 4 4 6 SINGLE_TAG" for topic in topics)]
        first, *rest = [struct.pack(">i", len(text)) + text.encode() for text in texts]
        body = zlib.compress(first + struct.pack(">i", len(rest)) + b"".join(rest) + struct.pack(">i", 2) + b"[]")
    else:
        common = {"order": False, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG", "writeQueueNums": 4}
        table = {topic: {**common, "topicName": topic, "topicSysFlag": flag} for topic in topics}
        wrapper = {"dataVersion": version, "topicConfigTable": table}
        body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    ext = {
        "brokerName": name,
        "brokerAddr": address,
        "clusterName": cluster,
        "haServerAddr": address.replace("10911", "10912"),
        "brokerId": number,
        "compressed": str(compressed).lower(),
        "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF,
        **more,
    }
    return ask(103, body, **ext)


WHO = {"brokerName": "broker-a", "brokerAddr": A, "clusterName": "C1", "brokerId": 0}
CONVERSATION = [
    *(ask(105, topic="T1"), ask(106), ask(206), ask(304)),
    *(register(), register(1, B), register(1, B)),
    *(ask(105, topic="T1"), ask(105, topic="T1", version=400), ask(105, topic="T1", serialize_type=ROCKETMQ)),
    ask(105, topic="T1", version=1, acceptStandardJsonOnly="true"),
    *(ask(106), ask(206), ask(224, cluster="C1"), ask(224, cluster="X"), ask(304), ask(311), ask(312), ask(313)),
    *(register(counter=2, topics=("U1", "U2"), flag=3), ask(311), ask(312), ask(313)),
    ask(322, b'{"counter":2,"timestamp":5}', **WHO),
    ask(322, b'{"counter":3,"timestamp":5}', **WHO),
    ask(322, b'{"counter":3,"timestamp":5}', **{**WHO, "brokerAddr": "x:1"}),
    *(ask(205, brokerName="broker-a"), ask(105, topic="T1"), ask(327, brokerName="broker-a"), ask(105, topic="TBW102")),
    *(ask(205, brokerName="nobody"), ask(327, brokerName="nobody")),
    *(ask(100, namespace="N", key="k", value="v"), ask(101, namespace="N", key="k"), ask(101, namespace="N", key="x")),
    *(ask(219, namespace="N"), ask(219, namespace="M"), ask(102, namespace="N", key="k"), ask(219, namespace="N")),
    *(
        ask(100, namespace="ORDER_TOPIC_CONFIG", key="T1", value="broker-a:4"),
        register(counter=2),
        ask(105, topic="T1"),
    ),
    *(register(0, D, 1, ("Z1", "Z2"), "broker-b", "C2", True), ask(105, topic="Z1"), ask(206)),
    *(ask(216, topic="Z1"), ask(105, topic="Z1"), ask(216, topic="nowhere"), register(bodyCrc32=5)),
    *(register(topics=("Tönö",), counter=9), ask(105, topic="Tönö"), ask(105, topic="Tönö", version=1)),
    *(ask(104, **WHO), ask(105, topic="T1"), register(0, B, 3), ask(105, topic="T1")),
    *(ask(104, **{**WHO, "brokerAddr": B}), ask(106), ask(206)),
]


def meaning(answer: RemotingCommand) -> object:
    """What clients take from an answer. Lists of topics come in any order; the real one adds a link to its remarks."""
    body = bytes(answer.body)
    if body.startswith(b'{"topicList"'):
        body = fastjson.dumps({"topicList": sorted(json.loads(body)["topicList"])})
    if answer.code == 0:
        return answer.ext, body, answer.serialize_type
    return answer.code, (answer.remark or "").partition("\n")[0]


async def test_the_same_questions_get_the_same_answers(real_namesrv, nursery):
    ours = NameServer(NamesrvConfig(kv_config_path=None, listen_port=0), ServerConfig(bind_address="127.0.0.1"))
    addresses = (real_namesrv.address, f"127.0.0.1:{await nursery.start(ours.run)}")
    client = RemotingClient()
    await nursery.start(client.run)
    for command in CONVERSATION:
        real, own = [await client.request(address, command, timeout_ms=20_000) for address in addresses]
        if command.code == 304:  # Any one broker's address will do.
            real, own = [json.loads(bytes(answer.body)) for answer in (real, own)]
            assert sorted(real["topicList"]) == sorted(own["topicList"])
            assert ("brokerAddr" in real) == ("brokerAddr" in own)
        else:
            assert meaning(own) == meaning(real), command


async def serve_broker(root: Path, nursery: trio.Nursery, compressed: str) -> tuple[NameServer, str, rocketmq.Broker]:
    """Our name server, and a real broker to register with it."""
    ours = NameServer(NamesrvConfig(kv_config_path=None, listen_port=0), ServerConfig(bind_address="127.0.0.1"))
    address = f"127.0.0.1:{await nursery.start(ours.run)}"
    return ours, address, rocketmq.Broker(root / "broker", address, settings={"compressedRegister": compressed})


async def test_a_real_broker_registers_in_the_compressed_form(root, nursery):
    ours, _, broker = await serve_broker(root, nursery, "true")
    await trio.to_thread.run_sync(broker.start)
    try:
        assert ours.routes.brokers["broker-a"].addresses == {0: broker.address}
        assert ours.routes.queues["TBW102"]["broker-a"].perm == 7
        assert ours.routes.queues["SCHEDULE_TOPIC_XXXX"]["broker-a"].write_queues == 18
    finally:
        await trio.to_thread.run_sync(broker.stop)
    assert not ours.routes.live  # It left of its own accord.


async def test_mqadmin_finds_its_way(root, nursery):
    ours, address, broker = await serve_broker(root, nursery, "false")

    stack = ExitStack()

    def start() -> Tool:
        stack.enter_context(broker)
        client = JavaClient(root / "client", jvm_options=[f"-Drocketmq.home.dir={broker.root}"])
        return Tool(stack.enter_context(client), address)

    with stack:
        tool = await trio.to_thread.run_sync(start)

        async def run(*arguments: str) -> str:
            return "".join(await trio.to_thread.run_sync(tool.both, *arguments, "-n", address))

        assert broker.address in await run("clusterList")
        assert "success" in await run("updateTopic", "-b", broker.address, "-t", "Fresh", "-r", "3", "-w", "3")
        assert '"readQueueNums":3' in await run("topicRoute", "-t", "Fresh")
        assert "success" in await run("updateKvConfig", "-s", "NS", "-k", "key", "-v", "value")
        assert ours.kv.get("NS", "key") == "value"
        assert "wipe write perm of broker[broker-a]" in await run("wipeWritePerm", "-b", "broker-a")
        assert ours.routes.queues["Fresh"]["broker-a"].perm == 4
        assert "success" in await run("deleteTopic", "-c", "DefaultCluster", "-t", "Fresh")
        assert "Fresh" not in ours.routes.queues
