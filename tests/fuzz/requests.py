"""Requests that nobody in his right mind would send: typed from the header classes, so that they get past the header."""

import json
from typing import Any, get_args, get_type_hints

import attrs
from hypothesis import strategies as st

from twinlog.cluster.remoting.command import ONEWAY, RemotingCommand
from twinlog.cluster.remoting.header_fields import RequestHeader, wire_names

EVIL_NAMES = [
    "../../evil",
    "..",
    ".",
    "a/b",
    "/etc/passwd",
    "a\\b",
    "a\x00b",
    "%RETRY%../x",
    "%LMQ%a/1",
    "x" * 128,
    "x" * 40_000,
]
NAMES = [
    "T1",
    "G",
    "%RETRY%G",
    "%DLQ%G",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "broker-a",
    "DefaultCluster",
    "c1",
    "*",
    "",
    " ",
    "ü\ud800",
]
NUMBERS = [
    "0",
    "1",
    "-1",
    "3",
    "7",
    "65536",
    "2147483647",
    "-2147483648",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
]
PROPERTIES = [
    "DELAY\x013\x02",
    "DELAY\x01x\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01P\x02",
    "TAGS\x01A\x02KEYS\x01a b\x02",
    "WAIT\x01false\x02",
]
EXPRESSIONS = ["*", "A || B", "||", "a > 1", "a IN (", "TRUE", "(" * 500]

names = st.one_of(st.sampled_from(NAMES + EVIL_NAMES), st.text(max_size=20))
texts = st.one_of(names, st.sampled_from(PROPERTIES + EXPRESSIONS + NUMBERS), st.text(max_size=100))
numbers = st.one_of(
    st.sampled_from(NUMBERS), st.integers(-10, 100).map(str), st.sampled_from(["", "x", "1e3", " 1", "٣"])
)
booleans = st.sampled_from(["true", "false", "TRUE", "", "x"])

KEYS = [
    "clientID",
    "clientId",
    "consumerDataSet",
    "producerDataSet",
    "groupName",
    "subscriptionDataSet",
    "topic",
    "subString",
    "expressionType",
    "tagsSet",
    "codeSet",
    "subVersion",
    "classFilterMode",
    "consumeType",
    "messageModel",
    "consumeFromWhere",
    "unitMode",
    "consumerGroup",
    "mqSet",
    "brokerName",
    "queueId",
    "group",
    "subscriptionData",
    "offsetTable",
    "topicConfigTable",
    "topicConfigSerializeWrapper",
    "dataVersion",
    "timestamp",
    "counter",
    "filterServerList",
    "retryMaxTimes",
    "retryQueueNums",
    "brokerId",
    "consumeEnable",
    "op",
    "epoch",
    "table",
    "topicName",
    "readQueueNums",
    "perm",
    "topicQueueMappingInfoMap",
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    names,
    st.sampled_from(["CLUSTERING", "TAG", "SQL92"]),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(st.sampled_from(KEYS), names), inner, max_size=6)
    ),
    max_leaves=12,
)
subscriptions = st.fixed_dictionaries(
    {"topic": names, "subString": texts, "subVersion": st.one_of(st.integers(-5, 5), scalars)},
    optional={"expressionType": scalars, "tagsSet": values, "codeSet": values, "classFilterMode": scalars},
)
consumers = st.fixed_dictionaries(
    {"groupName": names, "subscriptionDataSet": st.lists(subscriptions, max_size=3)},
    optional={"consumeType": scalars, "messageModel": scalars, "consumeFromWhere": scalars, "unitMode": scalars},
)
heartbeats = st.fixed_dictionaries(
    {"clientID": names, "consumerDataSet": st.lists(consumers, max_size=3)},
    optional={"producerDataSet": st.lists(st.fixed_dictionaries({"groupName": names}), max_size=3)},
)
queues = st.fixed_dictionaries({"topic": names, "brokerName": names, "queueId": st.one_of(st.integers(-2, 9), scalars)})
locks = st.fixed_dictionaries({"consumerGroup": names, "clientId": names, "mqSet": st.lists(queues, max_size=3)})
clients = st.fixed_dictionaries({"clientId": names, "group": names, "subscriptionData": subscriptions})
groups = st.fixed_dictionaries(
    {"groupName": names}, optional={"retryMaxTimes": scalars, "brokerId": scalars, "consumeEnable": scalars}
)
topic_entries = st.fixed_dictionaries(
    {"topicName": names}, optional={"readQueueNums": scalars, "perm": scalars, "order": scalars}
)
tables = st.fixed_dictionaries(
    {
        "topicConfigSerializeWrapper": st.fixed_dictionaries(
            {
                "topicConfigTable": st.dictionaries(names, st.one_of(topic_entries, values), max_size=4),
                "dataVersion": st.one_of(st.fixed_dictionaries({"timestamp": scalars, "counter": scalars}), values),
            }
        )
    }
)
packed = st.builds(  # One message of a batch, with lengths that may lie.
    lambda size, crc, flag, body, length, properties: b"".join(
        part if isinstance(part, bytes) else part.to_bytes(4, signed=True)
        for part in (size, 0, crc, flag, length, body, len(properties).to_bytes(2), properties)
    ),
    st.integers(-(2**31), 2**31 - 1) | st.integers(0, 200),
    st.integers(-5, 5),
    st.integers(-5, 5),
    st.binary(max_size=20),
    st.integers(-5, 30),
    st.binary(max_size=20),
)


def to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


bodies = st.one_of(
    st.just(b""),
    st.binary(max_size=100),
    packed,
    st.one_of(heartbeats, locks, clients, groups, tables, values).map(to_json),
    st.lists(st.tuples(names, texts), max_size=4).map(
        lambda pairs: "\n".join(f"x{k}={v}" for k, v in pairs).encode("utf-8", "replace")
    ),
)


def kinds(header: type[RequestHeader]) -> dict[str, tuple[type, bool]]:
    """Wire name to the type of its value, and whether it has to be there."""
    hints, found = get_type_hints(header), {}
    for attribute, wire in wire_names(header).items():
        hint = hints[attribute]
        kind = next((each for each in get_args(hint) if each is not type(None)), hint)
        found[wire] = (kind, getattr(attrs.fields(header), attribute).default is attrs.NOTHING)
    return found


_BY_KIND = {str: texts, int: numbers, bool: booleans}


def fields_of(header: type[RequestHeader]) -> st.SearchStrategy[dict[str, str]]:
    """Most often all that is required, of the right type; sometimes anything."""
    found = kinds(header)
    required = {wire: _BY_KIND[kind] for wire, (kind, needed) in found.items() if needed}
    optional = {wire: _BY_KIND[kind] for wire, (kind, needed) in found.items() if not needed}
    sound = st.fixed_dictionaries(required, optional=optional)
    odd = st.dictionaries(st.one_of(st.sampled_from([*found, "twinlogFrom"]), names), texts, max_size=8)
    return st.one_of(sound, sound, sound, odd)


def commands(headers: list[type[RequestHeader]]) -> st.SearchStrategy[RemotingCommand]:
    """Requests with these headers."""
    one = [
        st.builds(
            lambda ext, body, flag, version, code=header.code: RemotingCommand(
                code, flag=flag, ext=ext, body=body, version=version
            ),
            fields_of(header),
            bodies,
            st.sampled_from([0, 0, 0, ONEWAY]),
            st.sampled_from([409, 0, 37, 401, 2**31 - 1]),
        )
        for header in headers
    ]
    return st.one_of(one)
