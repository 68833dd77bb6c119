"""Batches, many at once, oneway, time limits, transactions, questions and pulling; over the broker in memory."""

import pytest
import trio

from cluster.broker.batch_body import split_batch as broker_split
from cluster.client import (
    Decision,
    From,
    HalfMessageError,
    MessageQueue,
    NoRouteError,
    OutgoingMessage,
    PullConsumer,
    Requester,
    SendResult,
    SendStatus,
    TransactionProducer,
    by_key,
    reply,
)
from cluster.remoting.command import RemotingCommand
from cluster.remoting.errors import RemotingConnectError, RemotingTimeoutError, RequestError
from store.message import Message, body_crc, encode_message
from store.properties import format_properties, parse_properties
from tests.cluster.client.helpers import received_message, request

QUEUE = MessageQueue("T", "b", 0)


@pytest.fixture
def topic(broker):
    broker.topics["T"] = 2
    return "T"


def message(body=b"x", **more):
    return OutgoingMessage(**{"topic": "T", "body": body, **more})


# ---- Sending


async def test_many_at_once_keep_their_order_and_use_one_task(broker, client, topic, autojump_clock):
    results = await client.producer("P").send_all(message(b"%d" % number) for number in range(600))
    assert all(isinstance(each, SendResult) for each in results)
    sent = {parse_properties(each.ext["i"])["UNIQ_KEY"]: bytes(each.body) for each in broker.codes(310)}
    assert [sent[each.message_id] for each in results] == [b"%d" % number for number in range(600)]


async def test_of_many_each_has_its_own_end(broker, client, topic, autojump_clock):
    """One is refused for good, one is tried again, one gets no answer at first."""
    broker.answers[310] = [RemotingCommand(13, remark="no"), RemotingCommand(14, remark="later"), None]
    refused, retried, late = await client.producer("P").send_all([message(b"1"), message(b"2"), message(b"3")])
    assert isinstance(refused, RequestError)
    assert isinstance(retried, SendResult)
    assert isinstance(late, SendResult)
    assert len(broker.codes(310)) == 5


async def test_many_without_a_broker_are_all_errors(broker, client, topic, autojump_clock):
    broker.is_down = True
    results = await client.producer("P", tries_max=1).send_all([message()] * 3)
    assert [type(each) for each in results] == [RemotingConnectError] * 3


async def test_a_time_limit_holds_for_all_tries_together(broker, client, topic, autojump_clock):
    broker.answers[310] = [None] * 9
    with pytest.raises(RemotingTimeoutError, match="1000 ms"):
        await client.producer("P").send(message(), timeout_ms=1000)
    assert trio.current_time() == 1
    broker.answers[310].clear()


async def test_a_chosen_queue_is_tried_once(broker, client, topic, autojump_clock):
    broker.answers[310] = [RemotingCommand(14, remark="later")]
    with pytest.raises(RequestError):
        await client.producer("P").send(message(), select=by_key("k"))
    assert len(broker.codes(310)) == 1


async def test_stored_but_not_safe_may_be_tried_again(broker, client, topic, autojump_clock):
    fields = {"msgId": "F" * 32, "queueId": "0", "queueOffset": "0"}
    broker.answers[310] = [RemotingCommand(11, ext=fields, remark="no slave")]
    result = await client.producer("P", retry_unsafe=True).send(message())
    assert result.status is SendStatus.SEND_OK
    assert len(broker.codes(310)) == 2


async def test_large_bodies_travel_packed(broker, client, topic, autojump_clock):
    await client.producer("P").send(message(bytes(10_000)))
    await client.producer("Q", compress_from=None).send(message(bytes(10_000)))
    packed, plain = broker.codes(310)
    assert (packed.ext["f"], plain.ext["f"]) == (str(0x301), "0")
    assert len(packed.body) < 100 < len(plain.body)


async def test_a_batch_is_as_many_requests_as_it_must_be(broker, client, topic, autojump_clock):
    broker.answers[320] = [RemotingCommand(0, ext={"msgId": "A,B", "queueId": "1", "queueOffset": "4"})] * 9
    results = await client.producer("P").send_batch([message(bytes(400))] * 5, size_max=1200)
    requests = broker.codes(320)
    assert [len(broker_split(each.body)) for each in requests] == [2, 2, 1]
    assert requests[0].ext["m"] == "true"
    assert [len(each.message_id.split(",")) for each in results] == [2, 2, 1]


async def test_oneway_asks_for_no_answer(broker, client, topic, autojump_clock):
    message_id = await client.producer("P").send_oneway(message(), queue=QUEUE)
    await trio.sleep(0.1)
    (sent,) = broker.codes(310)
    assert sent.is_oneway
    assert parse_properties(sent.ext["i"])["UNIQ_KEY"] == message_id


