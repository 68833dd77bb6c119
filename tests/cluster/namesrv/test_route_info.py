"""The name server's tables, step by step, with times from the test."""

import json

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from twinlog.cluster.namesrv.route_info import Registered, Registration, RouteInfoManager
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.names import DataVersion
from twinlog.cluster.remoting.route import QueueData

V1, V2 = DataVersion(1, 1), DataVersion(2, 2)
A, B = "192.0.2.11:10911", "192.0.2.12:10911"
A_HA, B_HA = "192.0.2.11:10912", "192.0.2.12:10912"


def queue(name: str = "broker-a", queues: int = 4, perm: int = 6, flag: int = 0) -> QueueData:
    return QueueData(name, queues, queues, perm, flag)


def broker(number: int = 0, address: str = A, version: DataVersion = V1, **more: object) -> Registration:
    name = str(more.get("broker_name", "broker-a"))
    given = {
        "cluster": "C",
        "broker_name": name,
        "broker_id": number,
        "address": address,
        "ha_server_addr": address.replace("10911", "10912"),
        "data_version": version,
        "topics": {"T1": queue(name)},
    }
    return Registration(**{**given, **more})  # type: ignore[arg-type]


@pytest.fixture
def routes() -> RouteInfoManager:
    return RouteInfoManager()


def addresses(routes: RouteInfoManager, topic: str = "T1") -> dict[int, str] | None:
    route = routes.route(topic)
    return route["brokerDatas"][0]["brokerAddrs"] if route else None


def test_a_master_and_its_slave(routes):
    assert routes.register(broker(), "one", 0) == Registered(is_new=True)
    assert routes.register(broker(1, B), "two", 0) == Registered(is_new=True, master_addr=A, ha_server_addr=A_HA)
    assert routes.route("T1") == {
        "brokerDatas": [{"brokerAddrs": {0: A, 1: B}, "brokerName": "broker-a", "cluster": "C"}],
        "filterServerTable": {},
        "queueDatas": [
            {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}
        ],
    }
    assert routes.cluster_info() == {
        "brokerAddrTable": {"broker-a": {"brokerAddrs": {0: A, 1: B}, "brokerName": "broker-a", "cluster": "C"}},
        "clusterAddrTable": {"C": ["broker-a"]},
    }


def test_a_slave_before_its_master_is_told_of_it_later(routes):
    assert routes.register(broker(1, B), "two", 0) == Registered(is_new=True)
    assert routes.route("T1") is None  # A slave's topics do not count.
    routes.register(broker(), "one", 0)
    assert routes.register(broker(1, B), "two", 10) == Registered(is_new=False, master_addr=A, ha_server_addr=A_HA)


def test_only_a_new_version_changes_topics(routes):
    routes.register(broker(), "one", 0)
    routes.register(broker(topics={"T1": queue(queues=8)}), "one", 1)
    assert routes.queues["T1"]["broker-a"].read_queues == 4
    routes.register(broker(version=V2, topics={"T1": queue(queues=8)}), "one", 2)
    assert routes.queues["T1"]["broker-a"].read_queues == 8


def test_topics_that_a_broker_no_longer_names_stay(routes):
    """A registration after `updateTopic` names one topic only."""
    routes.register(broker(), "one", 0)
    routes.register(broker(version=V2, topics={"T2": queue()}), "one", 1)
    assert routes.topics() == ["T1", "T2"]


def test_a_slave_that_becomes_master_has_one_address_only(routes):
    routes.register(broker(), "one", 0)
    routes.register(broker(1, B), "two", 0)
    routes.drop("one")
    assert addresses(routes) == {1: B}
    assert routes.register(broker(0, B, topics={"T2": queue()}), "two", 1).is_new
    assert addresses(routes) == {0: B}
    assert routes.topics() == ["T1", "T2"]


