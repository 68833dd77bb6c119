"""What a slave copies from its master, and what it does not let near its files."""

import pytest
import trio

from tests.cluster.broker.helpers import make_broker
from tests.cluster.broker.slaves import FAST, MASTER, TOPICS, boot
from tests.cluster.broker.slaves import slave as slave
from tests.ha.conftest import no_threads as no_threads
from twinlog.cluster.broker.group.slave_sync import fast_address
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.command import RemotingCommand


async def test_a_message_of_a_new_topic_does_not_wait_for_the_next_round(slave, nursery, autojump_clock, no_threads):
    """Tables are copied each 10 s; a slave that is promoted before that would hold messages that nobody finds."""
    sync = slave.slave_sync
    sync.set_master(MASTER)
    nursery.start_soon(sync.run)
    await trio.sleep(1)
    asked = len(sync.client.asked)
    topics = {**TOPICS["topicConfigTable"], "T2": {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}}
    wrapper = {"dataVersion": {"counter": 6, "timestamp": 9}, "topicConfigTable": topics}
    sync.client.bodies[FAST, 21] = fastjson.dumps(wrapper)
    for listener in slave.store.on_arrival:
        listener("T1", 0, 1, [0])
        listener("T2", 0, 1, [0])
    await trio.sleep(1)
    assert "T2" in slave.tables.topics.table
    assert len(sync.client.asked) == asked + 5
    for listener in slave.store.on_arrival:
        listener("unknown to the master, too", 0, 1, [0])
        listener("unknown to the master, too", 0, 2, [0])
        await trio.sleep(1)
        listener("unknown to the master, too", 0, 3, [0])
        await trio.sleep(1)
    assert len(sync.client.asked) == asked + 10, "it is asked for once"
    for listener in slave.store.on_arrival:
        listener("%LMQ%x", 0, 1, [0])
    await trio.sleep(1)
    assert len(sync.client.asked) == asked + 10, "RocketMQ keeps no topic for a queue of multi dispatch"


def test_topics_are_asked_for_at_the_fast_port():
    assert fast_address(MASTER) == FAST


async def test_all_tables_are_copied_and_saved(slave):
    await slave.slave_sync.synchronize(MASTER)
    assert [code for _, code in slave.slave_sync.client.asked] == [21, 28, 43, 45, 201]
    assert slave.tables.topics.table == {"T1": TopicConfig("T1", 4, 4)}, "replaced, built-in topics too"
    assert slave.tables.offsets.query("CG1", "T1", 1) == 5
    assert slave.tables.groups.table["CG1"].retry_times_max == 3
    assert slave.schedule.file.path.read_text() == '{"offsetTable":{1:2,3:2}}', "as it came"
    again = make_broker(slave.store.config.root)
    again.load_tables()
    assert again.tables.topics.table["T1"] == TopicConfig("T1", 4, 4)
    assert again.tables.groups.version == slave.tables.groups.version
    assert again.schedule.positions == {1: 2, 3: 2}


@pytest.mark.parametrize("nonsense", [b"not JSON", b"[]", b'{"dataVersion":{"counter":1e999}}'])
async def test_a_step_that_fails_does_not_keep_the_others(slave, capsys, nonsense):
    """And is told once, not each ten seconds."""
    bodies = slave.slave_sync.client.bodies
    bodies[FAST, 21] = nonsense
    bodies[MASTER, 45] = RemotingCommand(1, remark="no")
    for _ in range(3):
        await slave.slave_sync.synchronize(MASTER)
    assert slave.tables.groups.table["CG1"].retry_times_max == 3
    assert capsys.readouterr().out.count("could not copy from the master") == 2


async def test_names_that_cannot_be_are_not_taken(slave):
    bad = {**TOPICS, "topicConfigTable": {"../../etc": {"readQueueNums": 4}}}
    slave.slave_sync.client.bodies[FAST, 21] = fastjson.dumps(bad)
    before = dict(slave.tables.topics.table)
    await slave.slave_sync.synchronize(MASTER)
    assert slave.tables.topics.table == before


async def test_the_first_copy_comes_at_once_then_each_ten_seconds(slave, autojump_clock, nursery):
    await slave.slave_sync.synchronize(MASTER)  # So that nothing changes below: threads do not stop this clock.
    slave.slave_sync.client.asked.clear()
    nursery.start_soon(slave.slave_sync.run)
    await trio.sleep(55)
    assert slave.slave_sync.client.asked == []
    slave.slave_sync.set_master(MASTER)
    await trio.sleep(25)
    assert [code for _, code in slave.slave_sync.client.asked].count(201) == 3
    slave.slave_sync.set_master(None)
    await trio.sleep(60)
    assert [code for _, code in slave.slave_sync.client.asked].count(201) == 3


async def test_offsets_that_consumers_committed_here_are_kept(slave, capsys):
    """While the master was away, this slave served consumers. The master comes back with what it knew before."""
    bodies, synchronize = slave.slave_sync.client.bodies, slave.slave_sync.synchronize
    await synchronize(MASTER)
    slave.tables.offsets.commit("CG1", "T1", 0, 20)
    bodies[MASTER, 28] = boot(2)
    for _ in range(2):
        await synchronize(MASTER)
        assert (slave.tables.offsets.query("CG1", "T1", 0), slave.tables.offsets.query("CG1", "T1", 1)) == (20, 5)
    assert capsys.readouterr().out.count("newer than the master's") == 1
    bodies[MASTER, 43] = b'{"offsetTable":{"T1@CG1":{0:9,1:7}}}'  # Consumers go on there.
    await synchronize(MASTER)
    assert (slave.tables.offsets.query("CG1", "T1", 0), slave.tables.offsets.query("CG1", "T1", 1)) == (20, 7)


async def test_a_reset_on_a_running_master_is_followed(slave):
    await slave.slave_sync.synchronize(MASTER)
    slave.slave_sync.client.bodies[MASTER, 43] = b'{"offsetTable":{"T1@CG1":{0:1,1:5}}}'
    await slave.slave_sync.synchronize(MASTER)
    assert (slave.tables.offsets.query("CG1", "T1", 0), slave.tables.offsets.query("CG1", "T1", 1)) == (1, 5)
