"""Pull consumer: assigned queues and positions."""

import pytest

from tests.cluster.client.helpers import idle
from twinlog.client import (
    From,
    MessageQueue,
    NoRouteError,
    PullConsumer,
)
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RequestError

QUEUE = MessageQueue("T", "b", 0)


async def test_positions_are_committed_when_the_next_poll_is_made(broker, client, topic, autojump_clock):
    broker.store("T", 0, *[b"%d" % number for number in range(10)])
    async with PullConsumer(client, "G", start=From.FIRST) as consumer:
        await consumer.assign([QUEUE])
        assert len(await consumer.poll(count_max=4)) == 4
        assert consumer.position(QUEUE) == 0
        assert len(await consumer.poll(count_max=4)) == 4
        assert consumer.position(QUEUE) == 4
    assert broker.offsets["G", "T", 0] == 4


async def test_commit_waits_for_the_broker(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"1", b"2")
    async with PullConsumer(client, "G", start=From.FIRST, auto_commit=False) as consumer:
        await consumer.assign([QUEUE])
        await consumer.poll()
        broker.answers[15] = [RemotingCommand(1, remark="no")]
        with pytest.raises(RequestError):
            await consumer.commit()
        await consumer.commit()
    assert broker.offsets["G", "T", 0] == 2


async def test_seeking_forgets_what_was_read_ahead(broker, client, topic, autojump_clock):
    broker.store("T", 0, *[b"%d" % number for number in range(10)])
    async with PullConsumer(client, "G", start=From.FIRST) as consumer:
        await consumer.assign([QUEUE])
        await consumer.poll(count_max=2)
        await consumer.seek(QUEUE, 8)
        assert [each.body for each in await consumer.poll()] == [b"8", b"9"]
        await consumer.seek(QUEUE, From.FIRST)
        assert len(await consumer.poll()) == 10
        await consumer.seek(QUEUE, From.LAST)
        assert await consumer.poll(timeout_seconds=3) == []
        with pytest.raises(KeyError):
            await consumer.seek(MessageQueue("T", "b", 9), 0)


async def test_what_is_no_more_assigned_is_no_more_read(broker, client, topic, autojump_clock):
    other = MessageQueue("T", "b", 1)
    broker.store("T", 0, b"0")
    broker.store("T", 1, b"1")
    async with PullConsumer(client, "G", start=From.FIRST) as consumer:
        await consumer.assign(await consumer.queues("T"))
        assert consumer.assigned == {QUEUE, other}
        await consumer.assign([other])
        assert [each.body for each in await consumer.poll()] == [b"1"]
        assert await consumer.poll(timeout_seconds=2) == []
    with pytest.raises(NoRouteError):
        await consumer.queues("nowhere")


async def test_what_is_no_more_assigned_is_committed_once_and_then_left_alone(broker, client, topic, autojump_clock):
    """Its next reader commits from then on."""
    other = MessageQueue("T", "b", 1)
    broker.store("T", 0, b"0", b"1", b"2")
    async with PullConsumer(client, "G", start=From.FIRST) as consumer:
        await consumer.assign([QUEUE])
        await consumer.poll(count_max=2)
        await consumer.poll(count_max=1)
        await consumer.assign([other])
        await idle(0.1)
        assert broker.offsets["G", "T", 0] == 2
        broker.offsets["G", "T", 0] = 3
        await idle(120)
    assert broker.offsets["G", "T", 0] == 3


async def test_what_was_sought_is_committed(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"0", b"1", b"2")
    async with PullConsumer(client, "G", start=From.FIRST) as consumer:
        await consumer.assign([QUEUE])
        await consumer.seek(QUEUE, 2)
        await consumer.seek(QUEUE, 1)
        await idle(6)
        assert broker.offsets["G", "T", 0] == 1


async def test_pulls_carry_their_filter(broker, client, topic, autojump_clock):
    """No heartbeat contains the filter of a pull consumer."""
    broker.store("T", 0, b"1", tags="a")
    broker.store("T", 0, b"2", tags="b")
    async with PullConsumer(client, "G", start=From.FIRST, wanted="b") as consumer:
        await consumer.assign([QUEUE])
        assert [each.body for each in await consumer.poll()] == [b"2"]
    pull = broker.codes(11)[0]
    assert (pull.ext["subscription"], int(pull.ext["sysFlag"]) & 4) == ("b", 4)
    assert not broker.codes(38, 34)
