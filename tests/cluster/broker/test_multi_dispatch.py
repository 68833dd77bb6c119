"""Nobody but a broker says in which further queues a message lies: what clients say of it is taken out wherever they send."""

import pytest
from attrs import evolve

from tests.cluster.broker.sending import Producer, make_parts
from twinlog.cluster.broker.delay.records import delivered
from twinlog.cluster.broker.processors.send_back import sent_back
from twinlog.cluster.broker.transactions.records import asked_again, committed
from twinlog.store.record.message import Message
from twinlog.store.record.properties import DISPATCH, without_dispatch

FORGED = "INNER_MULTI_DISPATCH\x01Orders\x02INNER_MULTI_QUEUE_OFFSET\x010"
LEVELS = (1_000, 5_000)


@pytest.fixture
def producer(tmp_path):
    return Producer(make_parts(tmp_path))


def is_clean(properties: bytes) -> bool:
    return b"INNER_MULTI" not in properties


@pytest.mark.parametrize("more", ["", "\x02UNIQ_KEY\x01u", "\x02DELAY\x011", "\x02TRAN_MSG\x01true\x02PGROUP\x01g"])
def test_a_send(producer, more):
    command = producer.command(properties=FORGED + more)
    for _ in range(2):  # The second time the way to write these names is known.
        (answer,) = producer.send(command)
        assert answer.code == 0, answer.remark
    assert all(is_clean(message.properties_raw) for message in producer.stored())
    assert all(("UNIQ_KEY" in message.properties) == ("UNIQ_KEY" in more) for message in producer.stored())


def test_a_batch(producer):
    own = b"A\x01b\x02" + FORGED.encode()
    body = bytes(16) + len(own).to_bytes(2) + own
    body = (len(body) + 4).to_bytes(4) + body
    (answer,) = producer.send(producer.command(body=body, code=320, m="true", properties=FORGED))
    assert answer.code == 0, answer.remark
    (message,) = producer.stored()
    assert (message.properties["A"], is_clean(message.properties_raw)) == ("b", True)


def stored(producer, properties: str) -> Message:
    """As a RocketMQ broker may have left it."""
    producer.send(producer.command(properties="UNIQ_KEY\x01u"))
    (message,) = producer.stored()
    return evolve(message, properties_raw=f"{properties}\x02{FORGED}".encode())


def test_copies(producer):
    message = stored(producer, "REAL_TOPIC\x01T1\x02REAL_QID\x010")
    copies = [
        sent_back(message, "%RETRY%G", 0, 0, LEVELS, 0),
        sent_back(message, "%RETRY%G", 0, 2, LEVELS, 0),
        committed(message, LEVELS, 0),
        asked_again(message),
        delivered(message),
    ]
    assert all(is_clean(copy.properties) and b"REAL_TOPIC" in copy.properties for copy in copies)


def test_what_has_none_stays_the_very_bytes():
    raw = b"A\x01INNER\x02\x02B"
    assert without_dispatch(raw) is raw
    assert without_dispatch(b"INNER_MULTI_X\x01a\x02") == b"INNER_MULTI_X\x01a\x02"
    assert {name.encode() for name in DISPATCH} == {b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET"}
