"""Sending the rows of a task, over the broker in memory and virtual time."""

from typing import Any

import pyarrow as pa
import pytest
import trio
from attrs import define

from tests.cluster.client.helpers import BROKER, NAMESRV, NEIGHBOUR, FakeBroker
from tests.cluster.pipeline.sink.encoding import batch_of
from twinlog.client import Client
from twinlog.cluster.pipeline.sink import sending
from twinlog.cluster.pipeline.sink.ids import RowIds
from twinlog.cluster.pipeline.sink.options import WriteRefusedError, sink_options
from twinlog.cluster.pipeline.sink.sending import write_rows
from twinlog.cluster.pipeline.topics.connection import Connection
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.store.record.message import decode_message

GIVEN = {"nameServer": NAMESRV, "topic": "T", "deliveryTimeoutMs": "20000"}
STORED = {"msgId": "F" * 32, "queueId": "0", "queueOffset": "0"}


async def at_once(batches):
    """Virtual time does not wait for threads."""
    await trio.lowlevel.checkpoint()
    return next(batches, None)


@pytest.fixture
def broker(nursery, monkeypatch):
    monkeypatch.setattr(sending, "next_batch", at_once)
    there = FakeBroker(nursery)
    there.topics["T"] = 4
    monkeypatch.setattr(Connection, "client", lambda self: Client(NAMESRV, timeout_ms=3000, connect=there.connect))
    return there


async def written(*batches: Any, attempt: int = 0, **options: str) -> int:
    with trio.fail_after(1000):
        return await write_rows(sink_options(GIVEN | options), RowIds("q", 1, 0), iter(batches), attempt)


def rows(count: int, **columns: Any) -> Any:
    return batch_of(value=pa.array([b"%d" % number for number in range(count)], pa.binary()), **columns)


@define
class Stored:
    """Messages of a topic by queue."""

    broker: FakeBroker

    def bodies(self, topic: str = "T") -> dict[int, list[bytes]]:
        found = {key[1]: each for key, each in self.broker.records.items() if key[0] == topic and each}
        return {number: [bytes(decode_message(raw).body) for raw in raws] for number, raws in found.items()}

    def all(self, topic: str = "T") -> list[int]:
        return sorted(int(body) for each in self.bodies(topic).values() for body in each)

    def ids(self) -> list[tuple[int, str]]:
        return [
            (key[1], decode_message(raw).properties["SPARK_ROW_ID"])
            for key, each in self.broker.records.items()
            for raw in each
        ]


async def test_all_rows_are_stored_in_few_requests(broker, autojump_clock):
    assert await written(rows(300), rows(200)) == 500
    assert sorted(Stored(broker).all()) == sorted([*range(300), *range(200)])
    assert len(Stored(broker).bodies()) == 4
    assert len(broker.codes(320)) == 4
    assert not broker.codes(310)


async def test_no_rows_need_no_cluster(broker, autojump_clock):
    broker.is_down = True
    assert await written() == 0
    assert await written(rows(0)) == 0


async def test_a_repeated_task_uses_the_same_queues_and_ids(broker, autojump_clock):
    await written(rows(100))
    await written(rows(60), attempt=1)
    ids = Stored(broker).ids()
    assert len(ids) == 160
    assert len(set(ids)) == 100


async def test_rows_of_a_sharding_key_keep_their_order(broker, autojump_clock):
    """Though answers are lost and requests are sent again."""
    broker.answers[320] = [None, RemotingCommand(2, remark="busy"), None]
    await written(rows(200, shardingKey=["one", "other"] * 100), batchSize="2000")
    for bodies in Stored(broker).bodies().values():
        for parity in (0, 1):
            seen = list(dict.fromkeys(int(body) for body in bodies if int(body) % 2 == parity))
            assert seen == sorted(seen)
    assert set(Stored(broker).all()) == set(range(200))


async def test_queues_have_one_request_each_under_way(broker, autojump_clock):
    broker.answers[320] = [None] * 4
    async with trio.open_nursery() as nursery:
        nursery.start_soon(written, rows(2000))
        await trio.sleep(1)
        assert sorted(request.ext["e"] for request in broker.codes(320)) == ["0", "1", "2", "3"]
    assert set(Stored(broker).all()) == set(range(2000))


async def test_pending_bytes_are_bounded(broker, autojump_clock, monkeypatch):
    monkeypatch.setattr(sending, "PENDING_BYTES_MAX", 50_000)
    taken = []

    def batches():
        for number in range(20):
            taken.append(number)
            yield batch_of(value=[b"x" * 1000 for _ in range(10)])

    broker.answers[320] = [None] * 4
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_rows, sink_options(GIVEN), RowIds("q", 1, 0), batches())
        await trio.sleep(1)
        assert len(taken) < 8
    assert len(taken) == 20


