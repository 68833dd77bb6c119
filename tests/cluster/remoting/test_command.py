"""The frame codec: both serializations, input cut anywhere, and false lengths."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.remoting.commands import COMMANDS, json_frame
from twinlog.cluster.remoting.command import (
    FRAME_SIZE_MAX,
    HEADER_SIZE_MAX,
    JSON,
    ONEWAY,
    RESPONSE,
    ROCKETMQ,
    VERSION,
    FrameReader,
    RemotingCommand,
    decode,
    encode,
    encode_header,
)
from twinlog.cluster.remoting.errors import RemotingProtocolError


def binary_frame(data: bytes) -> bytes:
    return (1 << 24 | len(data)).to_bytes(4) + data


@given(COMMANDS)
def test_commands_survive_the_wire(command):
    frame = encode(command)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert decode(frame[4:]) == command
    assert decode(memoryview(frame)[4:]) == command


@given(st.lists(COMMANDS, max_size=8), st.lists(st.integers(0, 400), max_size=8), st.booleans())
def test_framing_does_not_depend_on_where_the_bytes_are_cut(commands, cuts, mutable):
    stream = b"".join(map(encode, commands))
    reader = FrameReader()
    found, start = [], 0
    for end in [*sorted(cut for cut in cuts if cut < len(stream)), len(stream)]:
        piece = bytearray(stream[start:end]) if mutable else stream[start:end]
        found += reader.feed(piece)
        start = end
    assert [decode(frame) for frame in found] == commands
    assert reader.buffered == 0


@given(st.binary(max_size=200))
def test_any_frame_decodes_or_is_refused(frame):
    try:
        decode(frame)
    except RemotingProtocolError:
        return


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["code", "opaque", "flag", "version", "language", "remark", "extFields"])


@given(st.dictionaries(KEYS, JSON_VALUES) | JSON_VALUES)
def test_any_json_header_decodes_to_the_right_types_or_is_refused(header):
    try:
        command = decode(json_frame(header))
    except RemotingProtocolError:
        return
    assert all(isinstance(n, int) for n in (command.code, command.opaque, command.flag, command.version))
    assert isinstance(command.language, str)
    assert all(isinstance(value, str) for value in (command.ext or {}).values())
    assert decode(encode(command)[4:]) == command


@given(COMMANDS, st.data())
def test_a_damaged_frame_decodes_or_is_refused(command, data):
    frame = bytearray(encode(command)[4:])
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] = data.draw(st.integers(0, 255))
    try:
        again = decode(bytes(frame))
    except RemotingProtocolError:
        return
    assert all(isinstance(value, str) for value in (again.ext or {}).values())


def test_json_is_written_as_fastjson_does():
    command = RemotingCommand(17, opaque=3, flag=RESPONSE, ext={"b": "1", "a": "\x01é"}, remark="no", version=401)
    text = (
        '{"code":17,"extFields":{"b":"1","a":"\\u0001é"},"flag":1,"language":"JAVA","opaque":3,"remark":"no",'
        '"serializeTypeCurrentRPC":"JSON","version":401}'
    )
    assert encode(command)[8:] == text.encode()


def test_the_documented_binary_frame():
    """Code 105, PYTHON, version 409, opaque 7, topic=T1."""
    data = bytes.fromhex(
        "00000026 01000022 0069 03 0199 00000007 00000000 00000000 0000000d 0005 746f706963 00000002 5431"
    )
    command = RemotingCommand(105, opaque=7, ext={"topic": "T1"}, language="PYTHON", serialize_type=ROCKETMQ)
    assert encode(command) == data
    assert decode(data[4:]) == command


def test_missing_and_null_fields_have_defaults():
    assert decode(json_frame({})) == RemotingCommand(0, version=0, language="OTHER")
    nulls = {"code": None, "extFields": None, "flag": None, "opaque": None, "remark": None, "version": None}
    assert decode(json_frame(nulls)) == RemotingCommand(0, version=0, language="OTHER")


def test_ext_values_of_other_types_become_text():
    """Clients in other languages send numbers and booleans as such."""
    command = decode(
        json_frame({"code": 10, "extFields": {"a": 4, "b": True, "c": 1.5, "d": None, "e": "x", "f": [1]}})
    )
    assert command.ext == {"a": "4", "b": "true", "c": "1.5", "e": "x", "f": "[1]"}


def test_unknown_keys_and_languages_are_taken():
    command = decode(json_frame({"code": 10, "language": "COBOL", "zone": {"a": [1]}, "version": 900}))
    assert (command.code, command.language, command.version) == (10, "COBOL", 900)
    command.serialize_type = ROCKETMQ
    assert decode(encode(command)[4:]).language == "OTHER"
    future = struct.pack(">hbhiiii", 10, 99, 1, 0, 0, 0, 0)
    assert decode(binary_frame(future)).language == "OTHER"


def test_empty_binary_parts_are_none():
    command = decode(binary_frame(struct.pack(">hbhiiii", 10, 0, 1, 0, 0, 0, 0)))
    assert (command.remark, command.ext) == (None, None)


def test_a_response_repeats_opaque_and_serialization():
    request = RemotingCommand(105, opaque=9, flag=ONEWAY, version=1, language="GO", serialize_type=ROCKETMQ)
    response = RemotingCommand.response_to(request, 17, remark="none", ext={}, body=b"x")
    assert response == RemotingCommand(17, 9, RESPONSE, {}, b"x", "none", VERSION, "JAVA", ROCKETMQ)
    assert response.is_response
    assert not response.is_oneway
    assert request.is_oneway


def test_a_body_is_a_view_of_its_frame():
    frame = memoryview(encode(RemotingCommand(10, body=b"body")))[4:]
    body = decode(frame).body
    assert isinstance(body, memoryview)
    assert body.obj is frame.obj


def test_a_header_goes_before_a_body_that_is_sent_separately():
    command = RemotingCommand(0, flag=RESPONSE, ext={"offset": "1"}, body=b"body")
    assert encode_header(command, 4) + b"body" == encode(command)


def test_lone_surrogates_become_question_marks():
    for serialize_type in (JSON, ROCKETMQ):
        command = RemotingCommand(1, remark="file \udcff", ext={"a": "\ud800"}, serialize_type=serialize_type)
        again = decode(encode(command)[4:])
        assert (again.remark, again.ext) == ("file ?", {"a": "?"})


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "no header"),
        (b"\0\0\0", "no header"),
        (b"\0\0\0\5{}", "header of 5 bytes in a frame of 6"),
        (b"\2\0\0\0", "serialize type 2"),
        (b"\xff\0\0\0", "serialize type 255"),
        (json_frame(b""), "not JSON"),
        (json_frame(b"{'code':1}"), "not JSON"),
        (json_frame(b'{"code":1'), "not JSON"),
        (json_frame(b'{"code":1,"remark":"\xff"}'), "not JSON"),
        (json_frame(b"[" * 5000), "not JSON"),
        (json_frame([1]), "list"),
        (json_frame(None), "NoneType"),
        (json_frame({"code": "10"}), "code"),
        (json_frame({"code": 1.5}), "code"),
        (json_frame({"opaque": 2**31}), "opaque"),
        (json_frame({"version": -(2**31) - 1}), "version"),
        (json_frame({"remark": 5}), "remark"),
        (json_frame({"extFields": ["a"]}), "extFields"),
        (json_frame({"extFields": "a"}), "extFields"),
        (json_frame(b'{"extFields":{"a":' + b"[" * 500 + b"]" * 500 + b"}}"), "extFields cannot be text"),
        (binary_frame(b""), "ends early"),
        (binary_frame(bytes(17)), "ends early"),
        (binary_frame(struct.pack(">hbhiiii", 10, 0, 1, 0, 0, -1, 0)), "remark of -1"),
        (binary_frame(struct.pack(">hbhiiii", 10, 0, 1, 0, 0, 100, 0)), "remark of 100"),
        (binary_frame(struct.pack(">hbhiiii", 10, 0, 1, 0, 0, 0, -1)), "extFields of -1"),
        (binary_frame(struct.pack(">hbhiiii", 10, 0, 1, 0, 0, 0, 9)), "extFields of 9"),
        (binary_frame(struct.pack(">hbhiiiih", 10, 0, 1, 0, 0, 0, 2, 1)), "ends early"),
        (binary_frame(struct.pack(">hbhiiiih4s", 10, 0, 1, 0, 0, 0, 6, -1, b"")), "ends early"),
        (binary_frame(struct.pack(">hbhiiiih1si", 10, 0, 1, 0, 0, 0, 7, 1, b"a", -1)), "does not fit"),
        (binary_frame(struct.pack(">hbhiiiih1si", 10, 0, 1, 0, 0, 0, 7, 1, b"a", 2**31 - 1)), "does not fit"),
        (binary_frame(struct.pack(">hbhiii1si", 10, 0, 1, 0, 0, 1, b"\xff", 0)), "not UTF-8"),
    ],
)
def test_malformed_headers_are_refused(frame, reason):
    with pytest.raises(RemotingProtocolError, match=reason):
        decode(frame)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (RemotingCommand(32_768, serialize_type=ROCKETMQ), "use JSON"),
        (RemotingCommand(1, version=40_000, serialize_type=ROCKETMQ), "does not fit"),
        (RemotingCommand(1, ext={"k" * 40_000: "v"}, serialize_type=ROCKETMQ), "does not fit"),
        (RemotingCommand(1, serialize_type=2), "unknown"),
        (RemotingCommand(1, body=bytes(FRAME_SIZE_MAX)), "at most 16777216"),
    ],
)
def test_what_no_peer_would_take_is_not_encoded(command, reason):
    with pytest.raises(RemotingProtocolError, match=reason):
        encode(command)


BAD_HEADS = [
    (struct.pack(">i", -1), "-1 is impossible"),
    (struct.pack(">i", 0), "0 is impossible"),
    (struct.pack(">i", 3), "3 is impossible"),
    (struct.pack(">i", FRAME_SIZE_MAX - 3), "at most 16777216"),
    (struct.pack(">i", 0x7FFFFFFF), "at most 16777216"),
    (b"GET ", "at most 16777216"),
    (struct.pack(">ii", 4, 1), "header of 1 bytes in a frame of 4"),
    (struct.pack(">ii", 100, 97), "header of 97 bytes in a frame of 100"),
    (struct.pack(">ii", 1_000_000, HEADER_SIZE_MAX + 1), "at most 262144"),
]


@pytest.mark.parametrize(("head", "reason"), BAD_HEADS)
@pytest.mark.parametrize("piece", [1, 3, 4, 7, 8, 64])
def test_a_bad_frame_is_refused_before_it_is_kept(head, reason, piece):
    """As soon as its head is complete, wherever the input is cut, also after a valid frame."""
    stream = encode(RemotingCommand(1)) + head
    reader = FrameReader()
    pieces = [stream[at : at + piece] for at in range(0, len(stream), piece)]
    with pytest.raises(RemotingProtocolError, match=reason):
        list(map(reader.feed, pieces))
    assert reader.buffered < 8


def test_the_largest_frame_is_taken():
    frame = struct.pack(">ii", FRAME_SIZE_MAX - 4, 0) + bytes(FRAME_SIZE_MAX - 8)
    assert len(FrameReader().feed(frame)[0]) == FRAME_SIZE_MAX - 4
    reader = FrameReader()
    assert reader.feed(frame[:-1]) == []
    assert len(reader.feed(frame[-1:])[0]) == FRAME_SIZE_MAX - 4


def test_whole_frames_are_views_of_what_was_read():
    data = encode(RemotingCommand(1, body=b"a")) * 3
    frames = FrameReader().feed(data)
    assert len(frames) == 3
    assert all(isinstance(frame, memoryview) and frame.obj is data for frame in frames)


def test_a_frame_under_way_does_not_depend_on_the_read_buffer():
    """The caller may read into the same memory again."""
    frame = encode(RemotingCommand(1, body=b"a" * 100))
    buffer = bytearray(frame[:50])
    reader = FrameReader()
    assert reader.feed(memoryview(buffer)) == []
    buffer[:] = bytes(50)
    assert reader.feed(frame[50:]) == [frame[4:]]


def test_a_promised_frame_costs_no_memory_before_it_arrives():
    """Ten thousand connections that announce 16 MiB each and then send nothing must not use that memory."""
    head = struct.pack(">ii", FRAME_SIZE_MAX - 4, 10) + b"{"
    tracemalloc.start()
    try:
        readers = [FrameReader() for _ in range(1000)]
        for reader in readers:
            reader.feed(head)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
