"""Commits of offsets to brokers: changes meanwhile, and brokers that do not respond."""

import pytest
import trio

from tests.cluster.client.helpers import ONE, bodies, idle
from twinlog.client import From, MessageQueue, PullConsumer, PushConsumer
from twinlog.cluster.client.consume.offsets import BrokerOffsets, OffsetTable
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingError

QUEUE, OTHER = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
THERE = [MessageQueue("T", "a", queue_id) for queue_id in range(3)]


async def goes_silent(broker):
    """Like a host without power: nothing responds, nothing refuses."""
    broker.silence = trio.Event()
    for stream in broker.connections:
        await stream.aclose()
    await idle(0.01)


@pytest.fixture
async def offsets(broker, neighbour, client, topic):
    """Offsets of a group with a start in every queue; nothing is stored yet."""
    await client.routes.find("T")
    made = BrokerOffsets(client, "G")
    for queue in (*THERE, QUEUE, OTHER):
        made.table.begin(queue, 5, is_stored=False)
    return made


def test_what_was_forgotten_meanwhile_stays_forgotten():
    table = OffsetTable()
    table.begin(QUEUE, 5, is_stored=False)
    sent = table.changed()
    table.forget(QUEUE)
    table.note_stored(sent)
    table.begin(QUEUE, 5, is_stored=False)
    assert table.changed() == {QUEUE: 5}


async def test_a_queue_that_is_given_up_meanwhile_is_not_committed(broker, offsets, nursery, autojump_clock):
    """Its next reader may have read further. For other queues the current offset is sent."""
    await goes_silent(broker)
    nursery.start_soon(offsets.commit)
    await idle(1)
    offsets.table.forget(QUEUE)
    offsets.table.update(OTHER, 7)
    broker.silence.set()
    await idle(1)
    assert broker.offsets.get(("G", "T", 1)) == 7
    offsets.table.begin(QUEUE, 5, is_stored=False)
    assert QUEUE in offsets.table.changed()


async def test_a_silent_broker_keeps_no_other_waiting(broker, neighbour, offsets, autojump_clock):
    await goes_silent(neighbour)
    with trio.move_on_after(1):
        await offsets.commit()
    assert broker.offsets == {("G", "T", 0): 5, ("G", "T", 1): 5}
    begun = trio.current_time()
    await offsets.commit()
    assert trio.current_time() - begun < 3.1, "one time limit, not one for each queue"
    assert set(offsets.table.changed()) == set(THERE)


async def test_a_member_leaves_every_broker_but_the_silent_one(broker, neighbour, client, topic, autojump_clock):
    """In time: offsets, locks and the membership itself."""
    broker.store("T", 0, b"1")
    async with PushConsumer(client, "G", ONE, ordered=True, start=From.FIRST) as consumer:
        assert await bodies(consumer, 1) == [b"1"]
        assert set(consumer.assignment.readers) >= {QUEUE, OTHER, *THERE[:2]}
        await goes_silent(neighbour)
        begun = trio.current_time()
    assert trio.current_time() - begun < 3.5
    assert broker.offsets["G", "T", 0] == 1
    assert broker.locks == {}
    assert broker.members["G"] == {}


async def test_a_member_leaves_when_a_broker_does_not_answer(broker, neighbour, client, topic, autojump_clock):
    """Its connection is open still."""
    async with PushConsumer(client, "G", ONE, ordered=True):
        await idle(1)
        for code in (41, 42, 35):
            neighbour.answers[code] = [None] * 9
        begun = trio.current_time()
    assert trio.current_time() - begun < 3.5
    assert (broker.locks, broker.members["G"]) == ({}, {})


async def test_locks_of_other_brokers_are_renewed_in_time(broker, neighbour, client, topic, autojump_clock):
    async with PushConsumer(client, "G", ONE, ordered=True):
        await idle(1)
        neighbour.answers[41] = [None] * 9
        before = len(broker.codes(41))
        await idle(19.5)
        assert len(broker.codes(41)) > before
        neighbour.answers[41].clear()


async def test_commit_stores_what_it_can(broker, neighbour, client, topic, autojump_clock):
    broker.store("T", 0, b"1")
    broker.store("T", 1, b"2")
    async with PullConsumer(client, "G", start=From.FIRST, auto_commit=False) as consumer:
        await consumer.assign([*THERE[:2], QUEUE, OTHER])
        await goes_silent(neighbour)
        assert len(await consumer.poll()) == len(await consumer.poll()) == 1
        broker.answers[15] = [RemotingCommand(1, remark="no")]
        begun = trio.current_time()
        with pytest.raises(RemotingError):
            await consumer.commit()
        assert trio.current_time() - begun < 3.1
        assert sum(broker.offsets.values()) == 1, "the one that was not refused"
