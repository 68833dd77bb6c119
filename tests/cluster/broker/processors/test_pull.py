"""11: what a consumer may fetch, what it is told, and how long it waits."""

import attrs
import pytest
import trio
import trio.testing

from tests.cluster.broker.helpers import FakeConnection, append, heartbeat, opened, put
from tests.cluster.broker.pulls import COMMIT, OWN_SUBSCRIPTION, PULL, SUSPEND, make_pulls, serving
from tests.store.java_map import JavaHashMap
from twinlog.cluster.broker.consume import long_polling
from twinlog.cluster.broker.consume.offset_moved import OffsetMoved, OffsetMovedEvents
from twinlog.cluster.broker.processors.pull import code_of, suggested_broker
from twinlog.cluster.broker.tables.groups import SubscriptionGroupConfig
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.store.config import BrokerRole
from twinlog.store.read.get_message import GetResult, GetStatus
from twinlog.store.record.message import decode_message, host_bytes


async def test_messages_come_as_they_are_stored(tmp_path):
    """Body and the four offsets of the header, all texts, and the status as remark."""
    async with opened(make_pulls(tmp_path)) as client:
        serving(client.broker, client)
        put(client.broker, body=b"one")
        put(client.broker, body=b"two")
        reply = client.ask(11, **PULL)
        assert (reply.code, reply.remark) == (0, "FOUND")
        assert reply.ext == {"suggestWhichBrokerId": "0", "nextBeginOffset": "2", "minOffset": "0", "maxOffset": "2"}
        data = b"".join(reply.body)
        first = decode_message(data)
        assert [first.body, decode_message(data, first.size).body] == [b"one", b"two"]
        assert all(isinstance(part, memoryview) for part in reply.body), "bodies are not copied"


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"consumerGroup": "a/b"}, 26, "does not exist"),
        ({"consumerGroup": "DISABLED"}, 16, "subscription group no permission, DISABLED"),
        ({"topic": "T2"}, 17, "topic[T2] not exist"),
        ({"topic": "NOREAD"}, 16, "the topic[NOREAD] pulling message is forbidden"),
        ({"queueId": 1}, 1, "queueId[1] is illegal"),
        ({"queueId": -1}, 1, "queueId[-1] is illegal"),
        ({"sysFlag": OWN_SUBSCRIPTION, "subscription": "||"}, 23, "parse the consumer's subscription failed"),
        ({"consumerGroup": "H"}, 24, "the consumer's group info not exist"),
        ({"topic": "OTHER"}, 24, "the consumer's subscription not exist"),
        ({"subVersion": 2}, 25, "the consumer's subscription not latest"),
        (
            {"sysFlag": OWN_SUBSCRIPTION, "subscription": "a > 5", "expressionType": "SQL92"},
            1,
            "The broker does not support consumer to filter message by SQL92",
        ),
    ],
)
async def test_a_pull_that_cannot_be_served_is_told_why(tmp_path, change, code, remark):
    async with opened(make_pulls(tmp_path)) as client:
        broker = client.broker
        serving(broker, client)
        broker.tables.topics.update(TopicConfig("OTHER", 1, 1))
        broker.tables.topics.update(TopicConfig("NOREAD", 1, 1, perm=2))
        broker.tables.groups.update(SubscriptionGroupConfig(name="DISABLED", consume_enable=False))
        reply = client.ask(11, **{**PULL, **change})
        assert reply.code == code
        assert remark in reply.remark


async def test_a_broker_without_read_permission_serves_no_pulls(tmp_path):
    async with opened(make_pulls(tmp_path, broker_permission=2)) as client:
        assert client.ask(11, **PULL).code == ResponseCode.NO_PERMISSION


async def test_broadcasting_needs_the_groups_consent(tmp_path):
    async with opened(make_pulls(tmp_path)) as client:
        broker = client.broker
        broker.tables.topics.update(TopicConfig("T1", 1, 1))
        broker.tables.groups.update(SubscriptionGroupConfig(name="G", consume_broadcast_enable=False))
        beat = heartbeat("T1")
        beat["consumerDataSet"][0]["messageModel"] = "BROADCASTING"
        client.ask(34, beat)
        assert client.ask(11, **PULL).code == ResponseCode.NO_PERMISSION


