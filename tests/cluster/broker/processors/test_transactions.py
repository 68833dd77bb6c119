"""Ends of transactions, and half messages whose producers are to be asked again."""

import pytest

from tests.cluster.broker.helpers import opened, put
from tests.cluster.broker.parts import make_parts
from twinlog.cluster.remoting import names
from twinlog.store.config import BrokerRole
from twinlog.store.record.message import decode_message


@pytest.fixture
async def client(tmp_path):
    parts = make_parts(tmp_path / "broker-a-0")
    async with opened(parts.serve(parts.transactions())) as client:
        yield client


@pytest.fixture
async def slave(tmp_path):
    parts = make_parts(tmp_path / "broker-a-1", BrokerRole.SLAVE)
    async with opened(parts.serve(parts.transactions())) as client:
        yield client


async def test_a_transaction_that_never_began_cannot_end(client, slave):
    fields = {
        "producerGroup": "P",
        "tranStateTableOffset": 0,
        "commitLogOffset": 0,
        "commitOrRollback": 8,
        "msgId": "x",
    }
    assert client.ask(37, **fields).code == 1
    assert slave.ask(37, **fields).code == 11


def half(broker, topic=names.CHECK_MAX_TIME_TOPIC, **properties):
    properties = {"REAL_TOPIC": "T1", "REAL_QID": "0", "TRANSACTION_CHECK_TIMES": "15", **properties}
    result = put(broker, topic, properties=properties)
    return f"7F00000100002A9F{result.phy_offset:016X}"


@pytest.mark.parametrize("topic", [names.CHECK_MAX_TIME_TOPIC, names.HALF_TOPIC])
async def test_a_transaction_is_asked_about_again(client, topic):
    message_id = half(client.broker, topic)
    assert client.ask(323, msgId=message_id).code == 0
    client.broker.store.dispatch_pending()
    queue = client.broker.store.queue(names.HALF_TOPIC, 0)
    message = decode_message(client.broker.store.message_of(names.HALF_TOPIC, 0, queue.max_offset - 1))
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "0"
    assert message.properties["REAL_TOPIC"] == "T1"
    assert message.body == b"hello"


async def test_other_messages_do_not_become_half_ones(client):
    result = put(client.broker)
    reply = client.ask(323, msgId=f"7F00000100002A9F{result.phy_offset:016X}")
    assert (reply.code, "not a half message" in reply.remark) == (1, True)
    assert client.broker.store.queue(names.HALF_TOPIC, 0).max_offset == 0


@pytest.mark.parametrize(
    "message_id",
    ["", "x", "7F00000100002A9F" + "F" * 16, "7F00000100002A9F" + "0" * 16, "Z" * 32, "²" * 32, "0x" * 16, "A" * 10**6],
)
async def test_half_messages_that_are_not_there(client, message_id):
    assert client.ask(323, msgId=message_id).code == 1
    assert client.ask(323).code == 1


async def test_a_slave_asks_about_no_transaction(slave):
    assert slave.ask(323, msgId="7F00000100002A9F" + "0" * 16).code == 1
