"""visibility=confirmed: consumers are shown what a failover cannot take back, and miss nothing of it."""

import pytest
import trio
from attrs import frozen

from tests.cluster.broker.helpers import make_broker, opened, put
from tests.cluster.broker.pulls import PULL, SUSPEND, serving
from tests.cluster.broker.role_states import state
from tests.helpers import log_bytes, replicate
from twinlog.cluster.broker.config import MessageVisibility
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.ha.peer import PeerHistory
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry
from twinlog.store.record.message import decode_message

SYNC, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.SLAVE
ALL, CONFIRMED = MessageVisibility.all, MessageVisibility.confirmed
SLAVES_IP = "10.0.0.2"


@frozen(eq=False)
class SlaveConnection:
    address: str = f"{SLAVES_IP}:40000"
    ip: str = SLAVES_IP
    member: str = ""


def with_a_slave(master) -> SlaveConnection:
    slave = SlaveConnection()
    transfer = master.ha.group_transfer
    transfer.members_changed([SLAVES_IP])
    transfer.join(slave, 0)
    return slave


def pull(client, **change):
    return client.ask(11, **{**PULL, **change})


def end_of(client) -> int:
    """30."""
    return int(client.ask(30, topic="T1", queueId=0).ext["offset"])


def bodies(client, **change) -> list[bytes]:
    """What a pull brings."""
    reply = pull(client, **change)
    if reply is None or reply.code != 0:
        return []
    data, found, position = b"".join(reply.body), [], 0
    while position < len(data):
        message = decode_message(data, position)
        found.append(message.body)
        position += message.size
    return found


@pytest.mark.parametrize("visibility", [ALL, CONFIRMED])
async def test_what_was_consumed_survives_the_master(tmp_path, visibility):
    """The master dies with messages that no slave has. With visibility=all a consumer has seen some that are gone."""
    a = make_broker(tmp_path / "a", role=SYNC, visibility=visibility)
    b = make_broker(tmp_path / "b", role=SLAVE, visibility=visibility, listen_port=10921)
    async with opened(a) as client, opened(b) as after:
        serving(a, client)
        slave = with_a_slave(a)
        for number in range(3):
            put(a, body=b"%d" % number)
        replicate(b.store, log_bytes(a.store))
        a.ha.group_transfer.acknowledge(slave, b.store.max_offset)
        put(a, body=b"3")
        put(a, body=b"4")
        consumed, end = bodies(client), end_of(client)

        await b.store.become_master(SYNC)
        serving(b, after)
        put(b, body=b"another one at 3")
        if visibility is ALL:
            assert (consumed, end) == ([b"0", b"1", b"2", b"3", b"4"], 5), "two of them are gone"
        else:
            assert (consumed, end) == ([b"0", b"1", b"2"], 3)
            assert pull(after, queueOffset=end).code == ResponseCode.PULL_NOT_FOUND, "nothing yet; it is not reset"
            b.ha.group_transfer.acknowledge(with_a_slave(b), b.store.max_offset)
            assert bodies(after, queueOffset=end) == [b"another one at 3"], "and nothing is passed over"


async def test_a_held_pull_is_answered_once_the_message_is_confirmed(tmp_path, autojump_clock, nursery):
    broker = make_broker(tmp_path, role=SYNC, visibility=CONFIRMED)
    async with opened(broker) as client:
        nursery.start_soon(broker.held_pulls.run)
        nursery.start_soon(broker.queues.visibility.run)
        serving(broker, client)
        slave = with_a_slave(broker)
        assert pull(client, sysFlag=SUSPEND) is None
        put(broker)
        await trio.sleep(0.5)
        assert client.connection.sent == []
        broker.ha.group_transfer.acknowledge(slave, broker.store.max_offset)
        await trio.sleep(0.1)
        assert [answer.code for answer in client.connection.sent] == [0]


async def test_what_was_shown_stays_shown(tmp_path):
    """Slaves leave, and how much is confirmed falls: who has read on is not sent back."""
    broker = make_broker(tmp_path, role=SYNC, visibility=CONFIRMED)
    async with opened(broker) as client:
        serving(broker, client)
        slave = with_a_slave(broker)
        put(broker, body=b"one")
        broker.ha.group_transfer.acknowledge(slave, broker.store.max_offset)
        assert end_of(client) == 1
        broker.ha.group_transfer.leave(slave)
        put(broker, body=b"two")
        assert (broker.group.confirmed_offset(), end_of(client), bodies(client)) == (0, 1, [b"one"])


