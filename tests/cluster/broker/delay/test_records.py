"""Messages with a delay level: where they wait, when they come, and what a restart repeats."""

from struct import pack

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.broker.helpers import make_broker, opened, put
from twinlog.cluster.broker.delay.records import Delayed, Progress, delayed
from twinlog.cluster.broker.delay.service import ScheduleMessageService
from twinlog.cluster.remoting import fastjson
from twinlog.store.log.running_flags import StoreCondition
from twinlog.store.queue.consume_queue_ext import ConsumeQueueExt
from twinlog.store.queue.layout import UNIT
from twinlog.store.record.message import decode_message

LEVELS = (1000, 5000)


def test_a_delayed_message_waits_in_the_queue_of_its_level():
    assert delayed("T1", 3, {"DELAY": "2", "KEYS": "k"}, LEVELS, 100) == Delayed(
        "SCHEDULE_TOPIC_XXXX", 1, {"DELAY": "2", "KEYS": "k", "REAL_TOPIC": "T1", "REAL_QID": "3"}, 5100
    )


def test_levels_above_the_highest_are_the_highest():
    late = delayed("T1", 0, {"DELAY": "99"}, LEVELS, 0)
    assert (late.queue_id, late.properties["DELAY"]) == (1, "2")


@pytest.mark.parametrize("properties", [{}, {"DELAY": "0"}, {"DELAY": "-1"}, {"DELAY": ""}])
def test_without_a_level_there_is_no_delay(properties):
    assert delayed("T1", 0, properties, LEVELS, 0) is None


def test_a_level_that_is_no_number_is_an_error():
    with pytest.raises(ValueError):
        delayed("T1", 0, {"DELAY": "x"}, LEVELS, 0)


class Clock:
    """The wall clock of a test, driven by trio's."""

    def __call__(self) -> int:
        return 1_000_000 + round(trio.current_time() * 1000)


def with_clock(broker):
    broker.store.hooks.now_ms = broker.schedule.now_ms = Clock()
    return broker


def put_delayed(broker, level, body=b"late", topic="T1"):
    late = delayed(topic, 0, {"DELAY": str(level), "TAGS": "TagA"}, broker.store.delays_ms, broker.schedule.now_ms())
    return put(
        broker, late.topic, queue_id=late.queue_id, body=body, properties=late.properties, tags_code=late.tags_code
    )


def messages(broker, topic="T1"):
    broker.store.dispatch_pending()
    queue = broker.store.queue(topic, 0)
    return [decode_message(broker.store.message_at(queue.unit(n).phy_offset)) for n in range(queue.max_offset)]


async def test_a_message_comes_when_it_is_due(tmp_path, autojump_clock, nursery):
    """Within a tenth of a second; its stored properties stay, its tags count again."""
    async with opened(with_clock(make_broker(tmp_path))) as client:
        broker = client.broker
        nursery.start_soon(broker.schedule.run)
        old = put_delayed(broker, 2)
        await trio.sleep(4.9)
        assert messages(broker) == []
        await trio.sleep(0.3)
        (message,) = messages(broker)
        assert message.body == b"late"
        assert message.properties["REAL_TOPIC"] == "T1"
        assert broker.store.queue("T1", 0).unit(0).tags_code == 2598919
        assert message.properties_raw == decode_message(broker.store.message_at(old.phy_offset)).properties_raw
        await broker.store.flusher.flush()
        broker.schedule.confirm()
        await broker.schedule.flush()
        assert broker.schedule.file.load() == {"offsetTable": {"2": 1}}
        assert len(messages(broker)) == 1


async def test_many_due_at_once_keep_their_order(tmp_path, autojump_clock, nursery):
    async with opened(with_clock(make_broker(tmp_path))) as client:
        for n in range(200):
            put_delayed(client.broker, 1, b"%d" % n)
        await trio.sleep(2)
        await client.broker.schedule.deliver_due()
        assert [int(message.body) for message in messages(client.broker)] == list(range(200))


