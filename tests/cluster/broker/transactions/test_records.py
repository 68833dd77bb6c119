"""Ends of transactions, and the rounds in which producers are asked about open ones."""

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.broker.helpers import HOST, Client, FakeConnection, heartbeat, make_broker, opened
from tests.cluster.broker.sending import Waits, Wire
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.broker.transactions.records import EndedHalves, HalfVerdict, ended_halves, judge
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.store.config import BrokerRole
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.log.running_flags import StoreCondition
from twinlog.store.message_store import MessageStore
from twinlog.store.record.message import Message, decode_message
from twinlog.store.record.properties import format_properties

HALF, OP, CHECK_MAX = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
START_MS = 1_700_000_000_000


@attrs.define
class Transactions:
    """A broker whose clock the test moves, and a producer of the group P that is connected to it."""

    client: Client
    producer: FakeConnection
    now_ms: int = START_MS
    wire: Wire = attrs.field(factory=Wire)

    @property
    def broker(self):
        return self.client.broker

    def begin(self, **how):
        """Store a half message; its offsets in queue and log."""
        self.send(**how)
        return self.half_of(self.wire.answers[-1])

    def half_of(self, answer):
        assert answer.code == 0, answer.remark
        return int(answer.ext["queueOffset"]), int(answer.ext["msgId"][-16:], 16)

    def send(self, *, born=None, **properties):
        text = format_properties({"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "u", "TAGS": "TagA", **properties})
        ext = {"a": "P", "b": "T1", "c": "TBW102", "d": "4", "e": "1", "f": "4", "h": "7", "i": text}
        ext["g"] = str(self.now_ms if born is None else born)
        self.broker.send.process(self.wire, [RemotingCommand(310, 1, ext=ext, body=b"hello")])
        self.broker.store.dispatch_pending()

    def end(self, half, how=COMMIT, **changed):
        fields = {"producerGroup": "P", "tranStateTableOffset": half[0], "commitLogOffset": half[1], "msgId": "u"}
        reply = self.client.ask(37, **{**fields, "commitOrRollback": how, **changed})
        self.broker.store.dispatch_pending()
        return reply

    async def check(self, after_ms=0):
        """One round; the offsets in the half queue of what the producer is asked about."""
        self.now_ms += after_ms
        before = len(self.producer.sent)
        await self.broker.transactions.check()
        await self.broker.tables.topics_writer.save()  # Else answers wait for the half topic's way to the disk.
        self.broker.store.dispatch_pending()
        return [int(command.ext["tranStateTableOffset"]) for command in self.producer.sent[before:]]

    def stored(self, topic, queue_id=0):
        store = self.broker.store
        queue = store.queue(topic, queue_id)
        return [decode_message(store.message_at(queue.unit(n).phy_offset)) for n in range(queue.max_offset)]

    def offset(self, topic):
        return self.broker.tables.offsets.query("CID_RMQ_SYS_TRANS", topic, 0)


@pytest.fixture
async def here(tmp_path, autojump_clock):
    broker = make_broker(tmp_path, transaction_timeout_ms=6000, transaction_check_max=3)
    async with opened(broker) as client:
        producer = FakeConnection()
        body = heartbeat() | {"producerDataSet": [{"groupName": "P"}], "consumerDataSet": []}
        Client(broker, producer).ask(34, body)
        broker.tables.topics.update(TopicConfig("T1", 4, 4))
        await broker.tables.topics_writer.save()
        transactions = Transactions(client, producer)
        broker.store.hooks.now_ms = broker.transactions.now_ms = lambda: transactions.now_ms
        yield transactions


async def test_a_commit_is_the_message_itself(here, autojump_clock):
    half = here.begin()
    (prepared,) = here.stored(HALF)
    assert here.end(half).code == 0
    (message,) = here.stored("T1", 1)
    assert (message.body, message.flag, message.sys_flag) == (b"hello", 7, 8)
    assert message.prepared_transaction_offset == half[1]
    assert message.properties_raw == prepared.properties_raw
    assert here.broker.store.queue("T1", 1).unit(0).tags_code == 2598919
    (op,) = here.stored(OP)
    assert (op.body, op.properties_raw) == (b"0", b"WAIT\x01true\x02TAGS\x01d")


async def test_a_rollback_is_an_op_message_alone(here, autojump_clock):
    assert here.end(here.begin(), ROLLBACK).code == 0
    assert here.stored("T1", 1) == []
    assert [op.body for op in here.stored(OP)] == [b"0"]


@pytest.mark.parametrize("how", [UNKNOWN, 4, 99])
async def test_what_is_not_known_yet_is_not_answered(here, autojump_clock, how):
    assert here.end(here.begin(), how) is None
    assert here.stored(OP) == []


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"producerGroup": "Q"}, "The producer group wrong"),
        ({"tranStateTableOffset": 1}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 7}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 1 << 40}, "Find prepared transaction message failed"),
    ],
)
async def test_the_half_message_must_be_the_one_that_is_meant(here, autojump_clock, how, changed, remark):
    reply = here.end(here.begin(), how, **changed)
    assert (reply.code, reply.remark) == (1, remark)
    assert here.stored("T1", 1) == here.stored(OP) == []


