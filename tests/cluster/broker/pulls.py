"""A pull request, and a topic with a member of its group."""

from tests.cluster.broker.helpers import heartbeat
from twinlog.cluster.broker.tables.topics import TopicConfig

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


def serving(broker, client, **beat):
    broker.tables.topics.update(TopicConfig("T1", 1, 1))
    assert client.ask(34, heartbeat("T1", **beat)).code == 0
    client.connection.sent.clear()  # 40: it is a member now.
