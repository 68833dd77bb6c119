"""Whole brokers and a name server in one process, over loopback and in real time: for tests of sockets and ports, and of
clients and commands, which are threads or open connections of their own.

Virtual time leaps while a socket or a thread is at work. Tests of all else take the members of `tests.support.group.group`.
"""

from pathlib import Path

import attrs
import pytest
import trio

from tests.cluster.broker.helpers import make_broker
from tests.support.process_group.ports import free_broker_port
from twinlog.cluster.broker.broker import Broker
from twinlog.cluster.namesrv.config import NamesrvConfig
from twinlog.cluster.namesrv.service import NameServer
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.client import RemotingClient
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.ha.config import HAConfig
from twinlog.store.config import BrokerRole

HOST = "127.0.0.1"
SERVER = ServerConfig(bind_address=HOST)


@attrs.define
class Running:
    """A handle to stop a broker and wait for its end."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    ended: trio.Event = attrs.field(factory=trio.Event)

    async def stop(self):
        self.scope.cancel()
        with trio.fail_after(5):
            await self.ended.wait()


@attrs.define
class Cluster:
    """A name server, and brokers of one group below `root`."""

    nursery: trio.Nursery
    root: Path
    namesrv: str
    client: RemotingClient
    ports: dict[str, int] = attrs.field(factory=dict)

    async def start(self, name, role=BrokerRole.ASYNC_MASTER, **options) -> tuple[Broker, Running]:
        port = self.ports.setdefault(name, free_broker_port())
        broker = make_broker(
            self.root / name,
            role=role,
            ha_config=HAConfig(listen_host=HOST),
            server=SERVER,
            broker_ip2=HOST,
            listen_port=port,
            namesrv_addr=self.namesrv,
            **options,
        )
        running = Running()

        async def run(*, task_status):
            with running.scope:
                await broker.run(task_status=task_status)
            running.ended.set()

        await self.nursery.start(run)
        with trio.fail_after(10):
            await broker.registration.registered.wait()
        return broker, running

    async def ask(self, broker, code, body=b"", **ext):
        raw = body if isinstance(body, bytes) else fastjson.dumps(body)
        texts = {name: str(value) for name, value in ext.items()}
        return await self.client.request(broker.address, RemotingCommand(code, ext=texts, body=raw), timeout_ms=5000)

    async def send(self, broker, body=b"hello", topic="T1", properties="WAIT\x01true"):
        fields = {"a": "P", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": properties}
        return await self.ask(broker, 310, body, **fields)

    async def pull(self, broker, offset=0, **more):
        fields = {
            "consumerGroup": "G",
            "topic": "T1",
            "queueId": 0,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 2000,
            "subVersion": 1,
            "subscription": "*",
        }
        return await self.ask(broker, 11, **{**fields, **more})


async def open_cluster(nursery: trio.Nursery, root: Path) -> Cluster:
    """Start the name server. Brokers come with `start`."""
    namesrv = NameServer(NamesrvConfig(kv_config_path=None, listen_port=0), SERVER)
    port = await nursery.start(namesrv.run)
    client = RemotingClient()
    await nursery.start(client.run)
    return Cluster(nursery, root, f"{HOST}:{port}", client)


@pytest.fixture
async def cluster(tmp_path, nursery):
    return await open_cluster(nursery, tmp_path)


async def until(condition, seconds=10.0):
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(0.02)