async def test_a_committed_message_is_no_half_message(here, autojump_clock):
    """Its properties are the half's: nobody may commit it again, as something else."""
    here.end(here.begin())
    (message,) = here.stored("T1", 1)
    reply = here.end((0, message.phy_offset))
    assert (reply.code, reply.remark) == (1, "Find prepared transaction message failed")


async def test_a_slave_refuses(tmp_path):
    async with opened(make_broker(tmp_path, role=BrokerRole.SLAVE)) as client:
        fields = {"producerGroup": "P", "tranStateTableOffset": 0, "commitLogOffset": 0, "msgId": "u"}
        assert client.ask(37, commitOrRollback=8, **fields).code == 11


async def test_a_commit_that_cannot_be_stored_leaves_the_transaction_open(here, autojump_clock):
    half = here.begin()
    here.broker.store.fail("the disk is gone")
    reply = here.end(half)
    assert (reply.code, here.stored(OP)) == (14, [])
    assert "the disk is gone" in reply.remark


async def test_a_delay_counts_from_the_commit(here, autojump_clock):
    """RocketMQ loses such a message; its own clients take the level out."""
    half = here.begin(DELAY="1", WAIT="true")
    here.end(half)
    assert here.stored("T1", 1) == []
    (late,) = here.stored("SCHEDULE_TOPIC_XXXX")
    assert (late.sys_flag, late.prepared_transaction_offset) == (8, half[1])
    assert late.properties.keys() == {
        *("DELAY", "REAL_TOPIC", "REAL_QID", "CLUSTER", "PGROUP", "UNIQ_KEY", "TAGS", "WAIT")
    }
    here.broker.schedule.now_ms = lambda: here.now_ms + 1000
    await here.broker.schedule.deliver_due()
    here.broker.store.dispatch_pending()
    (message,) = here.stored("T1", 1)
    assert (message.body, message.sys_flag, message.prepared_transaction_offset) == (b"hello", 8, 0)


@pytest.mark.parametrize("gives_up", [False, True])
async def test_a_sync_master_answers_when_its_slave_has_the_message(here, autojump_clock, gives_up):
    """Success in every case, as it is stored; a producer that asked oneway hears nothing."""
    broker = here.broker
    broker.store.config = attrs.evolve(broker.store.config, broker_role=BrokerRole.SYNC_MASTER)
    transfer = broker.send.transfer = here.client.table[37].function.__self__.transfer = Waits()
    half = here.begin(WAIT="false")
    assert here.end(half).code == 0, "WAIT=false: at once"
    half = _begin_waiting(here, transfer)
    assert here.end(half) is None
    ((end_offset, _, _),) = transfer.held
    assert end_offset == here.stored("T1", 1)[-1].phy_offset + here.stored("T1", 1)[-1].size
    assert len(here.stored(OP)) == 2
    if gives_up:
        transfer.refuse(PutStatus.FLUSH_SLAVE_TIMEOUT, "too late")
    else:
        transfer.release()
    assert [command.code for command in here.client.connection.sent] == [0]


