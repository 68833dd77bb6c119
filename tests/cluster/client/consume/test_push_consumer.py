"""Push consumer on the virtual clock: its requests, their times, and its reaction to failures."""

import time
from itertools import pairwise

import pytest
import trio

from tests.cluster.client.helpers import BROKER, NAMESRV, ONE, SLAVE, bodies, idle, mine, received_message, request
from twinlog.client import Client, FlowLimits, From, FromTime, MessageQueue, PushConsumer, Sql
from twinlog.cluster.client.consume import push_consumer
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.cluster.remoting.errors import RemotingConnectError, RequestError
from twinlog.store.record.properties import parse_properties


async def test_messages_come_as_they_are_sent(broker, client, topic, autojump_clock):
    """A held pull delivers them at once."""
    async with PushConsumer(client, "G", ONE, start=From.FIRST) as consumer:
        await idle(3)
        begun = trio.current_time()
        broker.store("T", 1, b"new")
        assert await bodies(consumer, 1) == [b"new"]
        assert trio.current_time() == begun


@pytest.mark.parametrize(
    ("start", "expected"), [(From.FIRST, {0: 0, 1: 0}), (From.LAST, {0: 2, 1: 2}), (FromTime(5), {0: 1, 1: 1})]
)
async def test_where_a_new_group_begins(broker, client, topic, autojump_clock, start, expected):
    """And that is stored, so that a restart begins there, too."""
    for queue in range(2):
        broker.store("T", queue, b"1", b"2")
    broker.answers[29] = [RemotingCommand(0, ext={"offset": "1"})] * 2
    async with PushConsumer(client, "G", ONE, start=start) as consumer:
        changed = consumer.offsets.table.changed()
        assert {queue.queue_id: offset for queue, offset in changed.items() if queue.topic == "T"} == expected
        await idle(6)
    assert {queue for (_, name, queue) in broker.offsets if name == "T"} == {0, 1}


async def test_offsets_go_to_the_broker_every_five_seconds_and_at_the_end(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"1", b"2", b"3")
    async with PushConsumer(client, "G", ONE, start=From.FIRST) as consumer:
        assert await bodies(consumer, 2) == [b"1", b"2"]
        assert broker.offsets.get(("G", "T", 0), 0) == 0
        await idle(5.1)
        assert broker.offsets["G", "T", 0] == 2
        await bodies(consumer, 1)
    assert broker.offsets["G", "T", 0] == 3


async def test_pulls_carry_the_offset(broker, client, topic, autojump_clock):
    """As it is when they are sent, so that a crash repeats little."""
    broker.store("T", 0, b"1", b"2")
    async with PushConsumer(client, "G", ONE, start=From.FIRST) as consumer:
        assert await bodies(consumer, 2) == [b"1", b"2"]
        broker.store("T", 0, b"3")
        await idle(0.1)
        pull = [each for each in broker.codes(11) if (each.ext["topic"], each.ext["queueId"]) == ("T", "0")][-1]
        assert (pull.ext["queueOffset"], pull.ext["commitOffset"], int(pull.ext["sysFlag"]) & 1) == ("3", "2", 1)


async def test_a_batch_in_hand_is_not_committed(broker, client, topic, autojump_clock):
    """A consumer that leaves during the batch gets it again."""
    broker.store("T", 0, b"1", b"2")
    async with PushConsumer(client, "G", ONE, start=From.FIRST) as consumer:
        async for batch in consumer:
            if batch.messages[0].body == b"2":
                break
    assert broker.offsets["G", "T", 0] == 1


async def test_queues_are_shared_at_once_when_the_group_changes(broker, topic, autojump_clock):
    async with (
        Client(NAMESRV, connect=broker.connect) as first,
        Client(NAMESRV, connect=broker.connect) as second,
        PushConsumer(first, "G", ONE) as one,
    ):
        assert len(mine(one)) == 2
        async with PushConsumer(second, "G", ONE) as two:
            await broker.tell("G", first.client_id, request(40, oneway=True, consumerGroup="G"))
            await idle(1.1)
            assert (len(mine(one)), len(mine(two))) == (1, 1)
            assert not mine(one) & mine(two)
        await idle(20)
        assert len(mine(one)) == 2


