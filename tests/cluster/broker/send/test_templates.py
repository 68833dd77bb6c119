"""Sends read by a template, against decode() and read_plain(): the same message, or left to them."""

import json
import lzma
from base64 import b64decode
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.broker.sending import Producer, Wire, make_parts
from twinlog.cluster.broker.roles.gate import Gate
from twinlog.cluster.broker.send import layouts, templates
from twinlog.cluster.broker.send.requests import Send
from twinlog.cluster.broker.tables.topics import TopicConfig
from twinlog.cluster.remoting.command import JSON, ROCKETMQ, decode, encode
from twinlog.cluster.remoting.errors import RemotingProtocolError

WIRE = Path(__file__).parents[3] / "golden" / "wire"
PROPERTIES = "UNIQ_KEY\x017F000001\x02WAIT\x01true\x02TAGS\x01TagA"


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    parts = make_parts(tmp_path_factory.mktemp("store"))
    for name in ("T1", "TopicA", "TopicB", "TopicC", "TopicAuto"):
        parts.topics.table[name] = TopicConfig(name, 4, 4)
    return parts


@pytest.fixture
def producer(parts):
    return Producer(parts)


def frame_of(command):
    return encode(command)[4:]


def carefully(producer, wire, frame):
    """The send that decode() and read_plain() make of a frame."""
    return producer.processor.requests.read_plain(wire, decode(frame))


def learnt(producer, frame, wire=None):
    """A connection, and the reader of its frames, which has seen this one often enough."""
    found = producer.processor.templates
    wire = wire or Wire()
    read = found.reader(wire)
    assert [read(frame) for _ in range(templates.LEARN_AFTER)] == [None] * templates.LEARN_AFTER
    return wire, read


def assert_same(producer, wire, frame, got):
    wanted = carefully(producer, wire, frame)
    assert (got.message, got.queue_id, got.wait) == (wanted.message, wanted.queue_id, wanted.wait)
    command, whole = got.command, wanted.command
    assert (command.code, command.opaque, command.flag, command.ext) == (whole.code, whole.opaque, whole.flag, None)
    assert (command.version, command.language) == (whole.version, whole.language)
    assert decode(command.body) == whole


@pytest.mark.parametrize("form", [JSON, ROCKETMQ])
def test_the_next_messages_of_a_producer_are_read_by_its_template(producer, form):
    first = producer.command(properties=PROPERTIES, g=1_600_000_000_000, serialize_type=form)
    wire, read = learnt(producer, frame_of(first))
    for queue, tag, body in ((0, "TagA", b"hello"), (3, "Tag-B~ %s 标签", b""), (1, "!", b"x" * 2000)):
        properties = PROPERTIES.replace("TagA", tag).replace("7F", "AB")
        command = producer.command(body=body, properties=properties, e=queue, g=1_700_000_000_123, serialize_type=form)
        frame = frame_of(command)
        assert_same(producer, wire, memoryview(frame), read(memoryview(frame)))


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_requests_of_real_clients_have_templates(producer, version):
    """All that a DefaultMQProducer sent to a real broker, each as if it had sent it again and again."""
    plain = by_template = 0
    lines = lzma.decompress((WIRE / f"rocketmq-{version}-broker.jsonl.xz").read_bytes()).splitlines()
    for record in map(json.loads, lines):
        if record["dir"] != ">" or not record["header"].startswith('{"code":310,'):
            continue
        header = record["header"].encode()
        frame = len(header).to_bytes(4) + header + b64decode(record.get("body_b64", ""))
        wire = Wire()
        if carefully(producer, wire, frame) is None:
            continue
        _, read = learnt(producer, frame, wire)
        plain += 1
        if (send := read(frame)) is not None:
            by_template += 1
            assert_same(producer, wire, frame, send)
    assert by_template == plain > 100


