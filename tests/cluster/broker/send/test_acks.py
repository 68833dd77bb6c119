"""Answers that wait: sent as they are, or rewritten to say what went wrong."""

import pytest

from tests.cluster.broker.sending import Waits, Wire
from tests.store.sinks import Sink
from twinlog.cluster.broker.send.acks import CODES, BothAcks, ProducerAcks
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import JSON, ROCKETMQ, RemotingCommand, encode
from twinlog.store.log.offset_waiters import PutStatus

FIELDS = {"msgId": "7F", "queueId": "3", "queueOffset": "9", "MSG_REGION": "R", "TRACE_ON": "true"}


def success(opaque, serialize_type=JSON):
    return encode(RemotingCommand(0, opaque, 1, dict(FIELDS), serialize_type=serialize_type))


def test_answers_go_out_in_one_write():
    wire = Wire()
    ProducerAcks(wire).answer([success(n) for n in range(5)])
    assert wire.writes == 1
    assert [answer.opaque for answer in wire.answers] == list(range(5))


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ])
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.FLUSH_DISK_TIMEOUT, 10),
        (PutStatus.SLAVE_NOT_AVAILABLE, 11),
        (PutStatus.FLUSH_SLAVE_TIMEOUT, 12),
    ],
)
def test_refusals_keep_the_message_id_and_say_why(status, code, serialize_type):
    """The message is stored: its producer gets the place, with another code."""
    wire = Wire()
    ProducerAcks(wire).refuse([success(n, serialize_type) for n in (7, 8)], status, "no slave at 10.0.0.2: größer")
    assert wire.writes == 1
    assert [(a.code, a.opaque, a.flag, a.serialize_type) for a in wire.answers] == [
        (code, 7, 1, serialize_type),
        (code, 8, 1, serialize_type),
    ]
    assert wire.answers[0].ext == FIELDS
    assert wire.answers[0].remark == "no slave at 10.0.0.2: größer"


def test_every_status_has_a_code():
    assert set(CODES) == set(PutStatus)
    assert CODES[PutStatus.PUT_OK] is ResponseCode.SUCCESS


FLUSH = PutStatus.FLUSH_DISK_TIMEOUT, "disk"
SLAVE = PutStatus.FLUSH_SLAVE_TIMEOUT, "slave"


@pytest.mark.parametrize("disk_first", [True, False])
@pytest.mark.parametrize(
    ("disk", "slave", "refusal"),
    [(None, None, None), (FLUSH, None, FLUSH), (None, SLAVE, SLAVE), (FLUSH, SLAVE, SLAVE)],
)
def test_disk_and_replica_both_count(disk, slave, refusal, disk_first):
    """Answered once, when both have spoken; the replica's refusal counts more. Source: CommitLog.handleDiskFlushAndHA."""
    sink, flush, transfer = Sink(), Waits(), Waits()
    both = BothAcks(sink, b"frame")
    for service in (flush, transfer):
        service.wait(500, both, b"frame")
    assert [held[0] for held in flush.held + transfer.held] == [500, 500]
    steps = [(flush, disk), (transfer, slave)]
    for number, (service, answer) in enumerate(steps if disk_first else reversed(steps)):
        assert (sink.answered, sink.refused) == ([], []), number
        if answer is None:
            service.release()
        else:
            service.refuse(*answer)
    if refusal is None:
        assert (sink.answered, sink.refused) == ([[b"frame"]], [])
    else:
        assert (sink.answered, sink.refused) == ([], [([b"frame"], *refusal)])