async def test_routes_are_asked_for_again_after_30_seconds(broker, client, topic, autojump_clock):
    producer = client.producer("P")
    assert len(await producer.queues("T")) == 2
    broker.topics["T"] = 5
    assert len(await producer.queues("T")) == 2
    await trio.sleep(31)
    assert len(await producer.queues("T")) == 5


async def test_old_routes_serve_when_no_name_server_answers(broker, client, topic, autojump_clock):
    producer = client.producer("P")
    await producer.send(message())
    broker.answers[105] = [None] * 99
    await trio.sleep(40)
    assert (await producer.send(message())).status is SendStatus.SEND_OK


# ---- Transactions


@pytest.fixture
def transactions(client):
    return TransactionProducer(client, "P", lambda half: Decision.COMMIT if half.body == b"yes" else Decision.ROLLBACK)


async def test_a_transaction_is_committed_at_the_end_of_its_block(broker, transactions, topic, autojump_clock):
    async with transactions.begin(message()) as transaction:
        assert not broker.codes(37)
    await trio.sleep(1)
    (half,), (end,) = broker.codes(310), broker.codes(37)
    assert (half.ext["f"], end.is_oneway) == ("4", True)
    properties = parse_properties(half.ext["i"])
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "P")
    assert end.ext == {
        "producerGroup": "P",
        "tranStateTableOffset": "0",
        "commitLogOffset": "0",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": transaction.result.message_id,
        "transactionId": transaction.result.message_id,
        "bname": "b",
    }


async def test_an_error_rolls_back_and_says_why(broker, transactions, topic, autojump_clock):
    with pytest.raises(KeyError):
        async with transactions.begin(message()):
            raise KeyError("stock")
    await trio.sleep(1)
    (end,) = broker.codes(37)
    assert (end.ext["commitOrRollback"], end.remark) == ("12", "KeyError: 'stock'")


async def test_cancelled_work_is_left_to_the_check(broker, transactions, topic, autojump_clock):
    with trio.move_on_after(1):
        async with transactions.begin(message()):
            await trio.sleep_forever()
    assert not broker.codes(37)


async def test_the_broker_knows_whom_to_ask_before_it_has_the_half_message(broker, transactions, topic, autojump_clock):
    """Also where no topic is made by a message; the name server is not asked for that one again each time."""
    del broker.topics["TBW102"]
    for _ in range(5):
        async with transactions.begin(message()):
            pass
    codes = [each.code for each in broker.asked if each.code in (34, 310)]
    assert codes == [34] + [310] * 5
    assert len([each for each in broker.codes(105) if each.ext["topic"] == "TBW102"]) == 1


@pytest.mark.parametrize(("decision", "code"), [(None, "8"), (Decision.ROLLBACK, "12"), (Decision.UNKNOWN, "0")])
async def test_a_function_decides(broker, transactions, topic, autojump_clock, decision, code):
    async def local(_result):
        return decision

    _, decided = await transactions.send(message(), local)
    await trio.sleep(1)
    assert decided is (decision or Decision.COMMIT)
    assert broker.codes(37)[0].ext["commitOrRollback"] == code


async def test_a_half_message_that_is_not_safe_begins_nothing(broker, transactions, topic, autojump_clock):
    broker.answers[310] = [RemotingCommand(11, ext={"msgId": "F" * 32, "queueId": "0", "queueOffset": "0"})]
    with pytest.raises(HalfMessageError, match="SLAVE_NOT_AVAILABLE"):
        async with transactions.begin(message()):
            raise AssertionError("not reached")
    await trio.sleep(1)
    assert broker.codes(37)[0].ext["commitOrRollback"] == "12"


async def test_delayed_transactions_are_refused(transactions, topic, autojump_clock):
    with pytest.raises(ValueError, match="delayed"):
        async with transactions.begin(message(delay_level=1)):
            pass


def half_record(body: bytes, group: str = "P") -> bytes:
    raw = format_properties({"PGROUP": group, "UNIQ_KEY": "ID", "TRAN_MSG": "true"}).encode()
    return encode_message(Message("T", 0, body, raw, body_crc=body_crc(body)))


@pytest.mark.parametrize(("body", "code"), [(b"yes", "8"), (b"no", "12")])
async def test_the_broker_asks_and_check_answers(broker, client, transactions, topic, autojump_clock, body, code):
    await transactions.producer.send(message())
    await client.introduce()
    fields = {"tranStateTableOffset": "7", "commitLogOffset": "900", "msgId": "ID"}
    await broker.tell("P", client.client_id, request(39, half_record(body), oneway=True, **fields))
    await trio.sleep(1)
    (end,) = broker.codes(37)
    wanted = {"commitOrRollback": code, "fromTransactionCheck": "true", "tranStateTableOffset": "7"}
    assert wanted.items() <= end.ext.items()
    assert (end.ext["commitLogOffset"], end.ext["msgId"]) == ("900", "ID")


