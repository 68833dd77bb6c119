"""What users of RocketMQ met when a master was away and came back, or a slave took its place (apache/rocketmq#1094, #8539)."""

import pytest
import trio

from tests.cluster.broker.helpers import put
from tests.helpers import log_bytes
from tests.support.group.brokers import Brokers
from tests.support.group.group import ASYNC, SLAVE, SYNC, Group, until
from twinlog.cluster.remoting.codes import RequestCode
from twinlog.store.log.offset_waiters import PutStatus


@pytest.fixture
async def brokers(nursery, tmp_path):
    made = Group(nursery, tmp_path, Brokers)
    yield made
    await made.kill()


async def pair(brokers, role=SYNC):
    master, slave = brokers.add(role), brokers.add(SLAVE)
    await master.start()
    await slave.start()
    await until(lambda: slave.word == "following", "the slave to belong to the group")
    await until(lambda: master.ha.group_transfer.slaves, "its stream")
    return master, slave


def commit(member, offset: int, queue_id: int = 0) -> None:
    ext = {"consumerGroup": "G", "topic": "T1", "queueId": queue_id, "commitOffset": offset}
    assert member.parts.client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **ext).code == 0


def committed(member, queue_id: int = 0) -> int:
    reply = member.parts.client.ask(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="G", topic="T1", queueId=queue_id)
    return int(reply.ext["offset"])


async def level(*members) -> None:
    await until(lambda: len({each.store.max_offset for each in members}) == 1, "all level")


async def test_a_master_that_was_away_for_five_minutes(autojump_clock, no_threads, brokers):
    """#1094: its slave serves consumers meanwhile. Back again it takes what they committed, and nothing is consumed twice."""
    master, slave = await pair(brokers)
    for _ in range(20):
        put(master.parts.broker)
    await level(master, slave)
    commit(master, 5)
    await trio.sleep(15)
    assert committed(slave) == 5
    await master.kill()
    for offset in range(5, 18):
        commit(slave, offset)
        await trio.sleep(300 / 13)
    await master.start()
    await until(lambda: master.word == "serving", "the master to serve again")
    assert committed(master) == 17, "before the first consumer asks"
    assert put(master.parts.broker).status is PutStatus.PUT_OK
    await level(master, slave)
    await trio.sleep(25)
    assert (committed(master), committed(slave)) == (17, 17)
    commit(master, 21)
    await trio.sleep(11)
    assert committed(slave) == 21


async def test_the_queues_of_a_slave_that_is_promoted_go_on(autojump_clock, no_threads, brokers):
    """#8539: the slave crashed as well. The next message has the next number in its queue, and the old master follows."""
    master, slave = await pair(brokers, ASYNC)
    for number in range(30):
        put(master.parts.broker, queue_id=number % 2)
    await level(master, slave)
    before = {number: slave.store.queue("T1", number).max_offset for number in (0, 1)}
    await master.kill()
    await slave.kill()
    await slave.start()
    state = await brokers.change("failover", slave, accept_data_loss="unknown")
    assert state.error == ""
    results = [put(slave.parts.broker, queue_id=number) for number in (0, 1)]
    assert [result.queue_offset for result in results] == [before[0], before[1]] == [15, 15]

    await master.start()
    await until(lambda: master.word == "following", "the old master to follow")
    await level(master, slave)
    assert log_bytes(master.store) == log_bytes(slave.store)
    for number in (0, 1):
        assert master.store.queue("T1", number).max_offset == 16
    assert put(master.parts.broker).status is PutStatus.SERVICE_NOT_AVAILABLE


async def test_offsets_over_a_failover_and_back(autojump_clock, no_threads, brokers):
    """In the new epoch the new master is believed; the old one, a slave now, does not bring back what it knew."""
    master, slave = await pair(brokers)
    for _ in range(20):
        put(master.parts.broker)
    await level(master, slave)
    commit(master, 8)
    await trio.sleep(15)
    commit(master, 12)  # The slave has not asked since.
    await master.stop()
    state = await brokers.change("failover", slave)
    assert state.error == ""
    assert committed(slave) == 8
    commit(slave, 9)
    await master.start()
    await until(lambda: master.word == "following", "the old master to follow")
    await trio.sleep(15)
    assert committed(master) == 9
    state = await brokers.change("switchover", master)
    assert state.error == ""
    assert (master.word, committed(master)) == ("serving", 9)
    await until(lambda: slave.word == "following", "the other one to follow")
    assert slave.parts.broker.gate.state == "forwarding"