_TEXTS = st.text('abZ09 !%#[]~é"\\\x00\x01\x02\x1f', max_size=6)
_NAMES = st.sampled_from(
    ["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "CLUSTER", "DELAY", "a", "b%", 'q"', "é", "INNER_MULTI_DISPATCH"]
)
_PROPERTIES = st.builds(
    lambda pairs, end: "\x02".join(f"{name}\x01{value}" for name, value in pairs) + end,
    st.lists(st.tuples(_NAMES, st.one_of(st.sampled_from(["true", "false", "1"]), _TEXTS)), max_size=6),
    st.sampled_from(["", "", "\x02", "\x02\x02"]),
)
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "e": st.sampled_from(["0", "3", "4", "003", "-1", "99999", "x", ""]),
        "f": st.sampled_from(["0", "1", "8", "16"]),
        "g": st.sampled_from(["1", "0017", "1700000000123", "-5", "9" * 19, "1e3"]),
        "h": st.sampled_from(["0", "7"]),
        "j": st.sampled_from(["0", "2"]),
        "m": st.sampled_from(["false", "true"]),
        "n": st.sampled_from(["broker-a", '"e":"2"', "\\"]),
        "a": st.sampled_from(["producers", 'p","e":"1']),
        "b": st.sampled_from(["T1", "TopicA", "unknown", "TBW102"]),
        "flag": st.sampled_from([0, 2, 3]),
        "version": st.sampled_from([409, 317]),
        "serialize_type": st.sampled_from([JSON, ROCKETMQ]),
    },
)
_SPOILT = st.lists(st.tuples(st.integers(4, 500), st.sampled_from(b'09"\\,:{}a\x00\x01\x02\xff ')), max_size=2)


@given(_PROPERTIES, _FIELDS, _PROPERTIES, _FIELDS, _SPOILT)
def test_any_frame_is_read_as_it_is_decoded_or_left(parts, first, fields, second, more, spoilt):
    """Whatever was learnt from, and whatever comes next: also bytes that no client sends."""
    producer = Producer(parts)
    wire, read = learnt(producer, frame_of(producer.command(properties=first, **fields)))
    others = [
        producer.command(properties=first, **fields),
        producer.command(properties=second, **(fields | more)),
        producer.command(properties=first, **(fields | more)),
    ]
    for command in others:
        frame = bytearray(frame_of(command))
        for at, byte in spoilt:
            if at < len(frame):
                frame[at] = byte
        if (send := read(memoryview(bytes(frame)))) is not None:
            assert_same(producer, wire, bytes(frame), send)


def test_headers_of_other_shapes_have_templates_too(producer):
    """Go's client writes opaque before the fields, and white space is nobody's rule."""
    command = producer.command(properties=PROPERTIES)
    ext = json.dumps(command.ext)
    header = (
        f'{{"code": 310, "language": "GO", "version": 317, "opaque":7, "flag":0, "remark": "", "extFields": {ext}}}'
    )
    for name in "egi":
        header = header.replace(f'"{name}": ', f'"{name}":')
    frame = len(header).to_bytes(4) + header.encode() + b"body"
    wire, read = learnt(producer, frame)
    again = frame.replace(b'"opaque":7', b'"opaque":8').replace(b'"e":"0"', b'"e":"2"')
    assert read(again).command.opaque == 8
    assert_same(producer, wire, again, read(again))


@pytest.mark.parametrize("form", [JSON, ROCKETMQ])
@pytest.mark.parametrize(
    "more",
    [
        {"flag": 1},
        {"code": 10},
        {"m": "true"},
        {"b": "none-such"},
        {"properties": "DELAY\x013"},
    ],
    ids=str,
)
def test_what_is_no_plain_send_has_none(producer, form, more):
    frame = frame_of(producer.command(**{"properties": PROPERTIES, "serialize_type": form} | more))
    _, read = learnt(producer, frame)
    assert read(frame) is None