async def test_a_restart_goes_on_where_it_was(tmp_path, autojump_clock):
    async with opened(with_clock(make_broker(tmp_path))) as client:
        put_delayed(client.broker, 1, b"one")
        await trio.sleep(2)
        await client.broker.schedule.deliver_due()
        put_delayed(client.broker, 1, b"two")
        await client.broker.store.flusher.flush()
        client.broker.schedule.confirm()
        await client.broker.schedule.flush()
    async with opened(with_clock(make_broker(tmp_path))) as client:
        client.broker.load_tables()
        await trio.sleep(2)
        await client.broker.schedule.deliver_due()
        assert [message.body for message in messages(client.broker)] == [b"one", b"two"]


async def test_what_replicas_lack_is_not_written_down_as_delivered(tmp_path, autojump_clock):
    """A slave that takes over must deliver it again; this broker does not."""
    async with opened(with_clock(make_broker(tmp_path))) as client:
        broker = client.broker
        confirmed = [0]
        broker.schedule.confirmed_offset = lambda: confirmed[0]
        put_delayed(broker, 1)
        await trio.sleep(2)
        for _ in range(2):
            await broker.schedule.deliver_due()
            broker.schedule.confirm()
        assert broker.schedule.table == {}
        assert len(messages(broker)) == 1
        confirmed[0] = broker.store.max_offset
        broker.schedule.confirm()
        assert broker.schedule.table == {1: 1}


async def test_without_slaves_what_they_are_told_stays_and_the_file_goes_on(tmp_path, autojump_clock):
    """A SYNC_MASTER alone: a restart repeats nothing that is on disk."""
    async with opened(with_clock(make_broker(tmp_path))) as client:
        broker = client.broker
        broker.schedule.confirmed_offset = lambda: 0
        for n in range(20):
            put_delayed(broker, 1 + n % 2, b"%d" % n)
            await trio.sleep(10)
            await broker.schedule.deliver_due()
            if n == 12:
                await broker.store.flusher.flush()
            broker.schedule.confirm()
        assert broker.schedule.table == {}
        assert broker.schedule.file_table == {"offsetTable": {1: 7, 2: 6}}


def test_what_nobody_confirms_for_long_takes_little_memory():
    progress = Progress()
    for n in range(10_000):
        progress.add(n, n % 3, n)
        assert len(progress._steps) <= 1025
    progress.advance(9_998)
    assert progress.table == {0: 9996, 1: 9997, 2: 9998}


def test_what_is_passed_over_confirms_nothing_that_was_delivered_before():
    progress = Progress(steps_max=4)
    for n in range(1, 10):
        progress.add(100 + n, 1, n)
        progress.add(0, 1, n + 1)  # Nobody could read it.
    progress.add(200, 2, 1)
    progress.advance(100)
    assert progress.table == {}
    progress.advance(109)
    assert progress.table == {1: 10}


@given(st.lists(st.integers(1, 3), max_size=60), st.integers(0, 60))
def test_a_level_never_moves_past_what_is_safe(steps, safe):
    progress, position = Progress(), {}
    progress.steps_max = 8
    for end_offset, level in enumerate(steps):
        position[level] = position.get(level, 0) + 1
        progress.add(end_offset, level, position[level])
    progress.advance(safe)
    for level, reached in progress.table.items():
        assert reached <= sum(1 for end, other in enumerate(steps) if other == level and end <= safe)
    progress.advance(len(steps))
    assert progress.table == position


async def test_many_that_nobody_can_read_are_passed_over_a_batch_at_a_time(tmp_path, autojump_clock, monkeypatch):
    """Others have their turn in between."""
    async with opened(with_clock(make_broker(tmp_path))) as client:
        broker = client.broker
        for _ in range(150):
            put_delayed(broker, 1, b"lost")
        put_delayed(broker, 1, b"there")
        read, turns = ScheduleMessageService._read, []

        def damaged(schedule, queue, position):
            turns.append(position)
            return read(schedule, queue, position) if position >= 150 else None

        monkeypatch.setattr(ScheduleMessageService, "_read", damaged)
        broker.store.hooks.now_ms = broker.schedule.now_ms = lambda: 1 << 50
        assert broker.schedule._deliver_some(1)
        assert len(turns) == 64
        await broker.schedule.deliver_due()
        assert [message.body for message in messages(broker)] == [b"there"]
        assert broker.schedule.positions == {1: 151}


