"""A slave whose master is a table of answers."""

import pytest
import trio

from tests.cluster.broker.helpers import make_broker
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError
from twinlog.store.config import BrokerRole

MASTER, FAST = "192.0.2.11:10911", "192.0.2.11:10909"


class FakeMaster:
    """Stands for RemotingClient; serves fixed bodies by address and code."""

    def __init__(self):
        self.bodies = {}
        self.asked = []

    async def request(self, address, command, *, timeout_ms=3000):
        await trio.lowlevel.checkpoint()
        self.asked.append((address, command.code))
        body = self.bodies.get((address, command.code))
        if body is None:
            raise RemotingConnectError(address, "Connection refused")
        return body if isinstance(body, RemotingCommand) else RemotingCommand(0, body=body)


TOPICS = {
    "dataVersion": {"counter": 5, "timestamp": 9},
    "topicConfigTable": {"T1": {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}},
}


GROUPS = {"dataVersion": {"counter": 2, "timestamp": 9}, "subscriptionGroupTable": {"CG1": {"retryMaxTimes": 3}}}


def boot(at_ms: int) -> bytes:
    return fastjson.dumps({"table": {"bootTimestamp": str(at_ms)}})


@pytest.fixture
async def slave(tmp_path):
    broker = make_broker(tmp_path, role=BrokerRole.SLAVE)
    broker.slave_sync.client = FakeMaster()
    broker.slave_sync.client.bodies = {
        (FAST, 21): fastjson.dumps(TOPICS),
        (MASTER, 28): boot(1),
        (MASTER, 43): b'{"offsetTable":{"T1@CG1":{0:6,1:5}}}',
        (MASTER, 45): b'{"offsetTable":{1:2,3:2}}',
        (MASTER, 201): fastjson.dumps(GROUPS),
    }
    return broker
