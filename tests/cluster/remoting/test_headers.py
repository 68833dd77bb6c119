"""Header classes: typed in Python, RocketMQ's names and texts on the wire."""

from typing import get_args, get_type_hints

import attrs
import pytest

from twinlog.cluster.remoting.codes import RequestCode, ResponseCode
from twinlog.cluster.remoting.errors import HeaderError
from twinlog.cluster.remoting.header_fields import (
    decode_header,
    encode_header_fields,
    wire_names,
)
from twinlog.cluster.remoting.headers.clients import HeartBeat, ResetConsumerClientOffset, UnregisterClient
from twinlog.cluster.remoting.headers.messages import PullMessage, QueryMessage, SendMessage, SendMessageV2
from twinlog.cluster.remoting.headers.namesrv import GetRouteInfoByTopic, RegisterBroker
from twinlog.cluster.remoting.headers.offsets import GetMaxOffset
from twinlog.cluster.remoting.headers.responses import SendMessageResponse
from twinlog.cluster.remoting.headers.table import HEADERS, REQUESTS, RESPONSES

CLASSES = [*HEADERS, *RESPONSES]

PULL = {
    "consumerGroup": "CG1",
    "topic": "T1",
    "queueId": "2",
    "queueOffset": "9000000000",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1795265733087",
    "expressionType": "TAG",
}


def test_every_code_has_a_header_class():
    assert set(RequestCode) == set(REQUESTS)


def test_no_two_classes_share_a_code():
    assert len(REQUESTS) == len(HEADERS)


@pytest.mark.parametrize("cls", CLASSES)
def test_wire_names_are_distinct(cls):
    names = wire_names(cls)
    assert len(set(names.values())) == len(names) == len(attrs.fields(cls))


@pytest.mark.parametrize("cls", CLASSES)
def test_every_header_survives_the_wire(cls):
    """Each field full, and each optional one left out."""
    samples = {str: "x", bool: True, int: 7}
    hints = get_type_hints(cls)
    kinds = {field: next(kind for kind in get_args(hints[field]) or (hints[field],)) for field in wire_names(cls)}
    full = cls(**{field: samples[kind] for field, kind in kinds.items()})
    assert decode_header(cls, encode_header_fields(full)) == full
    required = {field.name for field in attrs.fields(cls) if field.default is attrs.NOTHING}
    bare = cls(**{field: samples[kind] for field, kind in kinds.items() if field in required})
    assert decode_header(cls, encode_header_fields(bare)) == bare


def test_a_pull_decodes():
    header = decode_header(PullMessage, PULL | {"maxMsgBytes": "262144", "nsd": "true"})
    assert header == PullMessage(
        consumer_group="CG1",
        topic="T1",
        queue_id=2,
        queue_offset=9_000_000_000,
        max_msg_nums=32,
        sys_flag=2,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=1_795_265_733_087,
        expression_type="TAG",
        max_msg_bytes=262_144,
    )
    assert encode_header_fields(header) == PULL | {"maxMsgBytes": "262144"}


def test_long_and_short_names_of_a_send_decode_to_the_same_attributes():
    values = ["PG", "T", "TBW102", "4", "1", "0", "1795264882391", "0", "p", "3", "true", "16", "true", "broker-a"]
    short = decode_header(SendMessageV2, dict(zip("abcdefghijklmn", values, strict=True)))
    long = decode_header(SendMessage, dict(zip(wire_names(SendMessage).values(), values, strict=True)))
    assert attrs.asdict(short) == attrs.asdict(long)
    assert (short.max_reconsume_times, short.batch, short.unit_mode) == (16, True, True)


def test_missing_optional_fields_of_a_send():
    """5.x leaves k and m out, every client but a retrying consumer leaves l out."""
    required = dict(zip("abcdefgh", ["PG", "T", "TBW102", "4", "1", "0", "1", "0"], strict=True))
    header = decode_header(SendMessageV2, required)
    assert (header.properties, header.reconsume_times, header.max_reconsume_times) == (None, None, None)
    assert (header.unit_mode, header.batch) == (False, False)


def test_requests_without_fields_take_anything():
    assert decode_header(HeartBeat, None) == decode_header(HeartBeat, {"AccessKey": "k"}) == HeartBeat()


def test_odd_wire_names():
    assert encode_header_fields(UnregisterClient("c", producer_group="g")) == {"clientID": "c", "producerGroup": "g"}
    assert encode_header_fields(QueryMessage("t", "k", 1, 2, 3, True))["_UNIQUE_KEY_QUERY"] == "true"
    assert encode_header_fields(RegisterBroker("n", "a", "c", "h", 0))["bodyCrc32"] == "0"
    assert decode_header(
        SendMessageResponse, {"msgId": "m", "queueId": "1", "queueOffset": "2", "TRACE_ON": "true"}
    ).trace_on


@pytest.mark.parametrize("text", ["true", "True", "TRUE"])
def test_booleans_are_read_as_java_does(text):
    assert decode_header(GetRouteInfoByTopic, {"topic": "T", "acceptStandardJsonOnly": text}).accept_standard_json_only
    assert not decode_header(
        GetRouteInfoByTopic, {"topic": "T", "acceptStandardJsonOnly": "1"}
    ).accept_standard_json_only


def test_go_sends_unset_numbers_as_empty_text():
    assert decode_header(PullMessage, PULL | {"maxMsgBytes": ""}).max_msg_bytes is None


@pytest.mark.parametrize("missing", ["topic", "queueId"])
def test_a_missing_field_is_named_as_rocketmq_does(missing):
    ext = {name: value for name, value in {"topic": "T", "queueId": "0"}.items() if name != missing}
    with pytest.raises(HeaderError) as caught:
        decode_header(GetMaxOffset, ext)
    assert (caught.value.code, caught.value.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"the custom field <{missing}> is null",
    )
    with pytest.raises(HeaderError, match="<topic> is null"):
        decode_header(GetMaxOffset, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "x1",
        " 1",
        "-",
        "-+1",
        "1 ",
        "1_0",
        "1.0",
        "0x1",
        "--1",
        "²",
        "٣",
        "2147483648",
        "-2147483649",
        "9" * 400,
    ],
)
def test_numbers_must_be_plain_and_in_range(text):
    with pytest.raises(HeaderError, match='the custom field <queueId> is not a number in range: "'):
        decode_header(GetMaxOffset, {"topic": "T", "queueId": text})


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("-1", -1), ("+7", 7), ("007", 7), ("2147483647", 2**31 - 1)])
def test_numbers_as_java_reads_them(text, value):
    assert decode_header(GetMaxOffset, {"topic": "T", "queueId": text}).queue_id == value


def test_long_numbers_have_64_bits():
    ext = {"topic": "T", "group": "g", "timestamp": str(2**63 - 1), "isForce": "true"}
    assert decode_header(ResetConsumerClientOffset, ext).timestamp == 2**63 - 1
    with pytest.raises(HeaderError, match="timestamp"):
        decode_header(ResetConsumerClientOffset, ext | {"timestamp": str(2**63)})