async def test_a_level_in_trouble_holds_up_no_other(tmp_path, autojump_clock, capsys):
    """Here its queue cannot be read; it is tried again after ten seconds."""
    async with opened(with_clock(make_broker(tmp_path))) as client:
        broker = client.broker
        for level in (1, 2):
            put_delayed(broker, level, b"%d" % level)
        await trio.sleep(6)
        real, broken = broker.store.queue, [True]

        class Broken:
            def queue(self, topic, queue_id):
                if broken[0] and (topic, queue_id) == ("SCHEDULE_TOPIC_XXXX", 0):
                    raise OSError("input/output error")
                return real(topic, queue_id)

            def __getattr__(self, name):
                return getattr(broker.store, name)

        broker.schedule.store = Broken()
        await broker.schedule.deliver_due()
        assert [message.body for message in messages(broker)] == [b"2"]
        broken[0] = False
        await broker.schedule.deliver_due()
        assert len(messages(broker)) == 1, "not yet"
        await trio.sleep(10)
        await broker.schedule.deliver_due()
        assert [message.body for message in messages(broker)] == [b"2", b"1"]
        assert "input/output error" in capsys.readouterr().out


async def test_a_busy_level_leaves_room_for_others(tmp_path, autojump_clock):
    async with opened(with_clock(make_broker(tmp_path))) as client:
        for n in range(200):
            put_delayed(client.broker, 1, b"%d" % n)
        put_delayed(client.broker, 2, b"other")
        await trio.sleep(6)
        await client.broker.schedule.deliver_due()
        assert [message.body for message in messages(client.broker)].index(b"other") == 64


async def test_what_the_store_refuses_waits_and_comes_once(tmp_path, autojump_clock, capsys):
    """maxMessageSize was lowered: nothing is lost, nothing behind it overtakes, and other levels go on."""
    async with opened(with_clock(make_broker(tmp_path))) as client:
        for n in range(4):
            put_delayed(client.broker, 1, b"x" * (2000 if n == 1 else n + 1))
    broker = with_clock(make_broker(tmp_path))
    putter = broker.store._putter
    putter.config = attrs.evolve(putter.config, max_message_size=1000)
    putter._body_size_unchecked = 1000
    async with opened(broker) as client:
        await trio.sleep(2)
        for _ in range(3):
            await broker.schedule.deliver_due()
            await trio.sleep(11)
        assert [len(message.body) for message in messages(broker)] == [1, 3, 4]
        assert broker.schedule.positions == {1: 1}
        assert "MESSAGE_ILLEGAL" in capsys.readouterr().out
        putter._body_size_unchecked = 4000
        await broker.schedule.deliver_due()
        assert [len(message.body) for message in messages(broker)][3:] == [2000, 3, 4]


@pytest.mark.parametrize(("text", "corrected"), [("{1:9}", {1: 2}), ("{1:1}", {1: 1}), ("{7:3}", {7: 0})])
async def test_an_offset_outside_of_its_queue_is_corrected_before_messages_come(tmp_path, text, corrected):
    """Else the messages up to it would be passed over later. The correction is kept."""
    async with opened(with_clock(make_broker(tmp_path))) as client:
        for _ in range(2):
            put_delayed(client.broker, 1)
    broker = with_clock(make_broker(tmp_path))
    broker.schedule.file.save(f'{{"offsetTable":{text}}}')
    broker.load_tables()
    async with opened(broker):
        broker.schedule.correct()
        await broker.schedule.flush()
        assert broker.schedule.positions == broker.schedule.table == corrected
        assert make_broker(tmp_path).schedule.file.load() == {"offsetTable": {str(k): v for k, v in corrected.items()}}


