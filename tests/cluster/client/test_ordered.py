"""Ordered consumption: locks, and failed messages that block their queue; on the virtual clock."""

from itertools import pairwise

import trio

from tests.cluster.client.helpers import ONE, idle, mine, request
from twinlog.client import From, MessageQueue, PushConsumer

QUEUE = MessageQueue("T", "b", 0)


async def test_ordered_queues_are_locked_renewed_and_given_back(broker, client, topic, autojump_clock):
    async with PushConsumer(client, "G", ONE, ordered=True):
        assert set(broker.locks) == {("T", 0), ("T", 1), ("%RETRY%G", 0)}
        asked = len(broker.codes(41))
        await idle(41)
        assert len(broker.codes(41)) >= asked + 2
    assert broker.locks == {}


async def test_a_queue_that_somebody_else_has_locked_is_not_read(broker, client, topic, autojump_clock):
    """It is taken as soon as the other member releases it."""
    broker.locks["T", 0] = "another"
    async with PushConsumer(client, "G", ONE, ordered=True) as consumer:
        assert {queue.queue_id for queue in mine(consumer)} == {1}
        await idle(5)
        del broker.locks["T", 0]
        await idle(5.1)
        assert len(mine(consumer)) == 2


async def test_a_lock_that_could_not_be_renewed_stops_work_after_30_seconds(broker, client, topic, autojump_clock):
    """At the broker it is valid for 60 s: no other member can have begun."""
    seen = []

    async def handle(batch):
        seen.append(trio.current_time())

    async with PushConsumer(client, "G", ONE, ordered=True, handler=handle, start=From.FIRST):
        broker.store("T", 0, b"1")
        await idle(1)
        broker.answers[41] = [None] * 9
        await idle(31)
        broker.store("T", 0, b"2")
        await idle(5)
        assert len(seen) == 1
        broker.answers[41].clear()
        await idle(21)
        assert len(seen) == 2


async def test_an_ordered_queue_waits_for_the_message_that_failed(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"1", b"2", b"3")
    seen = []

    async def handle(batch):
        (each,) = batch
        seen.append((each.body, each.reconsume_times, trio.current_time()))
        if each.body == b"2" and each.reconsume_times < 2:
            raise ValueError("not yet")

    async with PushConsumer(client, "G", ONE, ordered=True, handler=handle, start=From.FIRST):
        await idle(6)
    assert [each[:2] for each in seen] == [(b"1", 0), (b"2", 0), (b"2", 1), (b"2", 2), (b"3", 0)]
    assert [round(later[2] - earlier[2]) for earlier, later in pairwise(seen[1:])] == [1, 1, 0]
    assert not broker.codes(36)


async def test_an_ordered_message_that_fails_for_good_goes_to_the_retry_topic(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"1", b"2")
    seen = []

    async def handle(batch):
        if batch.queue.topic == "T":
            seen.append(batch.messages[0].body)
            if batch.messages[0].body == b"1":
                raise ValueError("never")

    options = {"ordered": True, "handler": handle, "start": From.FIRST, "reconsume_times_max": 2}
    async with PushConsumer(client, "G", ONE, **options):
        await idle(6)
    assert seen == [b"1", b"1", b"1", b"2"]
    (copy,) = broker.codes(310)
    assert (copy.ext["b"], copy.ext["j"], copy.ext["l"]) == ("%RETRY%G", "2", "2")


async def test_locks_are_given_back_from_under_a_handler_that_hangs(broker, client, topic, autojump_clock):
    """Otherwise the next member would wait for a minute."""
    broker.store("T", 0, b"1")

    async def handle(batch):
        await trio.sleep_forever()

    async with PushConsumer(client, "G", ONE, ordered=True, handler=handle, start=From.FIRST):
        await idle(1)
    assert broker.locks == {}
    assert ("G", "T", 0) not in broker.offsets or broker.offsets["G", "T", 0] == 0


async def test_a_queue_that_goes_to_another_keeps_its_lock_until_its_batch_is_done(
    broker, client, topic, autojump_clock
):
    broker.store("T", 0, b"1")
    go_on = trio.Event()

    async def handle(batch):
        await go_on.wait()

    async with PushConsumer(client, "G", ONE, ordered=True, handler=handle, start=From.FIRST) as consumer:
        await idle(1)
        broker.members["G"]["0"] = broker.members["G"][client.client_id]  # Before us in the order of names.
        await broker.tell("G", client.client_id, request(40, oneway=True, consumerGroup="G"))
        await idle(1.1)
        assert {queue.queue_id for queue in mine(consumer)} == {1}
        assert ("T", 0) in broker.locks
        go_on.set()
        await idle(0.1)
        assert ("T", 0) not in broker.locks