async def test_a_broker_that_does_not_know_us_yet_takes_nothing_away(broker, client, topic, autojump_clock):
    """The broker may have started just now, and have received the heartbeat of the other member first."""
    async with PushConsumer(client, "G", ONE) as consumer:
        await idle(1)
        stream = broker.members["G"].pop(client.client_id)
        broker.members["G"]["somebody else"] = stream
        await idle(25)
        assert client.client_id in broker.members["G"]
        assert len(mine(consumer)) == 1


# ---- Workers


async def test_every_worker_gets_its_share_at_once(broker, client, topic, autojump_clock):
    broker.store("T", 0, *[b"%d" % number for number in range(25)])
    begun = []

    async def handle(batch):
        begun.append(trio.current_time())
        await trio.sleep(10)

    async with PushConsumer(client, "G", ONE, start=From.FIRST, handler=handle, workers=20):
        await idle(1)
        assert len(begun) == 20
        await idle(10)
        assert len(begun) == 25


async def test_a_handler_that_never_waits_lets_others_run(broker, client, topic, autojump_clock):
    """Every few messages, and one worker does it all: the loop's other tasks run as often as with a single one."""
    for queue in range(2):
        broker.store("T", queue, *[b"%d" % number for number in range(60)])
    seen, turns = 0, [0]

    async def handle(batch):
        nonlocal seen
        time.sleep(0.001)  # noqa: ASYNC251
        seen += 1

    async with PushConsumer(client, "G", ONE, start=From.FIRST, handler=handle):
        while seen < 120:
            await trio.lowlevel.checkpoint()
            turns.append(seen)
    assert max(later - earlier for earlier, later in pairwise(turns)) <= 4


@pytest.mark.parametrize("ends", ["block", "nursery"])
async def test_a_handler_that_never_waits_can_end_it_all(broker, client, topic, autojump_clock, ends):
    """Soon after that message, though more are there; what was handled is committed."""
    broker.store("T", 0, *[b"%d" % number for number in range(30)])
    seen = []
    with trio.CancelScope() as scope:

        async def handle(batch):
            time.sleep(0.001)  # noqa: ASYNC251
            seen.append(batch.messages[0].queue_offset)
            if len(seen) == 7:
                scope.cancel()

        consumer = PushConsumer(client, "G", ONE, start=From.FIRST, handler=handle)
        if ends == "block":
            async with consumer:
                await trio.sleep_forever()
        async with trio.open_nursery() as nursery:
            await nursery.start(consumer.run)
    assert 7 <= len(seen) <= 11
    assert seen == list(range(len(seen)))
    assert broker.offsets["G", "T", 0] == len(seen)