def test_without_its_master_a_group_keeps_its_queues_for_reading(routes):
    routes.register(broker(), "one", 0)
    routes.register(broker(1, B), "two", 0)
    assert routes.unregister("C", "broker-a", 0, A)
    assert addresses(routes) == {1: B}
    assert routes.register(broker(1, B), "two", 1) == Registered(is_new=False)


def test_a_group_goes_with_its_last_address(routes):
    routes.register(broker(topics={"T1": queue(), "T2": queue()}), "one", 0)
    routes.register(broker(address=B, broker_name="broker-b"), "two", 0)
    routes.unregister("C", "broker-a", 0, A)
    assert routes.topics() == ["T1"]
    assert addresses(routes) == {0: B}
    routes.unregister("C", "broker-b", 0, B)
    assert (routes.brokers, routes.clusters, routes.queues, routes.live) == ({}, {}, {}, {})


@pytest.mark.parametrize(
    "wrong", [("D", "broker-a", 0, A), ("C", "b", 0, A), ("C", "broker-a", 1, A), ("C", "broker-a", 0, B)]
)
def test_who_leaves_must_be_who_came(routes, wrong):
    """A former master that shuts down must not remove its successor's address."""
    routes.register(broker(), "one", 0)
    assert not routes.unregister(*wrong)
    assert addresses(routes) == {0: A}
    assert A in routes.live


def test_a_closed_connection_takes_its_brokers_along(routes):
    one, other = object(), object()
    routes.register(broker(), one, 0)
    routes.register(broker(1, B), other, 0)
    assert routes.drop(one) == [A]
    assert routes.drop(one) == []
    assert addresses(routes) == {1: B}


def test_only_the_connection_of_the_last_registration_counts(routes):
    """A broker that reconnected is not dropped when its first connection closes later."""
    first, second = object(), object()
    routes.register(broker(), first, 0)
    routes.register(broker(), second, 1)
    assert routes.drop(first) == []
    assert addresses(routes) == {0: A}


def test_silent_brokers_expire(routes):
    routes.register(broker(), "one", 0)
    routes.register(broker(1, B), "two", 50)
    assert routes.expire(120, 120) == {}
    assert routes.expire(120.1, 120) == {A: "one"}
    assert addresses(routes) == {1: B}
    routes.touch(B, 130)
    routes.touch(A, 130)
    assert routes.expire(171, 120) == {}
    assert routes.expire(251, 120) == {B: "two"}
    assert routes.route("T1") is None


def test_data_versions(routes):
    assert routes.is_changed(A, V1)
    routes.register(broker(), "one", 0)
    assert not routes.is_changed(A, V1)
    assert routes.is_changed(A, V2)
    assert (routes.data_version(A), routes.data_version(B)) == (V1, None)


def test_a_name_belongs_to_one_cluster(routes):
    routes.register(broker(), "one", 0)
    with pytest.raises(RequestError, match="broker broker-a is registered in cluster C, not D"):
        routes.register(broker(1, B, cluster="D"), "two", 0)
    assert addresses(routes) == {0: A}
    assert list(routes.clusters) == ["C"]
    routes.register(broker(cluster="D"), "one", 1)  # Its only broker may move.
    assert routes.clusters == {"D": {"broker-a": None}}


def test_write_permission(routes):
    routes.register(broker(topics={"T1": queue(), "TBW102": queue(perm=7)}), "one", 0)
    routes.register(broker(address=B, broker_name="broker-b"), "two", 0)

    def perms() -> list[int]:
        return [routes.queues[topic]["broker-a"].perm for topic in ("T1", "TBW102")]

    assert routes.set_write_perm("broker-a", allowed=False) == 2
    assert perms() == [4, 5]
    assert routes.queues["T1"]["broker-b"].perm == 6
    assert routes.set_write_perm("broker-a", allowed=True) == 2
    assert perms() == [6, 6]  # As in RocketMQ, the inherit bit is gone.
    assert routes.set_write_perm("nobody", allowed=False) == 0
    routes.register(broker(version=V2, topics={"TBW102": queue(perm=7)}), "one", 1)
    assert perms() == [6, 7]


