"""A name server and brokers for tests, ready in less than a second. Public API; needs `pip install twinlog[pytest]`.

def test_order_is_sent(rocketmq, rocketmq_topic):
    Shop(rocketmq.namesrv, rocketmq_topic).order("book")
    assert [message.body for message in rocketmq.messages(rocketmq_topic)] == [b"book"]

pytest finds the fixtures by itself. Outside of it, and for fixtures of your own: start_rocketmq and start_cluster.
"""

from twinlog.cluster.testing.calls import fresh_name
from twinlog.cluster.testing.cluster import RocketMQCluster, start_cluster
from twinlog.cluster.testing.process import GoneError, StartError
from twinlog.cluster.testing.server import RocketMQ, start_rocketmq

__all__ = ["GoneError", "RocketMQ", "RocketMQCluster", "StartError", "fresh_name", "start_cluster", "start_rocketmq"]