def test_what_is_malformed_has_none(producer):
    for frame in (b"", b"\0\0\0\x05{", b"\0\0\0\x02{}", b"\0\0\0\x03nul"):
        _, read = learnt(producer, frame)
        assert read(frame) is None
        with pytest.raises(RemotingProtocolError) if frame[4:] != b"{}" else pytest.raises(AssertionError):
            assert decode(frame).ext is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"e":"0"', b'"e":"4"'),  # The topic has four queues.
        (b'"opaque":7', b'"opaque":07'),  # No JSON.
        (b'"g":"1"', b'"g":"' + b"1" * 19 + b'"'),
        (b"TagA", b"Ta\xffA"),
        (b"TagA", b"Ta\x01A"),
        (b"TagA", b"\\u0001"),
        (b"TagA", b'Ta\\"'),
        (b"TagA", b""),
        (b"true", b"false"),
        (b'"h":"0"', b'"h":"1"'),
        (b"409}", b"409} "),
        (b"409}", b"4090}"),
    ],
)
def test_what_does_not_fit_is_left(producer, old, new):
    frame = frame_of(evolve(producer.command(properties=PROPERTIES, body=b""), opaque=7))
    _, read = learnt(producer, frame)
    assert read(frame) is not None
    assert frame.count(old) == 1
    header = frame[4:].replace(old, new)
    assert read(len(header).to_bytes(4) + header) is None


def in_binary(name, value):
    """A field of a binary header."""
    return len(name).to_bytes(2) + name + len(value).to_bytes(4) + value


def replaced(frame, old, new):
    """A frame with a binary header, with its lengths as they have to be."""
    assert frame.count(old) == 1
    header, more = frame[4:].replace(old, new), len(new) - len(old)
    size = int.from_bytes(header[17:21]) + more
    return (len(header) | ROCKETMQ << 24).to_bytes(4) + header[:17] + size.to_bytes(4) + header[21:]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (in_binary(b"e", b"0"), in_binary(b"e", b"4")),  # The topic has four queues.
        (in_binary(b"e", b"0"), in_binary(b"e", b"00000")),
        (in_binary(b"e", b"0"), in_binary(b"e", b"-1")),
        (in_binary(b"g", b"17"), in_binary(b"g", b"170")),
        (in_binary(b"h", b"0"), in_binary(b"h", b"1")),
        (in_binary(b"m", b"false"), in_binary(b"m", b"false") + in_binary(b"e", b"1")),
        (in_binary(b"m", b"false"), in_binary(b"m", b"false") * 2),
        (b"TagA", b"TagAB"),  # The properties' own length is as it was.
        (b"TagA", b"Ta\xffA"),
        (b"TagA", b"Ta\x01A"),
        (b"true", b"fals"),
        (b"\0\0\0\x07", b"\xff\0\0\x07"),  # Opaque below 0.
    ],
)
def test_what_does_not_fit_in_binary_is_left(producer, old, new):
    command = producer.command(properties=PROPERTIES, body=b"", g=17, serialize_type=ROCKETMQ)
    frame = frame_of(evolve(command, opaque=7))
    _, read = learnt(producer, frame)
    assert read(frame) is not None
    assert read(replaced(frame, in_binary(b"e", b"0"), in_binary(b"e", b"003"))).queue_id == 3
    assert read(replaced(frame, old, new)) is None


def test_a_binary_header_whose_fields_end_elsewhere_is_left(producer):
    frame = frame_of(producer.command(properties=PROPERTIES, body=b"body", serialize_type=ROCKETMQ))
    _, read = learnt(producer, frame)
    assert read(frame) is not None
    size = int.from_bytes(frame[21:25])
    for other in (size - 1, size + 1):
        assert read(frame[:21] + other.to_bytes(4) + frame[25:]) is None


@pytest.mark.parametrize("form", [JSON, ROCKETMQ])
@pytest.mark.parametrize("size", [-1, 1, 1 << 24])
def test_a_header_of_another_size_or_kind_is_left(producer, size, form):
    frame = frame_of(producer.command(properties=PROPERTIES, serialize_type=form))
    _, read = learnt(producer, frame)
    assert read((int.from_bytes(frame[:4]) + size).to_bytes(4) + frame[4:]) is None


@pytest.mark.parametrize(
    ("own", "copy", "others"),
    [
        (b'"e":"0"', b'{"e":"0",', b'{"e":"3",'),  # Another "e", outside of the fields.
        (b'"e" : "0"', b'{"z\\"e":"0",', b'{"z\\"e":"3",'),  # Its name ends with "e".
        (b'"e" : "0"', b'{"z":"\\\\","e":"0",', b'{"z":"\\\\","e":"3",'),
    ],
)
def test_a_gap_is_where_the_value_was_read(producer, own, copy, others):
    header = frame_of(producer.command(properties=PROPERTIES, body=b""))[4:].replace(b'"e":"0"', own)
    first, next_one = (each + header[1:] for each in (copy, others))
    wire, read = learnt(producer, len(first).to_bytes(4) + first)
    frame = len(next_one).to_bytes(4) + next_one
    assert carefully(producer, wire, frame).queue_id == 0
    assert read(frame) is None