async def test_a_commit_is_refused_while_too_few_are_in_sync(here, autojump_clock):
    """Nothing is stored, and the half message stays: its producer will be asked."""
    broker = here.broker
    broker.store.config = attrs.evolve(broker.store.config, broker_role=BrokerRole.SYNC_MASTER)
    transfer = broker.send.transfer = here.client.table[37].function.__self__.transfer = Waits()
    half = _begin_waiting(here, transfer)
    transfer.refusal = "in-sync replicas not enough: 1 of 2"
    end = broker.store.max_offset
    refused = here.end(half)
    assert (refused.code, refused.remark, broker.store.max_offset) == (1, transfer.refusal, end)
    transfer.refusal = None
    assert here.end(half) is None


def _begin_waiting(here, transfer):
    """A half message whose answer waits for the slave, too."""
    here.send(WAIT="true")
    assert len(transfer.held) == 1
    transfer.release()
    return here.half_of(here.wire.answers[-1])


# Checks


async def test_an_open_transaction_is_asked_about_when_it_is_old_enough(here, autojump_clock):
    here.begin()
    assert await here.check(5_999) == []
    assert here.offset(HALF) == -1, "nothing is dealt with"
    assert await here.check(1) == [1]
    first, again = here.stored(HALF)
    assert again.properties == {**first.properties, "TRANSACTION_CHECK_TIMES": "1"}
    assert (again.born_timestamp, again.flag, again.sys_flag) == (first.born_timestamp, 0, 0)
    (command,) = here.producer.sent
    assert command.ext == {
        "tranStateTableOffset": "1",
        "commitLogOffset": str(again.phy_offset),
        "msgId": "u",
        "transactionId": "u",
        "offsetMsgId": again.message_id,
    }
    asked = decode_message(command.body)
    assert (asked.topic, asked.queue_id, asked.queue_offset, asked.flag) == ("T1", 1, 1, 7)
    assert (asked.phy_offset, asked.store_timestamp) == (again.phy_offset, first.store_timestamp)
    assert asked.properties == {**again.properties, "WAIT": "false"}
    assert here.offset(HALF) == 1


async def test_what_has_ended_is_passed(here, autojump_clock):
    """Ends come in any order, and behind more than one look at the op queue; the open one between them is asked about."""
    halves = [here.begin() for _ in range(100)]
    for half in reversed(halves[:50] + halves[51:]):
        here.end(half, ROLLBACK)
    assert await here.check(6_000) == [100]
    assert (here.offset(HALF), here.offset(OP)) == (100, 99)
    here.end((100, here.stored(HALF)[100].phy_offset))
    assert await here.check(6_000) == []
    assert (here.offset(HALF), here.offset(OP)) == (101, 100)


async def test_what_was_ended_after_a_young_one_is_remembered(here, autojump_clock):
    """The op offset stays before an op message whose half message is not passed: a restart reads it again."""
    here.begin()
    second = here.begin()
    here.end(second)
    assert await here.check(3_000) == []
    assert (here.offset(HALF), here.offset(OP)) == (-1, -1)
    here.broker.transactions._ended = EndedHalves(0)  # As after a restart.
    assert await here.check(3_000) == [2]
    assert (here.offset(HALF), here.offset(OP)) == (2, 1)


async def test_after_many_checks_it_is_put_aside(here, autojump_clock):
    here.begin(WAIT="true")
    for expected in ([1], [2], [3], [], []):
        assert await here.check(6_000) == expected
    (message,) = here.stored(CHECK_MAX)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "3"
    assert message.properties["WAIT"] == "true"
    assert (message.queue_id, message.body) == (0, b"hello")
    assert here.broker.tables.topics.table[CHECK_MAX].write_queues == 1
    assert here.offset(HALF) == 4


