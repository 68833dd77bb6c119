"""fastjson's dialect: everything that RocketMQ writes can be read, and RocketMQ reads what twinlog writes."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.cluster.remoting.fastjson import (
    ODD_SIZE_MAX,
    FastjsonError,
    ObjectKey,
    dumps,
    dumps_ascii,
    loads,
    pretty,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5))
QUEUE = {"brokerName": "broker-a", "queueId": 0, "topic": "T1"}


@given(VALUES)
def test_standard_json_is_read(value):
    assert loads(json.dumps(value)) == value
    assert loads(json.dumps(value, indent=1, ensure_ascii=False).encode()) == value
    assert loads(dumps(value)) == value
    assert loads(pretty(value)) == value


@given(st.dictionaries(st.integers(-(2**31), 2**31), VALUES, min_size=1, max_size=4))
def test_int_keys_are_written_bare_and_read_as_text(table):
    value = {"before": "{0:1}", "table": table, 'a"b\\': [{7: "\\"}]}
    wanted = {"before": "{0:1}", "table": {str(key): item for key, item in table.items()}, 'a"b\\': [{"7": "\\"}]}
    assert loads(dumps(value)) == wanted
    assert loads(pretty(value)) == wanted


def test_tables_of_real_brokers():
    text = '{"offsetTable":{"%RETRY%CG1@CG1":{0:2},"T1@CG1":{0:6,1:5,2:4,3:5}}}'
    table = {"%RETRY%CG1@CG1": {0: 2}, "T1@CG1": {0: 6, 1: 5, 2: 4, 3: 5}}
    assert dumps({"offsetTable": table}) == text.encode()
    assert loads(text)["offsetTable"]["T1@CG1"] == {"0": 6, "1": 5, "2": 4, "3": 5}


def test_object_keys():
    text = '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T1"}:5}}'
    key = ObjectKey.of(QUEUE)
    assert loads(text) == {"offsetTable": {key: 5}}
    assert dumps({"offsetTable": {key: 5}}) == text.encode()
    assert dumps(loads(text)) == text.encode()
    (read,) = loads('{{ "topic":"T1", "queueId" : 0, brokerName:"broker-a" } : 5}')
    assert json.loads(read) == QUEUE
    assert read == key
    assert loads("{{{1:2}:3}:4}") == {'{"{\\"1\\":2}":3}': 4}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a:1,$b_2:'x'}", {"a": 1, "$b_2": "x"}),
        ('{\'a\':"it\'s", "b":\'say "hi"\'}', {"a": "it's", "b": 'say "hi"'}),
        ("[1,2,]", [1, 2]),
        ("{a:1,}", {"a": 1}),
        ("{/* one */ a : 1, // two\n b:2}", {"a": 1, "b": 2}),
        ("{-5:true,1795264829652:null}", {"-5": True, "1795264829652": None}),
        (r"{a:'\u00e9\ud83d\ude00\n\t\/\'\\'}", {"a": "é😀\n\t/'\\"}),
        (r"{a:'\ud83d'}", {"a": "�"}),
        ("{a:-0.5e3,b:1E2}", {"a": -500.0, "b": 100.0}),
        ("{a:123456789012345678901234567890}", {"a": 123456789012345678901234567890.0}),
        ("{0:{},1:[]}", {"0": {}, "1": []}),
        ('{"a":1,"a":2}', {"a": 2}),
        ("{0:1,0:2}", {"0": 2}),
        ("{a:1,a:2}", {"a": 2}),
        ("  {a:true}  ", {"a": True}),
    ],
)
def test_the_dialect(text, value):
    assert loads(text) == value
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1 column 1: .*found the end"),
        ("{", "found the end"),
        ("{a", "':' expected, found the end"),
        ("{a:1", "',' expected, found the end"),
        ("{a:1\n b:2}", "line 2 column 2: ',' expected, found 'b:2}'"),
        ("[1 2]", "',' expected"),
        ("{a:}", "expected, found '}'"),
        ("{a:nul}", "column 4: a value expected, found 'nul}'"),
        ("{a:1}}", "the end expected"),
        ("{a:'x}", "a closing ' expected"),
        (r"{a:'\x'}", "an escape expected"),
        (r"{a:'\u12'}", "an escape expected"),
        ("{a:'\\", "an escape expected"),
        ("{a:-}", "a number expected"),
        ("{a:NaN}", "a value expected"),
        ("{,}", "a name or a value expected"),
        ("{a:1,,b:2}", "a name or a value expected"),
        ("/* {a:1}", "a name or a value expected"),
        ("{a:" + "9" * 5000 + "}", "a number expected"),
        ("{a:" + "[" * 33, "nested deeper than 32"),
        ("{" * 100, "nested deeper than 32"),
        ("[" * 100_000, "nested deeper than 32"),
        ("[" * 33 + "]" * 33, "nested deeper than 32"),
        ('{"a":' * 40 + "1" + "}" * 40, "nested deeper than 32"),
        ("{0:1," + " " * ODD_SIZE_MAX + "a:1}", "at most 4194304 are read"),
        (b"{a:'\xff'}", "not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named(text, reason):
    with pytest.raises(FastjsonError, match=reason):
        loads(text)


@given(st.text("{}[]:,'\"\\u0129 ab/*-.\n", max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        loads(text)
    except FastjsonError:
        return


def test_thirty_two_levels_are_read():
    assert loads("[" * 32 + "]" * 32) == json.loads("[" * 32 + "]" * 32)
    assert loads("{a:" * 32 + "1" + "}" * 32)


def test_pretty_is_what_rocketmq_writes():
    value = {
        "dataVersion": {"counter": 7, "timestamp": 1795264812146},
        "offsetTable": {"T@CG": {0: 1, 1: 1}, "E@CG": {}},
        "list": [22, 51],
        "name": "é",
    }
    assert pretty(value) == (
        '{\n\t"dataVersion":{\n\t\t"counter":7,\n\t\t"timestamp":1795264812146\n\t},\n'
        '\t"offsetTable":{\n\t\t"T@CG":{0:1,1:1\n\t\t},\n\t\t"E@CG":{}\n\t},\n\t"list":[22,51],\n\t"name":"é"\n}'
    )
    assert pretty({}) == "{}"


def test_ascii_routes_sort_their_keys():
    assert dumps_ascii({"b": {1: "x", 0: "é😀"}, "a": []}) == b'{"a":[],"b":{"0":"\\u00E9\\uD83D\\uDE00","1":"x"}}'


def test_large_tables_are_read_quickly():
    """A slave fetches all consumer offsets every few seconds: unquoted keys alone must not take the slow path."""
    table = {"offsetTable": {f"topic-{n}@group": dict.fromkeys(range(16), n) for n in range(5_000)}}
    text = dumps(table)
    started = time.process_time()
    assert len(loads(text)["offsetTable"]) == 5_000
    assert time.process_time() - started < 1.5