@pytest.mark.parametrize("slice_seconds", [0, 3600])
@pytest.mark.parametrize("ordered", [False, True])
async def test_an_iterator_that_is_cancelled_leaves_the_rest_to_others(
    broker, client, topic, autojump_clock, monkeypatch, ordered, slice_seconds
):
    """Also in a pause: others were woken before, and had left the rest to it."""
    monkeypatch.setattr(push_consumer, "SLICE_SECONDS", slice_seconds)
    found = []
    async with (
        PushConsumer(client, "G", ONE, start=From.FIRST, ordered=ordered) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def leave() -> None:
            with trio.CancelScope() as scope:
                async for batch in consumer:
                    found.append(batch.messages[0].body)
                    scope.cancel()

        async def stay() -> None:
            async for batch in consumer:
                found.append(batch.messages[0].body)

        for each in (leave, stay):
            nursery.start_soon(each)
            await idle(0.5)
        broker.store("T", 0, *[b"%d" % number for number in range(4)])
        await idle(1)
        nursery.cancel_scope.cancel()
    assert found == [b"0", b"1", b"2", b"3"]


async def test_a_message_that_a_person_chose_keeps_no_other_waiting(broker, client, topic, autojump_clock):
    """Both come at once, and one task is woken."""
    found = []
    async with PushConsumer(client, "G", ONE) as consumer, trio.open_nursery() as nursery:

        async def iterate() -> None:
            async for batch in consumer:
                found.append(batch.messages[0].queue_offset)
                await trio.sleep(100)

        async def arrive() -> None:
            held = consumer.assignment.readers[MessageQueue("T", "b", 0)].held
            held.put([received_message(1)])
            consumer.on_arrival(held)

        for _ in range(2):
            nursery.start_soon(iterate)
        await idle(1)
        nursery.start_soon(arrive)
        nursery.start_soon(consumer.consume_directly, received_message(7))
        await idle(1)
        assert sorted(found) == [1, 7]
        nursery.cancel_scope.cancel()


async def test_who_iterates_elsewhere_is_told_the_end(broker, client, topic, nursery, autojump_clock):
    ended = trio.Event()

    async def iterate(consumer) -> None:
        async for _batch in consumer:
            pass
        ended.set()

    async with PushConsumer(client, "G", ONE) as consumer:
        nursery.start_soon(iterate, consumer)
        await idle(1)
    with trio.fail_after(5):
        await ended.wait()


# ---- Failures


async def test_what_fails_is_sent_back(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"bad", b"good")
    seen = []

    async def handle(batch):
        seen.append(batch.messages[0].body)
        if batch.messages[0].body == b"bad":
            raise ValueError("no")

    async with PushConsumer(client, "G", ONE, start=From.FIRST, handler=handle, reconsume_times_max=5):
        await idle(6)
    (back,) = broker.codes(36)
    assert (back.ext["offset"], back.ext["delayLevel"], back.ext["maxReconsumeTimes"]) == ("0", "0", "5")
    assert seen == [b"bad", b"good"]
    assert broker.offsets["G", "T", 0] == 2


async def test_an_iterator_says_later_or_dead(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"later", b"dead", b"good")
    async with PushConsumer(client, "G", ONE, start=From.FIRST) as consumer:
        async for batch in consumer:
            if batch.messages[0].body == b"later":
                batch.later(7)
            elif batch.messages[0].body == b"dead":
                batch.dead()
            else:
                await batch.done()
                break
    assert [each.ext["delayLevel"] for each in broker.codes(36)] == ["7", "-1"]


async def test_done_that_was_cancelled_goes_on_where_it_was(broker, client, topic, autojump_clock):
    """Messages that were sent back are not sent twice, and the queue continues."""
    broker.store("T", 0, b"1", b"2", b"3", b"4")
    broker.answers[36] = [RemotingCommand(0), None]
    async with PushConsumer(client, "G", ONE, start=From.FIRST, batch_max=3) as consumer:
        batch = await consumer.take()
        batch.later()
        with trio.move_on_after(1) as scope:
            await batch.done()
        assert scope.cancelled_caught
        await idle(6)
        assert broker.offsets["G", "T", 0] == 1, "the broker has the first one again"
        await batch.done()
        await batch.done()
        assert await bodies(consumer, 1) == [b"4"]
    assert [each.ext["offset"] for each in broker.codes(36)] == ["0", "1000", "1000", "2000"]
    assert broker.offsets["G", "T", 0] == 4


async def test_a_broker_that_takes_nothing_back_gets_a_copy_for_the_retry_topic(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"bad", KEYS="k")
    broker.answers[36] = [RemotingCommand(1, remark="no")]
    async with PushConsumer(client, "G", ONE, start=From.FIRST) as consumer:
        async for batch in consumer:
            batch.later()
            await batch.done()
            break
    (copy,) = broker.codes(310)
    assert (copy.ext["a"], copy.ext["b"], copy.ext["j"], copy.ext["l"]) == (
        "CLIENT_INNER_PRODUCER",
        "%RETRY%G",
        "1",
        "16",
    )
    properties = parse_properties(copy.ext["i"])
    assert (properties["KEYS"], properties["RETRY_TOPIC"], properties["DELAY"]) == ("k", "T", "3")


async def test_what_nobody_takes_is_tried_here_again(broker, client, topic, autojump_clock):
    """After 5 s, counted; until then its offset is not committed."""
    broker.store("T", 0, b"bad")
    broker.answers[36] = [RemotingCommand(1, remark="no")]
    broker.answers[310] = [RemotingCommand(13, remark="no")]
    tries = []

    async def handle(batch):
        tries.append((trio.current_time(), batch.messages[0].reconsume_times))
        if len(tries) == 1:
            raise ValueError("no")

    async with PushConsumer(client, "G", ONE, start=From.FIRST, handler=handle):
        await idle(4)
        assert broker.offsets.get(("G", "T", 0), 0) == 0
        await idle(6)
    (first, none), (second, once) = tries
    assert (round(second - first), none, once) == (5, 0, 1)
    assert broker.offsets["G", "T", 0] == 1


async def test_a_broadcast_message_that_fails_is_gone(broker, client, topic, autojump_clock, tmp_path):
    broker.store("T", 0, b"bad", b"good")
    seen = []

    async def handle(batch):
        seen.append(batch.messages[0].body)
        if len(seen) == 1:
            raise ValueError("no")

    file = tmp_path / "offsets.json"
    options = {"broadcasting": True, "offset_file": file, "start": From.FIRST}
    async with PushConsumer(client, "G", ONE, handler=handle, **options):
        await idle(1)
    assert seen == [b"bad", b"good"]
    assert not broker.codes(36, 38, 14, 15)
    assert b'"queueId":0,"topic":"T"}:2' in file.read_bytes()


# ---- Limits, filters, errors


async def test_no_more_is_pulled_than_the_limits_allow(broker, client, topic, autojump_clock):
    broker.store("T", 0, *[b"%d" % number for number in range(200)])
    limits = FlowLimits(messages_max=40)
    async with PushConsumer(client, "G", ONE, start=From.FIRST, limits=limits) as consumer:
        await idle(3)
        held = consumer.assignment.readers[MessageQueue("T", "b", 0)].held
        assert held.count == 64, "two pulls of 32"
        assert await bodies(consumer, 200) == [b"%d" % number for number in range(200)]


async def test_tags_are_compared_again_and_what_is_passed_over_is_committed(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"1", b"2", tags="a")
    broker.store("T", 0, b"3", tags="b")
    async with PushConsumer(client, "G", {"T": "b"}, start=From.FIRST) as consumer:
        assert await bodies(consumer, 1) == [b"3"]
    assert broker.offsets["G", "T", 0] == 3


async def test_a_filter_that_the_broker_refuses_is_an_error_at_the_start(broker, client, topic, autojump_clock):
    broker.answers[46] = [RemotingCommand(23, remark="no")]
    with pytest.raises(RequestError, match="no"):
        async with PushConsumer(client, "G", {"T": Sql("a >")}):
            pass
    assert client.consumers == {}


async def test_without_a_name_server_it_does_not_start(autojump_clock):
    async def refuse(_address):
        raise OSError("refused")

    async with Client(NAMESRV, connect=refuse) as client:
        with pytest.raises(RemotingConnectError, match="refused"):
            async with PushConsumer(client, "G", ONE):
                pass


async def test_a_broker_that_was_away_is_read_on(broker, client, topic, autojump_clock):
    broker.store("T", 0, b"1")
    async with PushConsumer(client, "G", ONE, start=From.FIRST) as consumer:
        assert await bodies(consumer, 1) == [b"1"]
        broker.is_down = True
        for stream in broker.connections:
            await stream.aclose()
        await idle(10)
        broker.is_down = False
        broker.members.clear()  # A broker that was restarted knows nobody.
        broker.store("T", 0, b"2")
        assert await bodies(consumer, 1) == [b"2"]
        await idle(21)
        assert client.client_id in broker.members["G"]


async def test_a_topic_that_is_not_there_yet_is_looked_for(broker, client, autojump_clock):
    """Soon at first, then every five seconds, so that name servers are not overloaded."""
    async with PushConsumer(client, "G", {"New": "*"}, start=From.FIRST) as consumer:
        await idle(60)
        assert 10 <= len([each for each in broker.codes(105) if each.ext["topic"] == "New"]) <= 16
        broker.topics["New"] = 1
        broker.store("New", 0, b"1")
        assert await bodies(consumer, 1) == [b"1"]


async def test_readers_of_a_topic_that_is_gone_ask_for_it_once_a_second(broker, client, autojump_clock):
    broker.topics["T"] = 40
    async with PushConsumer(client, "G", ONE, start=From.FIRST):
        del broker.topics["T"], broker.topics["TBW102"]
        broker.is_down = True
        for stream in broker.connections:
            await stream.aclose()
        before = len(broker.codes(105))
        await idle(20)
        asked = [each for each in broker.codes(105)[before:] if each.ext["topic"] == "T"]
        assert len(asked) <= 50


async def test_an_offset_outside_the_queue_is_put_right(broker, client, topic, autojump_clock):
    """The log was truncated: messages that were read since do not exist any more."""
    broker.store("T", 0, b"1", b"2")
    broker.offsets["G", "T", 0] = 7
    async with PushConsumer(client, "G", ONE) as consumer:
        await idle(6)
        assert broker.offsets["G", "T", 0] == 2
        broker.store("T", 0, b"3")
        assert await bodies(consumer, 1) == [b"3"]


async def test_a_batch_from_before_a_cut_settles_nothing_after_it(broker, client, topic, autojump_clock):
    """The log was truncated during the batch, and has other messages at its offsets now."""
    broker.store("T", 0, b"1", b"2")
    async with PushConsumer(client, "G", ONE, start=From.FIRST, batch_max=2) as consumer:
        old = await consumer.take()
        assert len(old) == 2
        broker.records["T", 0].clear()
        for stream in broker.connections:
            await stream.aclose()  # The pull that is held asks again, and is told.
        await idle(3)
        broker.store("T", 0, b"new 1", b"new 2")
        new = await consumer.take()
        assert [each.body for each in new] == [b"new 1", b"new 2"]
        await old.done()
        await idle(6)
        assert broker.offsets.get(("G", "T", 0), 0) == 0
        await new.done()
    assert broker.offsets["G", "T", 0] == 2


async def test_a_queue_is_read_from_whom_its_broker_suggests(broker, client, topic, autojump_clock):
    """The slave knows the group, but gets no offsets, neither in pulls nor in commits."""
    broker.members_by_id = {"0": BROKER, "1": SLAVE}
    broker.suggested = 1
    broker.store("T", 0, b"1", b"2")
    async with PushConsumer(client, "G", ONE, start=From.FIRST) as consumer:
        assert await bodies(consumer, 2) == [b"1", b"2"]
        broker.store("T", 0, b"3")
        assert await bodies(consumer, 1) == [b"3"]
        await idle(6)
    of_slave = [code for address, code in broker.asked_of if address == SLAVE]
    assert {34, 11} <= set(of_slave) <= {34, 11, 35}
    assert not [
        each for each in broker.codes(11)[1:] if int(each.ext["sysFlag"]) & 1 and each.ext["queueOffset"] == "2"
    ]


async def test_without_a_master_slaves_are_read_and_told(broker, client, topic, autojump_clock):
    broker.members_by_id = {"1": SLAVE}
    broker.store("T", 0, b"1")
    async with PushConsumer(client, "G", ONE, start=From.FIRST) as consumer:
        assert await bodies(consumer, 1) == [b"1"]
    assert broker.offsets["G", "T", 0] == 1
    assert {address for address, _ in broker.asked_of} == {NAMESRV, SLAVE}