async def test_a_slave_shows_what_its_master_said(tmp_path):
    """And all of its log while nobody says so: a group without a record."""
    broker = make_broker(tmp_path, role=SLAVE, visibility=CONFIRMED)
    async with opened(make_broker(tmp_path / "a")) as there, opened(broker) as client:
        for _ in range(3):
            put(there.broker)
        broker.roles.member.durable.state = state(SLAVE, 1)
        replicate(broker.store, log_bytes(there.broker.store))
        broker.tables.topics.update(TopicConfig("T1", 1, 1))
        assert end_of(client) == 0
        broker.roles.voter.confirmed_offset = broker.store.max_offset * 2 // 3
        assert end_of(client) == 2
        broker.roles.member.durable.state = None
        assert end_of(client) == 3


async def test_a_former_master_shows_nothing_that_the_new_one_has_not(tmp_path):
    """It follows, and has not cut its log yet: what the new master confirms there are other messages."""
    broker = make_broker(tmp_path, role=SLAVE, visibility=CONFIRMED)
    async with opened(make_broker(tmp_path / "a")) as there, opened(broker) as client:
        first = put(there.broker).end_offset
        put(there.broker)
        member = broker.roles.member
        member.durable.state = state(SLAVE, 1)
        replicate(broker.store, log_bytes(there.broker.store))
        broker.tables.topics.update(TopicConfig("T1", 1, 1))
        end = broker.store.max_offset
        elected = EpochEntry(epoch=1, winner="b", start_offset=first, kind="failover")
        member.master = master_of((FIRST, elected), end + 1000)
        broker.roles.voter.confirmed_offset = end + 1000
        assert end_of(client) == 1
        member.durable.entries = (FIRST, elected)  # It is cut, and has the new master's messages there.
        assert end_of(client) == 2


def master_of(entries, max_offset) -> PeerHistory:
    return PeerHistory(
        id=entries[-1].id,
        entries=entries,
        promised=entries[-1].id,
        role=SYNC,
        group=None,
        min_offset=0,
        max_offset=max_offset,
        boot_ms=0,
        address="10.0.0.3:10911",
        ha_address="10.0.0.3:10912",
    )


async def test_the_end_of_a_long_queue_is_found(tmp_path):
    broker = make_broker(tmp_path, visibility=CONFIRMED)
    async with opened(broker) as client:
        ends = [put(broker).end_offset for _ in range(50)]
        broker.tables.topics.update(TopicConfig("T1", 1, 1))
        queue = broker.store.queue("T1", 0)
        for shown in range(51):
            broker.queues.visibility.confirmed = lambda shown=shown: ends[shown - 1] if shown else 0
            broker.queues.visibility.shown = 0
            assert broker.queues.visibility.queue_end(queue) == shown
        broker.queues.visibility.truncated(ends[9])
        assert end_of(client) == 50, "an asynchronous master promises all"


async def test_all_that_tells_consumers_an_end_tells_the_same(tmp_path):
    """Lag is computed from each of these, and nobody may be sent behind what is shown."""
    broker = make_broker(tmp_path, visibility=CONFIRMED)
    async with opened(broker) as client:
        ends = [put(broker).end_offset for _ in range(5)]
        serving(broker, client)
        broker.queues.visibility.confirmed = lambda: ends[2]
        broker.queues.visibility.shown = 0
        assert end_of(client) == 3
        for offset in (0, 2):
            assert pull(client, queueOffset=offset).ext["maxOffset"] == "3"
        beyond = pull(client, queueOffset=4)
        assert (beyond.code, beyond.ext["maxOffset"]) == (ResponseCode.PULL_NOT_FOUND, "3")
        moved = pull(client, queueOffset=9)
        assert (moved.code, moved.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "3")
        by_time = client.ask(29, topic="T1", queueId=0, timestamp=broker.store.now_ms() + 60_000)
        assert by_time.ext["offset"] == "2", "the last one that is shown"
        broker.tables.offsets.commit("G", "T1", 0, 3)
        consumed = fastjson.loads(client.ask(208, consumerGroup="G", topic="T1").body)["offsetTable"]
        assert [(each["brokerOffset"], each["consumerOffset"]) for each in consumed.values()] == [(3, 3)]
        topic = fastjson.loads(client.ask(202, topic="T1").body)["offsetTable"]
        assert [each["maxOffset"] for each in topic.values()] == [3]
