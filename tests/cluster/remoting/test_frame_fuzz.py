"""Fuzzing of frames and headers: random changes, cut anywhere."""

import itertools
import socket
import struct

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.cluster.remoting.certificates import shaken
from tests.cluster.remoting.commands import COMMANDS, json_frame
from tests.cluster.remoting.serving import ECHO, FAIL, FILL, Owner
from twinlog.cluster.remoting.command import (
    FRAME_SIZE_MAX,
    JSON,
    ROCKETMQ,
    FrameReader,
    RemotingCommand,
    _decode_odd_json,
    decode,
    encode,
)
from twinlog.cluster.remoting.dispatch import Dispatcher
from twinlog.cluster.remoting.errors import RemotingProtocolError
from twinlog.cluster.remoting.request import handlers_of
from twinlog.cluster.remoting.server import RemotingServer, open_listener
from twinlog.cluster.remoting.tls.channel import TlsChannel
from twinlog.cluster.remoting.tls.config import TlsConfig
from twinlog.cluster.remoting.tls.contexts import server_context
from twinlog.cluster.remoting.tls.renewed import ServerTls

WORDS = st.sampled_from([0, 1, 3, 4, 8, 100, FRAME_SIZE_MAX - 4, FRAME_SIZE_MAX, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
HEADER_WORDS = st.builds(lambda kind, size: kind << 24 | size, st.integers(0, 255), st.integers(0, 300)) | WORDS
HEADS = st.builds(lambda total, word, rest: struct.pack(">II", total, word) + rest, WORDS, HEADER_WORDS, st.binary())
FRAMES = COMMANDS.map(encode)


@st.composite
def damaged(draw):
    """A frame with some bytes changed, doubled or left out."""
    data = bytearray(draw(FRAMES))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
        data = data or bytearray(b"\0")
    return bytes(data)


STREAMS = st.lists(FRAMES | HEADS | damaged() | st.binary(max_size=50), max_size=6).map(b"".join)


def read(pieces):
    """The frames of a stream, and whether the reader refused it."""
    reader, frames = FrameReader(), []
    for piece in pieces:
        try:
            frames += [bytes(frame) for frame in reader.feed(piece)]
        except RemotingProtocolError:
            return frames, True
        assert reader.buffered <= min(sum(map(len, pieces)), FRAME_SIZE_MAX)
    return frames, False


@given(STREAMS, st.lists(st.integers(0, 500), max_size=6))
def test_any_stream_is_read_the_same_however_it_is_cut(stream, cuts):
    """A refused stream yields at most the frames before the fault, and is refused wherever it is cut."""
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    cut_frames, cut_refused = read([stream[a:b] for a, b in itertools.pairwise(places)])
    byte_frames, byte_refused = read([stream[at : at + 1] for at in range(len(stream))])
    whole_frames, whole_refused = read([stream])
    assert cut_refused == byte_refused == whole_refused
    assert byte_frames[: len(cut_frames)] == cut_frames
    if not whole_refused:
        assert whole_frames == cut_frames == byte_frames


@given(STREAMS)
def test_frames_decode_the_same_from_bytes_and_from_views(stream):
    def outcome(frame):
        try:
            return decode(frame)
        except RemotingProtocolError as error:
            return str(error)

    for frame in read([stream])[0]:
        assert outcome(frame) == outcome(memoryview(frame)) == outcome(bytearray(frame))


@given(COMMANDS)
def test_both_serializations_say_the_same(command):
    found = []
    for kind in (JSON, ROCKETMQ):
        command.serialize_type = kind
        again = decode(encode(command)[4:])
        again.serialize_type = JSON
        found.append(again)
    assert found[0] == found[1]


@given(COMMANDS)
def test_the_quick_and_the_careful_decoder_agree(command):
    """The slow path reads what the fast one does not accept; where both do, they agree."""
    header = {
        "code": command.code,
        "opaque": command.opaque,
        "flag": command.flag,
        "version": command.version,
        "language": command.language,
        "remark": command.remark,
        "extFields": command.ext,
    }
    assert decode(json_frame(header, b"body")) == _decode_odd_json(header, b"body")


# A server


async def serve(streams):
    """Send each over its own connection; the server must close it or keep it, and still answer another one."""
    listener = open_listener("127.0.0.1", 0)
    table = {code: handler for code, handler in handlers_of(Owner()).items() if code in (ECHO, FILL, FAIL)}
    server = RemotingServer(
        Dispatcher(table, batch=lambda connection, commands: None, batch_codes=(310,)), tls=ServerTls()
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, listener)
        address = listener.getsockname()
        with trio.fail_after(30):
            for stream, step in streams:
                peer = await trio.open_tcp_stream(*address)
                try:
                    for at in range(0, len(stream), step):
                        await peer.send_all(stream[at : at + step])
                    peer.socket.shutdown(socket.SHUT_WR)
                    while await peer.receive_some(1 << 16):
                        pass
                except (trio.BrokenResourceError, OSError):
                    pass
                finally:
                    peer.socket.close()
            peer = await trio.open_tcp_stream(*address)
            await peer.send_all(encode(RemotingCommand(ECHO, ext={"text": "still here"})))
            assert b"still here" in await peer.receive_some(1 << 16)
            peer.socket.close()
            while server.connections:
                await trio.sleep(0.001)
        assert server.budget.kept_bytes == 0
        assert server.dispatcher.under_way == 0
        nursery.cancel_scope.cancel()


@given(st.lists(st.tuples(STREAMS, st.sampled_from([1, 7, 64, 100_000])), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_a_server_outlives_any_stream(streams):
    with capture_logs():
        trio.run(serve, [(stream[:3000], step) for stream, step in streams])


# TLS

CONTEXT = server_context(TlsConfig())
RECORDS = st.builds(
    lambda kind, version, size, rest: struct.pack(">BHH", kind, version, size) + rest,
    st.sampled_from([0x14, 0x15, 0x16, 0x17, 0x18, 0xFF]),
    st.sampled_from([0x0300, 0x0301, 0x0303, 0x0304, 0xFFFF]),
    st.integers(0, 0xFFFF),
    st.binary(max_size=300),
)


@given(st.lists(RECORDS | st.binary(max_size=100), max_size=5))
def test_any_handshake_goes_on_or_is_refused(pieces):
    channel = TlsChannel(CONTEXT)
    for piece in pieces:
        try:
            assert not channel.shake_hands(piece)
        except RemotingProtocolError:
            return
        channel.encrypt(())


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4), RECORDS)
@settings(max_examples=40, deadline=None)
def test_damaged_records_are_refused(changes, record):
    channel, peer, _, outgoing = shaken()
    peer.write(b"x" * 300)
    wire = bytearray(outgoing.read())
    for at, value in changes:
        wire[at % len(wire)] = value
    plain = memoryview(bytearray(100_000))
    try:
        size = channel.decrypt(bytes(wire + record), plain)
    except RemotingProtocolError:
        return
    assert bytes(plain[:size]) in (b"", b"x" * 300)