async def test_what_is_older_than_messages_are_kept_is_put_aside(here, autojump_clock):
    here.begin(born=START_MS - 72 * 3_600_000)
    assert await here.check(1) == []
    (message,) = here.stored(CHECK_MAX)
    assert (message.properties["TRANSACTION_CHECK_TIMES"], message.flag) == ("1", 7)


async def test_a_producer_whose_clock_is_ahead_is_asked_at_once(here, autojump_clock):
    here.begin(born=START_MS + 60_000)
    assert await here.check() == [], "stored in the same moment"
    assert await here.check(1) == [1]


async def test_a_message_may_ask_for_more_time(here, autojump_clock):
    """It goes to the end of the queue without a question, so that it holds up nobody; that is no check."""
    here.begin(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    here.begin()
    assert await here.check(6_000) == [3]
    assert await here.check(6_000) == [5]
    copies = [half for half in here.stored(HALF) if "TRAN_PREPARED_QUEUE_OFFSET" in half.properties]
    assert [half.queue_offset for half in copies] == [2, 4]
    assert {half.properties["TRAN_PREPARED_QUEUE_OFFSET"] for half in copies} == {"0"}
    assert {half.properties["WAIT"] for half in copies} == {"false"}
    assert not any("TRANSACTION_CHECK_TIMES" in half.properties for half in copies)
    assert 6 in await here.check(48_000)


@pytest.mark.parametrize("restart", [False, True])
async def test_a_postponed_message_has_ended_when_its_first_copy_has(here, autojump_clock, restart):
    half = here.begin(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    assert await here.check(6_000) == []
    assert here.end(half).code == 0
    young = here.begin()
    here.end(young)
    assert await here.check(1_000) == []
    if restart:
        here.broker.transactions._ended = EndedHalves(max(0, here.offset(OP)))
    assert await here.check(120_000) == []
    assert len(here.stored(HALF)) <= 4
    assert (here.offset(HALF), here.offset(OP)) == (len(here.stored(HALF)), 2)


async def test_without_a_producer_the_next_round_asks(here, autojump_clock):
    here.begin()
    here.producer.close()
    here.broker.tables.producers.connection_closed(here.producer)
    assert await here.check(6_000) == []
    assert len(here.stored(HALF)) == 2, "counted all the same, as RocketMQ does"
    body = heartbeat() | {"producerDataSet": [{"groupName": "P"}], "consumerDataSet": []}
    here.producer = FakeConnection()
    Client(here.broker, here.producer).ask(34, body)
    assert await here.check(6_000) == [2]


async def test_a_store_that_takes_nothing_ends_the_round(here, autojump_clock):
    here.begin()
    here.broker.store.flags.set(StoreCondition.DISK_FULL, "disk full")
    assert await here.check(6_000) == []
    assert here.offset(HALF) == -1
    here.broker.store.flags.clear(StoreCondition.DISK_FULL)
    assert await here.check() == [1]


async def _no_progress(_store):
    """A disk that does not get on."""
    await trio.lowlevel.checkpoint()


async def test_a_round_that_is_not_on_disk_is_not_over(here, autojump_clock, monkeypatch):
    """After a power loss the copy would be gone, and an offset behind the first one would forget the transaction."""
    here.begin()
    with monkeypatch.context() as patched:
        patched.setattr(MessageStore, "flush", _no_progress)
        assert await here.check(6_000) == [1]
        assert here.broker.store.flushed_offset == 0
        assert here.offset(HALF) == -1
        assert await here.check(6_000) == [2], "meanwhile it goes on"
    assert await here.check(6_000) == [3]
    assert here.offset(HALF) == 3


async def test_op_messages_of_5x_name_several(here, autojump_clock):
    for _ in range(4):
        here.begin()
    for body, tags in ((b"2,0,", "d"), (b"nonsense", "d"), (b"1", "x")):
        raw = format_properties({"TAGS": tags}).encode()
        here.broker.store.put([PutMessage(OP, 0, body, raw, 0, 0, 0, HOST, HOST)])
    here.broker.store.dispatch_pending()
    assert await here.check(6_000) == [4, 5]
    assert [message.queue_offset for message in here.stored(HALF)][4:] == [4, 5]
    assert (here.offset(HALF), here.offset(OP)) == (4, 3)


async def test_rounds_go_on_by_themselves(tmp_path, autojump_clock, nursery):
    """The half topic is registered at the first round, not before."""
    async with opened(make_broker(tmp_path, transaction_check_interval_ms=7_000)) as client:
        nursery.start_soon(client.broker.transactions.run)
        await trio.sleep(6.9)
        assert HALF not in client.broker.tables.topics.table
        await trio.sleep(0.2)
        assert client.broker.tables.topics.table[HALF].write_queues == 1
        nursery.cancel_scope.cancel()


async def test_producers_are_asked_in_turn(tmp_path):
    broker = make_broker(tmp_path)
    busy, first, second = (FakeConnection(unsent_bytes=n) for n in (9, 0, 0))
    for connection in (busy, first, second):
        body = heartbeat() | {"producerDataSet": [{"groupName": "P"}], "consumerDataSet": []}
        Client(broker, connection).ask(34, body)
    assert {id(broker.transactions.producer_of("P")) for _ in range(6)} == {id(first), id(second)}
    assert broker.transactions.producer_of("Q") is None


@given(st.lists(st.tuples(st.lists(st.integers(0, 12), max_size=4), st.integers(0, 3)), max_size=12))
def test_the_op_offset_never_passes_what_is_still_needed(steps):
    """Whatever the op messages name: read again from done_offset, they tell of every half message that is not passed."""
    table, position, end, ops = EndedHalves(0), 0, 13, []
    for halves, advance in steps:
        ops.append(halves)
        table.add(len(ops) - 1, halves, position, end)
        position = min(end, position + advance)
        table.passed(position)
        assert 0 <= table.done_offset <= table.next_offset == len(ops)
        fresh = EndedHalves(table.done_offset)
        for offset in range(table.done_offset, len(ops)):
            fresh.add(offset, ops[offset], position, end)
        ended = {half for op in ops for half in op}
        for half in range(position, end):
            assert (half in table) == (half in fresh) == (half in ended)
    table.passed(end)
    assert table.done_offset == len(ops)


def test_bodies_of_op_messages():
    op = Message(topic=OP, queue_id=0, body=b"0,1,31,", properties_raw=b"WAIT\x01true\x02TAGS\x01d\x02")
    assert ended_halves(op) == [0, 1, 31]
    assert ended_halves(attrs.evolve(op, body=b"7")) == [7]
    with pytest.raises(ValueError):
        ended_halves(attrs.evolve(op, body=b"x"))


def test_a_count_that_is_no_number_starts_anew(tmp_path):
    half = Message(topic=HALF, queue_id=0, body=b"", properties_raw=b"TRANSACTION_CHECK_TIMES\x01many")
    rules = make_broker(tmp_path).transactions.rules
    assert judge(half, rules, started_ms=10_000, now_ms=10_000) is HalfVerdict.ASK


async def test_a_half_message_may_still_lie_in_a_buffer(tmp_path, autojump_clock):
    """transientStorePoolEnable: its producer is quicker than the commit of the buffer."""
    broker = make_broker(tmp_path)
    broker.store.config = attrs.evolve(broker.store.config, transient_store_pool_enable=True)
    async with opened(broker) as client:
        broker.tables.topics.update(TopicConfig("T1", 4, 4))
        await broker.tables.topics_writer.save()
        here = Transactions(client, FakeConnection())
        here.begin()
        half = here.begin()
        assert broker.store.max_offset == half[1]
        assert here.end(half).code == 0
        broker.store.commit_pending()
        broker.store.dispatch_pending()
        assert [message.body for message in here.stored("T1", 1)] == [b"hello"]