async def test_tags_filter_and_the_next_offset_passes_what_was_refused(tmp_path):
    async with opened(make_pulls(tmp_path)) as client:
        serving(client.broker, client, expression="TagA || TagC")
        for tags in ("TagA", "TagB", "TagC", "TagB"):
            put(client.broker, tags=tags, body=tags.encode())
        reply = client.ask(11, **PULL)
        data = b"".join(reply.body)
        first = decode_message(data)
        assert [first.body, decode_message(data, first.size).body] == [b"TagA", b"TagC"]
        assert reply.ext["nextBeginOffset"] == "4"
        reply = client.ask(11, **{**PULL, "queueOffset": 3})
        assert (reply.code, reply.remark, reply.ext["nextBeginOffset"]) == (20, "NO_MATCHED_MESSAGE", "4")


@pytest.mark.parametrize(
    ("status", "requested", "code"),
    [
        (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 19),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 5, 21),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 5, 21),
        (GetStatus.OFFSET_TOO_SMALL, 0, 21),
        (GetStatus.OFFSET_OVERFLOW_ONE, 5, 19),
        (GetStatus.OFFSET_OVERFLOW_BADLY, 5, 21),
        (GetStatus.OFFSET_FOUND_NULL, 5, 19),
        (GetStatus.MESSAGE_WAS_REMOVING, 5, 20),
    ],
)
def test_each_outcome_has_its_code(status, requested, code):
    assert code_of(status, requested) == code


@pytest.mark.parametrize(("slave_read", "slow", "broker_id"), [(False, True, 0), (True, True, 1), (True, False, 0)])
def test_slow_groups_are_sent_to_a_slave_where_that_is_allowed(slave_read, slow, broker_id):
    result = GetResult(GetStatus.FOUND, 1, 0, 1, [], suggest_slave=slow)
    assert suggested_broker(result, SubscriptionGroupConfig(name="G"), slave_read_enable=slave_read) == broker_id


@pytest.mark.parametrize(
    ("role", "slave_read", "slow", "broker_id"),
    [
        (BrokerRole.ASYNC_MASTER, False, True, 0),
        (BrokerRole.ASYNC_MASTER, True, False, 3),
        (BrokerRole.ASYNC_MASTER, True, True, 5),
        (BrokerRole.SLAVE, False, True, 0),
        (BrokerRole.SLAVE, True, False, 3),
        (BrokerRole.SLAVE, True, True, 5),
    ],
)
@pytest.mark.parametrize("offset", [0, 1, 9])
async def test_every_answer_says_where_to_pull_next(tmp_path, role, slave_read, slow, broker_id, offset):
    """Slow: what was looked at lies farther behind the log's end than memory reaches. Only what is found can be slow."""
    broker = make_pulls(tmp_path, slave_read_enable=slave_read)
    async with opened(broker) as client:
        put(broker)
        put(broker, "T2")
    broker = make_pulls(tmp_path, role, slave_read_enable=slave_read)
    ratio = {"access_message_in_memory_max_ratio": 0} if slow else {}
    broker.store.config = attrs.evolve(broker.store.config, **ratio)
    async with opened(broker) as client:
        broker.tables.topics.update(TopicConfig("T1", 1, 1))
        group = SubscriptionGroupConfig(name="G", broker_id=3, which_broker_when_consume_slowly=5)
        broker.tables.groups.update(group)
        fields = {"queueOffset": offset, "sysFlag": OWN_SUBSCRIPTION, "subscription": "*"}
        reply = client.ask(11, **{**PULL, **fields})
        expected = broker_id if offset == 0 else (3 if slave_read else 0)
        moved_back = offset == 9 and role is BrokerRole.SLAVE
        assert reply.code == {0: 0, 1: 19, 9: 20 if moved_back else 21}[offset]
        assert reply.ext["suggestWhichBrokerId"] == str(3 if moved_back else expected)


def moved_events(broker):
    broker.store.dispatch_pending()
    queue = broker.store.queue("OFFSET_MOVED_EVENT", 0)
    return [decode_message(broker.store.message_at(queue.unit(n).phy_offset)) for n in range(queue.max_offset)]