async def test_topics_of_a_column_and_delayed_messages(broker, autojump_clock):
    broker.topics["U"] = 1
    topics = ["T", "U"] * 5
    await written(rows(10, topic=topics, delayLevel=[0] * 9 + [2]), topic="")
    assert Stored(broker).all("T") == [0, 2, 4, 6, 8]
    assert Stored(broker).all("U") == [1, 3, 5, 7, 9]
    (late,) = broker.codes(310)
    assert "DELAY\x012" in late.ext["i"]


async def test_a_delayed_message_without_a_body_is_waited_for(broker, autojump_clock):
    broker.answers[310] = [None]
    assert await written(batch_of(value=[b""], delayLevel=[1])) == 1
    assert trio.current_time() >= 3


async def test_errors_of_the_rows_come_out_as_they_are(broker, autojump_clock):
    def batches():
        yield rows(5)
        raise EOFError("Spark has ended the task")

    with pytest.raises(EOFError):
        await write_rows(sink_options(GIVEN), RowIds("q", 1, 0), batches())


async def refusal(*batches: Any, **options: str) -> str:
    with pytest.raises(WriteRefusedError) as caught:
        await written(*batches, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("code", "name"), [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")]
)
async def test_answers_that_are_not_safe(broker, autojump_clock, code, name):
    broker.answers[320] = [RemotingCommand(code, ext=STORED)]
    said = await refusal(rows(5, shardingKey=["k"] * 5), onNotSafe="fail")
    assert f"the broker stored 5 messages with {name}: " in said
    asked = len(broker.codes(320))
    broker.answers[320] = [RemotingCommand(code, ext=STORED)] * 3
    assert await written(rows(5)) == 5
    assert len(broker.codes(320)) > asked + 3


async def test_answers_that_stay_unsafe_end_the_task(broker, autojump_clock):
    broker.answers[320] = [RemotingCommand(11, ext=STORED)] * 1000
    began = trio.current_time()
    said = await refusal(rows(5))
    assert "SLAVE_NOT_AVAILABLE: it has no slave that is in sync" in said
    assert "also not within 20000 ms" in said
    assert 10 < trio.current_time() - began <= 21


async def test_a_broker_that_is_down_for_a_while(broker, autojump_clock):
    async def restart() -> None:
        await trio.sleep(12)
        broker.is_down = False

    broker.is_down = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(restart)
        assert await written(rows(50)) == 50
    assert Stored(broker).all() == list(range(50))


async def test_a_broker_that_stays_down_ends_the_task(broker, autojump_clock):
    broker.is_down = True
    said = await refusal(rows(5))
    assert "topic T, queue " in said
    assert "not stored within 20000 ms (option deliveryTimeoutMs)" in said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (RemotingCommand(13, remark="illegal"), "MESSAGE_ILLEGAL (13): illegal. If its maxMessageSize is smaller"),
        (RemotingCommand(16, remark="forbidden"), "the broker allows no messages there: NO_PERMISSION (16): forbidden"),
        (
            RemotingCommand(1, remark="org.apache.rocketmq.acl.common.AclException: no"),
            "the account's right to publish",
        ),
    ],
)
async def test_refusals_are_told_at_once(broker, autojump_clock, answer, said):
    broker.answers[320] = [answer] * 4
    began = trio.current_time()
    assert said in await refusal(rows(100))
    assert trio.current_time() - began < 4  # Leaving takes up to 3 s.


async def test_a_topic_that_cannot_be_created(broker, autojump_clock):
    del broker.topics["T"], broker.topics["TBW102"]
    said = await refusal(rows(5))
    assert "topic T: no broker that is registered now has the topic T" in said


async def test_a_topic_that_is_created_with_the_first_message(broker, autojump_clock):
    del broker.topics["T"]
    assert await written(rows(50)) == 50
    assert len(Stored(broker).bodies()) == 4


async def test_queues_without_a_master_get_only_rows_with_a_key(broker, nursery, autojump_clock):
    """A repeated task waits for the master first."""
    neighbour = FakeBroker(nursery)
    broker.neighbours["a"] = NEIGHBOUR, neighbour
    broker.members_by_id = {"1": BROKER}
    began = trio.current_time()
    assert await written(rows(100)) == 100
    assert Stored(neighbour).all() == list(range(100))
    assert trio.current_time() - began < 5
    began = trio.current_time()
    assert await written(rows(100), attempt=1) == 100
    assert 10 <= trio.current_time() - began < 15
    said = await refusal(rows(100, shardingKey=[str(number) for number in range(100)]))
    assert "of b: " in said
    assert "the broker b has no master that takes messages now" in said
