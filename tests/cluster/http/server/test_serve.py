"""The port itself: limits on connections, slow and silent peers, and a stop that closes all of them."""

import socket
from contextlib import suppress

import httpx
import pytest
import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from twinlog.cluster.http.server.app import Endpoint, guarded_app
from twinlog.cluster.http.server.guard import HEADER_BYTES_MAX
from twinlog.cluster.http.server.responses import EventStream
from twinlog.cluster.http.server.serve import ServerLimits, serve
from twinlog.cluster.remoting.server import open_listener

QUICK = ServerLimits(connections_max=20, idle_seconds_max=0.5, send_seconds_max=0.5)


async def hello(_request: Request) -> Response:
    """A short answer."""
    return PlainTextResponse("hello")


async def endless(_request: Request) -> Response:
    """An answer without an end."""

    async def pieces(write):
        while True:
            await write(b"x" * 65536)

    return EventStream(pieces)


async def waiting(_request: Request) -> Response:
    """An answer that has begun, and of which nothing more comes."""

    async def nothing(write):
        await write(b"begun")
        await trio.sleep_forever()

    return EventStream(nothing)


async def accept(request: Request) -> Response:
    """Takes a body."""
    return PlainTextResponse(str(len(await request.body())))


APP = guarded_app(
    [
        Endpoint("/", hello),
        Endpoint("/waiting", waiting),
        Endpoint("/endless", endless),
        Endpoint("/post", accept, method="POST"),
    ]
)


@pytest.fixture
async def port(nursery):
    return await nursery.start(serve, APP, open_listener("127.0.0.1", 0), QUICK)


@pytest.fixture
async def raw():
    """Connect and send; closed at the test's end."""
    streams = []

    async def send(port: int, data: bytes) -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        streams.append(stream)
        with suppress(trio.BrokenResourceError):
            await stream.send_all(data)
        return stream

    yield send
    for stream in streams:
        stream.socket.close()


async def all_of(stream: trio.SocketStream) -> bytes:
    received = b""
    with suppress(trio.BrokenResourceError):
        while data := await stream.receive_some(65536):
            received += data
    return received


async def get(port: int) -> int:
    async with httpx.AsyncClient() as http:
        return (await http.get(f"http://127.0.0.1:{port}/")).status_code


@pytest.mark.parametrize(
    "begun", [b"", b"GET / HTTP/1.1\r\n", b"POST /post HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"]
)
async def test_half_a_request_is_dropped_and_others_are_answered_meanwhile(raw, port, begun):
    streams = [await raw(port, begun) for _ in range(10)]
    with trio.fail_after(5):
        assert await get(port) == 200
        for stream in streams:
            await all_of(stream)


async def test_a_byte_now_and_then_buys_no_time(raw, port):
    """The whole header has to come within the limit, however lively its sender is."""
    stream = await raw(port, b"GET / HTTP/1.1\r\n")
    with trio.fail_after(5), suppress(trio.BrokenResourceError):
        while True:
            await stream.send_all(b"X")
            await trio.sleep(0.1)


async def test_silent_connections_make_room_and_busy_ones_do_not(raw, port):
    """So many that say nothing do not keep a probe out; so many that are being answered do."""
    silent = [await raw(port, b"") for _ in range(QUICK.connections_max)]
    with trio.fail_after(5):
        assert await get(port) == 200
        assert await all_of(silent[0]) == b""
    busy = [await raw(port, b"GET /waiting HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(QUICK.connections_max)]
    for stream in busy:
        await stream.receive_some(10)
    with trio.fail_after(5):
        assert await all_of(await raw(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")) == b""
        for stream in busy:
            stream.socket.close()
        while True:  # The places are free again, soon.
            with suppress(httpx.HTTPError):
                assert await get(port) == 200
                break


async def test_a_reader_that_leaves_frees_its_place_at_once(raw, port):
    """Also while nothing is written to it."""
    patient = trio.current_time() + 5
    for _ in range(3):
        streams = [await raw(port, b"GET /waiting HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(QUICK.connections_max)]
        for stream in streams:
            await stream.receive_some(10)
            stream.socket.close()
        await trio.sleep(0.2)
    assert trio.current_time() < patient


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * HEADER_BYTES_MAX + b"\r\n\r\n",
        b"POST /post HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 300_000,
        b"POST /post HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"ffff\r\n"
        + b"x" * 65535
        + b"\r\n"
        + b"ffff\r\n"
        + b"x" * 60000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/one\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100,
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Key: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: upgrade, http2-settings\r\nHTTP2-Settings: !!\r\n\r\n",
    ],
    ids=["header", "length", "chunks", "tls", "version", "http2", "websocket", "h2c"],
)
async def test_what_is_too_large_or_no_http_ends_its_connection_only(raw, port, request_bytes):
    stream = await raw(port, request_bytes)
    with trio.fail_after(8):
        answer = await all_of(stream)
    assert not answer.startswith(b"HTTP/1.1 2")
    assert await get(port) == 200


async def test_a_peer_that_reads_nothing_is_dropped(raw, port):
    stream = await raw(port, b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
    await trio.sleep(1.5)
    with trio.fail_after(5):
        assert len(await all_of(stream)) < 100_000_000  # It ends.


async def test_a_stop_closes_the_port_and_all_connections_at_once(raw):
    """Also of a peer that reads nothing: hypercorn's sends are shielded from cancellation."""
    patient = ServerLimits(send_seconds_max=300)
    with trio.fail_after(5):
        async with trio.open_nursery() as serving:
            port = await serving.start(serve, APP, open_listener("127.0.0.1", 0), patient)
            streams = [await raw(port, b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n"), await raw(port, b"GET /")]
            await trio.sleep(0.3)
            serving.cancel_scope.cancel()
        for stream in streams:
            await all_of(stream)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