def test_deleting_a_topic(routes):
    routes.register(broker(), "one", 0)
    routes.register(broker(address=B, broker_name="broker-b", cluster="D"), "two", 0)
    routes.delete_topic("T1", "D")
    assert list(routes.queues["T1"]) == ["broker-a"]
    routes.delete_topic("T1", "nowhere")
    assert routes.topics() == ["T1"]
    routes.delete_topic("T1")
    assert routes.topics() == []
    routes.delete_topic("T1")


def test_topic_lists(routes):
    topics = {"plain": queue(), "unit": queue(flag=1), "sub": queue(flag=2), "both": queue(flag=3)}
    routes.register(broker(topics=topics), "one", 0)
    routes.register(broker(address=B, broker_name="broker-b", cluster="D"), "two", 0)
    assert routes.topics() == ["plain", "unit", "sub", "both", "T1"]
    assert routes.topics("D") == ["T1"]
    assert routes.topics("nowhere") == []
    assert routes.unit_topics(flags=1, mask=1) == ["unit", "both"]
    assert routes.unit_topics(flags=2, mask=2) == ["sub", "both"]
    assert routes.unit_topics(flags=2, mask=3) == ["sub"]


class Tables(RuleBasedStateMachine):
    """For any sequence of broker actions, the four tables are consistent with each other."""

    def __init__(self) -> None:
        super().__init__()
        self.routes = RouteInfoManager()
        self.now = 0.0

    @rule(
        cluster=st.sampled_from("CD"),
        name=st.sampled_from(["a", "b"]),
        number=st.integers(0, 2),
        address=st.sampled_from(["h:1", "h:2", "h:3"]),
        version=st.sampled_from([V1, V2]),
        topic=st.sampled_from(["T1", "T2"]),
        connection=st.integers(0, 2),
    )
    def register(self, cluster, name, number, address, version, topic, connection):
        new = Registration(cluster, name, number, address, "ha", version, {topic: queue(name)})
        before = json.dumps(self.routes.cluster_info())
        try:
            told = self.routes.register(new, connection, self.now)
        except RequestError:
            assert json.dumps(self.routes.cluster_info()) == before
            return
        assert self.routes.brokers[name].addresses[number] == address
        assert told.master_addr == (
            self.routes.brokers[name].addresses.get(0) if number and told.ha_server_addr else None
        )

    @rule(cluster=st.sampled_from("CD"), name=st.sampled_from(["a", "b"]), number=st.integers(0, 2))
    def unregister(self, cluster, name, number):
        group = self.routes.brokers.get(name)
        self.routes.unregister(cluster, name, number, group.addresses.get(number, "?") if group else "?")

    @rule(connection=st.integers(0, 2))
    def drop(self, connection):
        self.routes.drop(connection)
        assert all(live.connection != connection for live in self.routes.live.values())

    @rule(passed=st.floats(0, 100))
    def expire(self, passed):
        self.now += passed
        self.routes.expire(self.now, 120)

    @rule(name=st.sampled_from(["a", "b"]), allowed=st.booleans())
    def set_write_perm(self, name, allowed):
        self.routes.set_write_perm(name, allowed=allowed)

    @rule(topic=st.sampled_from(["T1", "T2"]), cluster=st.sampled_from(["C", "D", None]))
    def delete_topic(self, topic, cluster):
        self.routes.delete_topic(topic, cluster)

    @invariant()
    def tables_agree(self):
        routes = self.routes
        assert {name for names in routes.clusters.values() for name in names} == routes.brokers.keys()
        for name, group in routes.brokers.items():
            assert name in routes.clusters[group.cluster]
            assert group.addresses
            assert set(group.addresses.values()) <= routes.live.keys()
            assert len(set(group.addresses.values())) == len(group.addresses)
        for topic, shares in routes.queues.items():
            assert shares
            assert shares.keys() <= routes.brokers.keys()
            assert routes.route(topic)
        assert all(routes.clusters.values())


Tables.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_tables_agree_whatever_happens = Tables.TestCase