async def test_a_check_that_fails_decides_nothing(broker, client, topic, autojump_clock):
    def check(_half):
        raise LookupError("no database")

    transactions = TransactionProducer(client, "P", check)
    await transactions.producer.send(message())
    await client.introduce()
    fields = {"tranStateTableOffset": "7", "commitLogOffset": "900"}
    await broker.tell("P", client.client_id, request(39, half_record(b""), oneway=True, **fields))
    await trio.sleep(1)
    (end,) = broker.codes(37)
    assert (end.ext["commitOrRollback"], end.remark) == ("0", "LookupError: no database")


async def test_every_group_of_a_client_answers_for_itself(broker, client, transactions, topic, autojump_clock):
    other = TransactionProducer(client, "Q", lambda _half: Decision.ROLLBACK)
    await other.producer.send(message())
    await client.introduce()
    for group in ("P", "Q", "nobody"):
        ask = request(39, half_record(b"yes", group), oneway=True, tranStateTableOffset="0", commitLogOffset="0")
        await broker.tell("Q", client.client_id, ask)
    await broker.tell("Q", client.client_id, request(39, b"rubbish", oneway=True))
    await trio.sleep(1)
    assert {each.ext["producerGroup"]: each.ext["commitOrRollback"] for each in broker.codes(37)} == {
        "P": "8",
        "Q": "12",
    }


# ---- Questions


async def test_a_reply_finds_its_question(broker, client, topic, autojump_clock):
    requester = Requester(client, "P")
    replies = []

    async def ask(text):
        replies.append(await requester.request(message(text), timeout_ms=5000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, b"1")
        nursery.start_soon(ask, b"2")
        await trio.sleep(1)
        for asked in reversed(broker.codes(310)):
            properties = parse_properties(asked.ext["i"])
            assert (properties["REPLY_TO_CLIENT"], properties["TTL"]) == (client.client_id, "5000")
            text = format_properties({"CORRELATION_ID": properties["CORRELATION_ID"], "own": "y"})
            push = request(326, b"re: " + bytes(asked.body), opaque=8, properties=text, sysFlag="0")
            await broker.tell("P", client.client_id, push)
    await trio.sleep(1)
    assert {each.body for each in replies} == {b"re: 1", b"re: 2"}
    assert replies[0].properties["own"] == "y"
    assert [each.code for each in broker.told] == [0, 0]


async def test_a_question_nobody_answers_ends_in_time(broker, client, topic, autojump_clock):
    with pytest.raises(RemotingTimeoutError, match="2000 ms"):
        await Requester(client, "P").request(message(), timeout_ms=2000)
    assert trio.current_time() == 2


async def test_a_late_reply_is_taken_and_dropped(broker, client, topic, autojump_clock):
    requester = Requester(client, "P")
    with pytest.raises(RemotingTimeoutError):
        await requester.request(message(), timeout_ms=100)
    await broker.tell("P", client.client_id, request(326, b"late", properties="CORRELATION_ID\x01gone"))
    await trio.sleep(1)
    assert [each.code for each in broker.told] == [0]


async def test_a_reply_goes_to_the_askers_cluster(broker, client, topic, autojump_clock):
    broker.topics["C_REPLY_TOPIC"] = 1
    broker.answers[325] = [RemotingCommand(0, ext={"msgId": "0", "queueId": "0", "queueOffset": "0"})]
    asked = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "them", "TTL": "5", "CLUSTER": "C"}
    await reply(client.producer("P"), received_message(0, properties=asked), b"here", own="y")
    (sent,) = broker.codes(325)
    assert (sent.ext["b"], bytes(sent.body)) == ("C_REPLY_TOPIC", b"here")
    properties = parse_properties(sent.ext["i"])
    assert {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c",
        "REPLY_TO_CLIENT": "them",
        "own": "y",
    }.items() <= properties.items()


async def test_what_asks_for_no_reply_gets_none(client, autojump_clock):
    with pytest.raises(ValueError, match="asks for no reply"):
        await reply(client.producer("P"), received_message(0), b"")


# ---- Pulling


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


async def test_pulls_carry_their_filter(broker, client, topic, autojump_clock):
    """No heartbeat tells the broker what a pull consumer wants."""
    broker.store("T", 0, b"1", tags="a")
    broker.store("T", 0, b"2", tags="b")
    async with PullConsumer(client, "G", start=From.FIRST, wanted="b") as consumer:
        await consumer.assign([QUEUE])
        assert [each.body for each in await consumer.poll()] == [b"2"]
    pull = broker.codes(11)[0]
    assert (pull.ext["subscription"], int(pull.ext["sysFlag"]) & 4) == ("b", 4)
    assert not broker.codes(38, 34)
