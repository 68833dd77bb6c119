"""A pull request, parts that serve it, and a topic with a member of its group."""

from pathlib import Path

from tests.cluster.broker.helpers import heartbeat
from tests.cluster.broker.parts import Parts, make_parts
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.store.config import BrokerRole

PULL = {
    "consumerGroup": "G",
    "topic": "T1",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 0,
    "commitOffset": 0,
    "suspendTimeoutMillis": 15000,
    "subVersion": 1,
}


OWN_SUBSCRIPTION, SUSPEND, COMMIT = 4, 2, 1


def make_pulls(root: Path, role: BrokerRole = BrokerRole.ASYNC_MASTER, **options: object) -> Parts:
    """Parts with the processors of pulls and heartbeats."""
    parts = make_parts(root, role, **options)
    return parts.serve(parts.clients(), parts.pull())


def serving(broker, client, **beat):
    broker.tables.topics.update(TopicConfig("T1", 1, 1))
    assert client.ask(34, heartbeat("T1", **beat)).code == 0
    client.connection.sent.clear()  # 40: it is a member now.