async def test_a_consumer_that_is_moved_is_reported(tmp_path, autojump_clock):
    """As RocketMQ 4.9 writes it; the same again a minute later at the soonest."""
    async with opened(make_pulls(tmp_path)) as client:
        broker = client.broker
        serving(broker, client)
        put(broker)
        for _ in range(3):
            assert client.ask(11, **{**PULL, "queueOffset": 9}).code == 21
        (event,) = moved_events(broker)
        assert event.body == (
            b'{"consumerGroup":"G","messageQueue":{"brokerName":"broker-a","queueId":0,"topic":"T1"},'
            b'"offsetNew":1,"offsetRequest":9}'
        )
        in_java = JavaHashMap()
        for name, value in (("TAGS", "G"), ("DELAY", "0"), ("KEYS", "G")):
            in_java.put(name, value)
        assert event.properties_raw == "\x02".join(map("\x01".join, in_java.items())).encode()
        assert event.born_host == event.store_host == host_bytes("127.0.0.1:10911")
        assert broker.store.queue("OFFSET_MOVED_EVENT", 0).unit(0).tags_code == ord("G")
        assert client.ask(11, **{**PULL, "queueOffset": 8}).code == 21
        assert len(moved_events(broker)) == 2
        await trio.sleep(61)
        assert client.ask(11, **{**PULL, "queueOffset": 9}).code == 21
        assert len(moved_events(broker)) == 3


def test_a_consumer_out_of_its_mind_does_not_fill_the_disk():
    events = OffsetMovedEvents()
    due = sum(events.is_due(OffsetMoved("G", "b", "T1", 0, n, 1), now=n / 100) for n in range(60_00))
    assert due == 100
    assert events.is_due(OffsetMoved("G", "b", "T1", 0, 7, 1), now=60)


async def test_a_consumer_ahead_of_a_slave_goes_back_to_the_master(tmp_path):
    """21 would make it lose its place."""
    async with opened(make_pulls(tmp_path, BrokerRole.SLAVE)) as client:
        client.broker.tables.topics.update(TopicConfig("T1", 1, 1))
        reply = client.ask(11, **{**PULL, "queueOffset": 9, "sysFlag": OWN_SUBSCRIPTION, "subscription": "*"})
        assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert moved_events(client.broker) == []
        assert (reply.ext["nextBeginOffset"], reply.ext["suggestWhichBrokerId"]) == ("9", "0")


@pytest.mark.parametrize(("role", "stored"), [(BrokerRole.ASYNC_MASTER, 7), (BrokerRole.SLAVE, -1)])
async def test_a_pull_may_bring_the_offset_to_commit(tmp_path, role, stored):
    """On the master only: a slave's offsets are its master's."""
    async with opened(make_pulls(tmp_path, role)) as client:
        serving(client.broker, client)
        client.ask(11, **{**PULL, "sysFlag": COMMIT, "commitOffset": 7})
        assert client.broker.tables.offsets.query("G", "T1", 0) == stored


async def test_a_pull_finds_what_was_appended_just_now(tmp_path):
    """Before the dispatcher had its turn; what was held meanwhile is answered when that comes."""
    async with opened(make_pulls(tmp_path)) as client, trio.open_nursery() as nursery:
        broker = client.broker
        serving(broker, client)
        assert client.ask(11, **{**PULL, "sysFlag": SUSPEND}) is None
        nursery.start_soon(broker.store.run)
        await trio.testing.wait_all_tasks_blocked()
        append(broker)
        assert broker.store.queue("T1", 0).max_offset == 0, "nobody has dispatched it"
        found = client.ask(11, **{**PULL, "sysFlag": SUSPEND})
        assert (found.code, found.remark) == (0, "FOUND")
        assert client.connection.sent == []
        await trio.testing.wait_all_tasks_blocked()
        (answer,) = client.connection.sent
        assert (answer.code, answer.opaque) == (0, client.opaque - 1)
        assert len(broker.held_pulls) == 0
        nursery.cancel_scope.cancel()