async def test_levels_that_were_taken_out_of_the_table_are_delivered(tmp_path, autojump_clock):
    """RocketMQ forgets them."""
    async with opened(with_clock(make_broker(tmp_path))) as client:
        put_delayed(client.broker, 4, b"half a minute")
    broker = with_clock(make_broker(tmp_path))
    broker.schedule.levels_ms = broker.store.delays_ms = (1000, 5000)
    async with opened(broker):
        broker.schedule.correct()
        await trio.sleep(29)
        await broker.schedule.deliver_due()
        assert messages(broker) == []
        await trio.sleep(2)
        await broker.schedule.deliver_due()
        assert [message.body for message in messages(broker)] == [b"half a minute"]


async def test_a_store_that_takes_nothing_is_tried_again(tmp_path, autojump_clock):
    async with opened(with_clock(make_broker(tmp_path))) as client:
        broker = client.broker
        put_delayed(broker, 1)
        await trio.sleep(2)
        broker.store.flags.set(StoreCondition.DISK_FULL, "91 % of the disk is used")
        await broker.schedule.deliver_due()
        assert broker.schedule.positions == {}
        broker.store.flags.clear(StoreCondition.DISK_FULL)
        await broker.schedule.deliver_due()
        assert len(messages(broker)) == 1


async def test_what_cannot_be_delivered_is_passed_over(tmp_path, autojump_clock):
    """No REAL_TOPIC, or one that would lose a transaction its half."""
    async with opened(with_clock(make_broker(tmp_path))) as client:
        broker = client.broker
        put(broker, "SCHEDULE_TOPIC_XXXX", tags_code=broker.schedule.now_ms())
        put_delayed(broker, 1, topic="RMQ_SYS_TRANS_HALF_TOPIC")
        put_delayed(broker, 1)
        await trio.sleep(2)
        await broker.schedule.deliver_due()
        assert len(messages(broker)) == 1
        broker.schedule.confirm()
        assert broker.schedule.table == {1: 3}


async def test_a_clock_that_was_set_back_delays_nobody(tmp_path, autojump_clock):
    async with opened(with_clock(make_broker(tmp_path))) as client:
        put(
            client.broker,
            "SCHEDULE_TOPIC_XXXX",
            properties={"REAL_TOPIC": "T1", "REAL_QID": "0"},
            tags_code=client.broker.schedule.now_ms() + 3_600_000,
        )
        await client.broker.schedule.deliver_due()
        assert len(messages(client.broker)) == 1


async def test_rocketmqs_file_is_read(tmp_path):
    broker = make_broker(tmp_path)
    broker.schedule.file.save('{\n\t"offsetTable":{1:2,3:7\n\t}\n}')
    broker.load_tables()
    assert broker.schedule.positions == {1: 2, 3: 7}
    assert fastjson.dumps(broker.schedule.to_json()) == b'{"offsetTable":{1:2,3:7}}'


async def test_times_in_an_extension_count(tmp_path, autojump_clock):
    """RocketMQ's enableConsumeQueueExt; what is lost there follows from the time of storing."""
    async with opened(with_clock(make_broker(tmp_path))) as client:
        broker = client.broker
        now = broker.schedule.now_ms()
        for body in (b"in the extension", b"lost there"):
            put_delayed(broker, 2, body)
        queue = broker.store.queue("SCHEDULE_TOPIC_XXXX", 1)
        file = queue.files.files[0]
        for n in range(2):
            phy_offset, size, _ = queue.unit(n)
            file.write_at(n * UNIT.size, UNIT.pack(phy_offset, size, 24 * n - (1 << 63)))
        directory = tmp_path / "consumequeue_ext" / "SCHEDULE_TOPIC_XXXX" / "1"
        directory.mkdir(parents=True)
        (directory / f"{0:020}").write_bytes(pack(">hqqh", 20, now + 3000, now, 0).ljust(100, b"\0"))
        queue.ext = ConsumeQueueExt.open(directory)
        for seconds, expected in ((2.9, []), (0.2, [b"in the extension"]), (1.8, [b"in the extension"])):
            await trio.sleep(seconds)
            await broker.schedule.deliver_due()
            assert [message.body for message in messages(broker)] == expected
        await trio.sleep(0.2)
        await broker.schedule.deliver_due()
        assert [message.body for message in messages(broker)] == [b"in the extension", b"lost there"]
