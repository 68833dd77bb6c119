"""Transactions: half messages, decisions, and checks by brokers."""

import pytest
import trio

from tests.cluster.client.helpers import message, request
from twinlog.client import (
    Decision,
    HalfMessageError,
    TransactionProducer,
)
from twinlog.cluster.remoting.command import RemotingCommand
from twinlog.store.record.message import Message, body_crc, encode_message
from twinlog.store.record.properties import format_properties, parse_properties


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
    """Also where topics are not created automatically; that route is not requested each time."""
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