@pytest.mark.parametrize(
    "names",
    [
        ("b", "a"),
        ("a", "a"),
        ("a", "CLUSTER"),
        ("a", "INNER_MULTI_DISPATCH"),
        tuple(map(str, range(layouts.VALUES_MAX + 1))),
    ],
    ids=str,
)
def test_properties_that_are_stored_in_another_order_or_not_at_all_have_no_template(producer, names):
    frames = [
        frame_of(
            producer.command(
                properties="\x02".join(f"{name}\x01{value}" for name, value in zip(names, values, strict=True))
            )
        )
        for values in (["x"] * len(names), map(str, range(len(names))))
    ]
    _, read = learnt(producer, frames[0])
    assert [read(frame) for frame in frames] == [None, None]


def test_a_template_ends_with_its_topic_as_it_was(producer, parts):
    frame = frame_of(producer.command(properties=PROPERTIES, e=3))
    wire, read = learnt(producer, frame)
    assert read(frame) is not None
    before = parts.topics.table["T1"]
    try:
        parts.topics.table["T1"] = evolve(before, write_queues=3)
        read = producer.processor.templates.reader(wire)
        assert read(frame) is None
        parts.topics.table["T1"] = evolve(before, write_queues=5)
        _, read = learnt(producer, frame)
        assert read(frame).queue_id == 3
    finally:
        parts.topics.table["T1"] = before


def test_a_connection_has_several_templates_and_learns_less_and_less(producer):
    """Of a producer with some topics all fit; frames that never do cost little, and keep none from being read."""
    wire = Wire()
    read = producer.processor.templates.reader(wire)
    known = [frame_of(producer.command(topic, properties=PROPERTIES)) for topic in ("T1", "TopicA", "TopicB", "TopicC")]
    for number, frame in enumerate(known):
        assert [read(frame) for _ in range(templates.LEARN_AFTER << number)] == [None] * (
            templates.LEARN_AFTER << number
        )
        assert read(frame) is not None
    other = frame_of(producer.command(properties=PROPERTIES, m="true"))
    assert {read(other) for _ in range(1000)} == {None}
    for frame in [*known, *reversed(known), *known]:
        assert_same(producer, wire, frame, read(frame))
    fifth = frame_of(producer.command("TopicAuto", properties=PROPERTIES))
    while read(fifth) is None:
        pass
    assert [read(frame) is None for frame in known] == [
        True,
        False,
        False,
        False,
    ]  # The one that was used last the longest ago.


def test_no_template_is_used_while_the_gate_is_closed(producer, parts, monkeypatch):
    frame = frame_of(producer.command(properties=PROPERTIES))
    wire, read = learnt(producer, frame)
    send = read(frame)
    assert isinstance(send, Send)
    taken = []
    monkeypatch.setattr(Gate, "takes", lambda _gate, _connection, command, _carry_out: taken.append(command) or True)
    monkeypatch.setattr(parts.gate, "state", "holding")
    assert producer.processor.templates.reader(wire) is None
    producer.processor.process(wire, [send])  # Read before it closed, in the same turn.
    assert taken == [decode(frame)]


def test_messages_are_stored_and_answered_in_the_order_in_which_they_came(producer, parts):
    frames = [frame_of(producer.command(properties=PROPERTIES, body=b"%d" % number, g=number)) for number in range(40)]
    wire = producer.wire
    read = producer.processor.templates.reader(wire)
    before = len(producer.stored())
    producer.processor.process(wire, [read(frame) or decode(frame) for frame in frames])
    parts.transfer.release()
    assert [message.body for message in producer.stored()[before:]] == [b"%d" % number for number in range(40)]
    assert [answer.opaque for answer in wire.answers] == [decode(frame).opaque for frame in frames]
