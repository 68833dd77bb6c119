"""Frames of real brokers, name servers and a Java client of 4.9.7 and 5.3.3: decoded, and encoded to the same bytes."""

import json

import pytest

from tests.cluster.remoting.captures import CAPTURES, frames
from twinlog.cluster.remoting import fastjson
from twinlog.cluster.remoting.command import JSON, ROCKETMQ, FrameReader, decode, encode, encode_header
from twinlog.cluster.remoting.header_fields import decode_header, encode_header_fields
from twinlog.cluster.remoting.headers.table import REQUESTS

every_capture = pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name.split(".jsonl")[0])


def test_there_are_captures():
    assert len(CAPTURES) == 6


@every_capture
def test_every_frame_encodes_to_the_same_bytes(capture):
    """Also what was JSON: keys in fastjson's order, the same escapes, nothing added."""
    for frame in frames(capture):
        command = decode(frame.payload)
        assert command.body == frame.body
        assert encode(command) == frame.data
        assert encode_header(command, len(frame.body)) + frame.body == frame.data


@every_capture
def test_json_headers_mean_what_json_says(capture):
    for frame in frames(capture):
        command = decode(frame.payload)
        if command.serialize_type == JSON:
            said = json.loads(frame.header)
            understood = {
                "code": command.code,
                "flag": command.flag,
                "language": command.language,
                "opaque": command.opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": command.version,
            }
            understood |= {} if command.ext is None else {"extFields": command.ext}
            understood |= {} if command.remark is None else {"remark": command.remark}
            assert understood == said


@every_capture
def test_either_serialization_carries_every_command(capture):
    """The binary form does not distinguish an empty extFields or remark from none; all else survives."""
    for frame in frames(capture):
        command = decode(frame.payload)
        original = (command.code, command.opaque, command.flag, command.ext or None, command.remark or None)
        for serialize_type in (JSON, ROCKETMQ):
            command.serialize_type = serialize_type
            again = decode(encode(command)[4:])
            assert (again.code, again.opaque, again.flag, again.ext or None, again.remark or None) == original
            assert (again.version, again.language, again.body) == (command.version, command.language, command.body)


@every_capture
def test_every_request_has_a_header_class_that_keeps_all_its_fields(capture):
    seen = set()
    for frame in frames(capture):
        command = decode(frame.payload)
        if not command.is_response:
            seen.add(command.code)
            header = decode_header(REQUESTS[command.code], command.ext)
            assert encode_header_fields(header) == (command.ext or {})
    assert seen


@every_capture
@pytest.mark.parametrize("piece", [1, 7, 1000, 65_536])
def test_cuts_do_not_matter(capture, piece):
    whole = [frame.data for frame in frames(capture)][:150]
    stream = b"".join(whole)
    reader = FrameReader()
    found = [frame for at in range(0, len(stream), piece) for frame in reader.feed(stream[at : at + piece])]
    assert found == [data[4:] for data in whole]


@every_capture
def test_text_bodies_are_read_and_written_again(capture):
    for frame in frames(capture):
        if frame.is_text and frame.body.startswith(b'{"'):
            assert fastjson.dumps(fastjson.loads(frame.body)) == frame.body
