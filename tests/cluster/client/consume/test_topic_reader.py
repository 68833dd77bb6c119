"""The reader of `twinlog consume`: the offsets that it commits for a group."""

from functools import partial

import pytest
import trio

from tests.cluster.client.helpers import idle
from twinlog.cluster.client.consume.topic_reader import Consumer
from twinlog.cluster.client.subscription import From
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RequestError


def wanted(_message):
    return True


@pytest.fixture
def reader(client, topic):
    """Makes one of the group G."""
    return partial(Consumer, client.api, topic, group="G")


async def test_only_queues_that_were_read_are_committed(broker, reader, autojump_clock):
    """Otherwise reading at the end of a topic would move the group there."""
    broker.store("T", 0, b"1")
    broker.store("T", 1, b"2")
    broker.offsets["G", "T", 1] = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(reader(wanted, start=From.LAST).run, follow=True))
        await idle(6)
        assert not broker.codes(15)
        broker.store("T", 0, b"3")
        await idle(6)
        assert broker.offsets == {("G", "T", 0): 2, ("G", "T", 1): 0}
        await idle(6)
        assert len(broker.codes(15)) == 1, "nothing new"
        nursery.cancel_scope.cancel()


async def test_what_could_not_be_delivered_is_not_committed(broker, reader, autojump_clock):
    broker.store("T", 0, b"1", b"2", b"3")

    def deliver(message):
        if message.body == b"2":
            raise BrokenPipeError
        return True

    with pytest.raises(BrokenPipeError):
        await reader(deliver).run()
    assert broker.offsets["G", "T", 0] == 1


async def test_a_new_group_is_told_where_it_begins(broker, reader, autojump_clock):
    """Unread messages are its lag from then on. A group with offsets keeps those of queues that were not read."""
    broker.store("T", 0, b"1")
    broker.store("T", 1, b"2")
    await reader(lambda _message: False).run()
    assert sorted(broker.offsets.values()) == [0, 1]
    asked = len(broker.codes(15))
    broker.offsets.update({("G", "T", 0): 1, ("G", "T", 1): 1})
    await reader(wanted).run()
    assert len(broker.codes(15)) == asked


async def test_following_survives_a_commit_that_fails(broker, reader, autojump_clock):
    """Other offsets are committed; the failed one follows with the next commit."""
    broker.store("T", 0, b"1")
    broker.store("T", 1, b"2")
    seen = []

    def deliver(message):
        seen.append(message.body)
        return True

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(reader(deliver).run, follow=True))
        await idle(1)
        broker.answers[15] = [RemotingCommand(1, remark="no")]
        await idle(5)
        assert len(broker.offsets) == 1
        broker.store("T", 0, b"3")
        await idle(5)
        assert sorted(seen) == [b"1", b"2", b"3"]
        assert broker.offsets == {("G", "T", 0): 2, ("G", "T", 1): 1}
        nursery.cancel_scope.cancel()


async def test_a_last_commit_that_fails_is_an_error(broker, reader, autojump_clock):
    broker.store("T", 0, b"1")
    broker.store("T", 1, b"2")
    broker.answers[15] = [RemotingCommand(1, remark="no")]
    with pytest.raises(RequestError):
        await reader(wanted).run()
    assert len(broker.offsets) == 1