async def test_a_reset_in_the_middle_of_a_batch_does_not_lose_the_lock(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"1", b"2")
    go_on = trio.Event()
    seen = []

    async def handle(batch):
        seen.append(batch.messages[0].body)
        await go_on.wait()

    async with PushConsumer(client, "G", ONE, ordered=True, handler=handle, start=From.FIRST) as consumer:
        await idle(1)
        await consumer.assignment.reset({MessageQueue("T", "b", 0): 1})
        await idle(2)
        go_on.set()
        await idle(1)
        assert broker.locks["T", 0] == client.client_id
        assert seen == [b"1", b"2"]
        await idle(5)
    assert broker.offsets["G", "T", 0] == 2


class OneAtATime:
    """A handler that waits for `go_on`, and records how many batches of queue 0 it handled at a time."""

    def __init__(self):
        self.go_on, self.seen, self.now, self.most = trio.Event(), [], 0, 0

    async def __call__(self, batch):
        if batch.queue != QUEUE:
            return
        self.seen.append(batch.messages[0].body)
        self.now += 1
        self.most = max(self.most, self.now)
        await self.go_on.wait()
        self.now -= 1


async def another_member(broker, client, *, joins=True):
    """A member whose name sorts first, and which so takes queue 0; or it leaves again."""
    if joins:
        broker.members["G"]["0"] = broker.members["G"][client.client_id]
    else:
        del broker.members["G"]["0"]
    await broker.tell("G", client.client_id, request(40, oneway=True, consumerGroup="G"))
    await idle(1.1)


async def test_a_reset_begins_nothing_beside_the_batch_in_hand(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"1", b"2")
    handle = OneAtATime()
    async with PushConsumer(client, "G", ONE, ordered=True, handler=handle, start=From.FIRST) as consumer:
        await idle(1)
        await consumer.assignment.reset({QUEUE: 0})
        await idle(3)
        assert handle.seen == [b"1"]
        handle.go_on.set()
        await idle(1)
        assert handle.seen == [b"1", b"1", b"2"]
    assert handle.most == 1
    assert broker.offsets["G", "T", 0] == 2


async def test_a_queue_that_goes_and_comes_back_waits_for_its_old_batch(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"1", b"2")
    handle = OneAtATime()
    async with PushConsumer(client, "G", ONE, ordered=True, handler=handle, start=From.FIRST) as consumer:
        await idle(1)
        await another_member(broker, client)
        assert QUEUE not in mine(consumer)
        await another_member(broker, client, joins=False)
        assert QUEUE in mine(consumer)
        await another_member(broker, client)
        assert broker.locks["T", 0] == client.client_id, "the batch of the first time is still in hand"
        await another_member(broker, client, joins=False)
        handle.go_on.set()
        await idle(1)
        assert broker.locks["T", 0] == client.client_id
    assert (handle.seen, handle.most) == ([b"1", b"1", b"2"], 1)


async def test_the_lock_of_a_batch_in_hand_is_renewed_when_its_queue_is_gone(broker, client, topic, autojump_clock):
    """At the broker it is valid for a minute; then another member would begin as well."""
    broker.store("T", 0, b"1")
    handle = OneAtATime()
    async with PushConsumer(client, "G", ONE, ordered=True, handler=handle, start=From.FIRST):
        await idle(1)
        await another_member(broker, client)
        before = len(broker.codes(41))
        await idle(21)
        renewed = b"".join(bytes(each.body) for each in broker.codes(41)[before:])
        assert b'"queueId":0,"topic":"T"' in renewed
        handle.go_on.set()
        await idle(21)
        assert ("T", 0) not in broker.locks


async def test_a_failed_batch_gives_the_lock_back_when_its_queue_is_gone(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"1")

    async def fail(batch):
        raise ValueError("no")

    options = {"ordered": True, "handler": fail, "start": From.FIRST, "suspend_seconds": 5}
    async with PushConsumer(client, "G", ONE, **options):
        await idle(1)
        await another_member(broker, client)
        assert ("T", 0) in broker.locks
        await idle(5)
        assert ("T", 0) not in broker.locks


async def test_the_lock_is_given_back_when_the_queue_goes_while_its_batch_is_settled(
    broker, client, topic, autojump_clock
):
    broker.store("T", 0, b"1")
    broker.answers[310] = [None]  # To the retry topic: it takes until its time is up.

    async def fail(batch):
        raise ValueError("no")

    options = {"ordered": True, "handler": fail, "start": From.FIRST, "reconsume_times_max": 0}
    async with PushConsumer(client, "G", ONE, **options):
        await idle(1)
        await another_member(broker, client)
        assert ("T", 0) in broker.locks
        await idle(5)
        assert ("T", 0) not in broker.locks