async def test_a_held_pull_is_answered_when_its_message_comes(tmp_path, autojump_clock, nursery):
    """Not by messages that its tags refuse."""
    async with opened(make_pulls(tmp_path)) as client:
        broker = client.broker
        serving(broker, client, expression="TagA")
        nursery.start_soon(broker.held_pulls.run)
        assert client.ask(11, **{**PULL, "sysFlag": SUSPEND}) is None
        put(broker, tags="TagB")
        await trio.sleep(1)
        assert client.connection.sent == []
        put(broker, tags="TagA")
        await trio.sleep(0.001)
        (answer,) = client.connection.sent
        assert (answer.code, answer.opaque) == (0, client.opaque)
        assert decode_message(answer.body).queue_offset == 1
        assert len(broker.held_pulls) == 0


async def test_a_held_pull_ends_at_the_scan_after_its_time(tmp_path, autojump_clock, nursery):
    """Each 5 s: a wait of 7 s ends after 10 s, with nothing new."""
    async with opened(make_pulls(tmp_path)) as client:
        serving(client.broker, client)
        nursery.start_soon(client.broker.held_pulls.run)
        client.ask(11, **{**PULL, "sysFlag": SUSPEND, "suspendTimeoutMillis": 7000})
        await trio.sleep(9.9)
        assert client.connection.sent == []
        await trio.sleep(0.2)
        (answer,) = client.connection.sent
        assert (answer.code, answer.remark) == (19, "NO_MESSAGE_IN_QUEUE")
        assert answer.ext["nextBeginOffset"] == "0"


async def test_without_long_polling_pulls_are_held_for_a_second(tmp_path, autojump_clock, nursery):
    async with opened(make_pulls(tmp_path, long_polling_enable=False)) as client:
        serving(client.broker, client)
        nursery.start_soon(client.broker.held_pulls.run)
        client.ask(11, **{**PULL, "sysFlag": SUSPEND})
        await trio.sleep(1.1)
        assert [answer.code for answer in client.connection.sent] == [19]


async def test_pulls_of_a_closed_connection_are_forgotten(tmp_path, autojump_clock, nursery):
    async with opened(make_pulls(tmp_path)) as client:
        serving(client.broker, client)
        for _ in range(1000):
            client.ask(11, **{**PULL, "sysFlag": SUSPEND})
        assert len(client.broker.held_pulls) == 1000
        client.connection.close()
        assert len(client.broker.held_pulls) == 0
        late = FakeConnection(closed=True)
        client.connection = late
        client.ask(11, **{**PULL, "sysFlag": SUSPEND | OWN_SUBSCRIPTION, "subscription": "*"})
        assert len(client.broker.held_pulls) == 0, "it closed before it could be held"


async def test_pulls_that_cannot_be_held_are_refused_as_busy(tmp_path, autojump_clock, monkeypatch):
    monkeypatch.setattr(long_polling, "HELD_PER_CONNECTION_MAX", 2)
    async with opened(make_pulls(tmp_path)) as client:
        serving(client.broker, client)
        assert [client.ask(11, **{**PULL, "sysFlag": SUSPEND}) for _ in range(2)] == [None, None]
        answer = client.ask(11, **{**PULL, "sysFlag": SUSPEND})
        assert (answer.code, answer.remark) == (2, "[OVERLOAD]system busy, start flow control for a while")


async def test_a_topic_that_goes_ends_the_hold_with_an_error(tmp_path, autojump_clock, nursery):
    async with opened(make_pulls(tmp_path)) as client:
        serving(client.broker, client)
        nursery.start_soon(client.broker.held_pulls.run)
        client.ask(11, **{**PULL, "sysFlag": SUSPEND, "suspendTimeoutMillis": 1000})
        client.broker.tables.topics.delete("T1")
        await trio.sleep(5.1)
        assert [answer.code for answer in client.connection.sent] == [17]


async def test_the_scan_finds_what_no_arrival_announced(tmp_path, autojump_clock, nursery):
    """And does not ask the filter: the consumer moves on past what it does not want."""
    async with opened(make_pulls(tmp_path)) as client:
        serving(client.broker, client, expression="TagA")
        nursery.start_soon(client.broker.held_pulls.run)
        client.ask(11, **{**PULL, "sysFlag": SUSPEND})
        put(client.broker, tags="TagB")
        await trio.sleep(5.1)
        (answer,) = client.connection.sent
        assert (answer.code, answer.ext["nextBeginOffset"]) == (20, "1")
