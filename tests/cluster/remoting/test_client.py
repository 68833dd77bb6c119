"""RemotingClient against small test servers, over memory streams and over loopback."""

import socket
from functools import partial

import anyio
import pytest
import trio
import trio.testing

from tests.support.process_group.ports import free_port
from twinlog.cluster.remoting.client import CONNECT_TIMEOUT_MS, IDLE_MS, OUTBOX_SIZE_MAX, RemotingClient, connect_first
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.command import ROCKETMQ, FrameReader, RemotingCommand, decode, encode
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingProtocolError, RemotingTimeoutError
from twinlog.cluster.remoting.names import split_address

ADDRESS = "broker:10911"


class Server:
    """The far end of one connection: reads commands, writes what the test wants."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.reader = FrameReader()
        self.waiting: list[RemotingCommand] = []

    async def next(self) -> RemotingCommand:
        """Raises EOFError when the client has disconnected."""
        while not self.waiting:
            data = await self.stream.receive_some()
            if not data:
                raise EOFError
            self.waiting = [decode(frame) for frame in self.reader.feed(data)]
        return self.waiting.pop(0)

    async def answer(self, request: RemotingCommand, code: int = 0, body: bytes = b"") -> None:
        await self.stream.send_all(encode(RemotingCommand.response_to(request, code, body=body)))


class Network:
    """Hands out memory streams; the test gets the other ends."""

    def __init__(self) -> None:
        self.to_test, self.from_client = trio.open_memory_channel[Server](10)
        self.connected: list[str] = []

    async def connect(self, address: str) -> trio.abc.Stream:
        self.connected.append(address)
        ours, theirs = trio.testing.memory_stream_pair()
        await self.to_test.send(Server(theirs))
        return ours

    async def server(self) -> Server:
        return await self.from_client.receive()


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
async def client(network, nursery) -> RemotingClient:
    client = RemotingClient(connect=network.connect)
    await nursery.start(client.run)
    return client


async def test_answers_find_their_requests_in_any_order(client, network, nursery):
    answers: dict[int, bytes] = {}

    async def ask(number: int) -> None:
        answer = await client.request(ADDRESS, RemotingCommand(number))
        answers[number] = bytes(answer.body)

    for number in range(50):
        nursery.start_soon(ask, number)
    server = await network.server()
    requests = [await server.next() for _ in range(50)]
    assert len({request.opaque for request in requests}) == 50
    for request in sorted(requests, key=lambda request: request.code * 7 % 50):
        await server.answer(request, body=b"%d" % request.code)
    await trio.testing.wait_all_tasks_blocked()
    assert answers == {number: b"%d" % number for number in range(50)}
    assert network.connected == [ADDRESS]


async def test_the_callers_command_stays_as_it_is(client, network, nursery):
    """One command object can be in flight to several servers at once."""
    command = RemotingCommand(106, ext={"a": "b"})
    for address in ("one:1", "two:2"):
        nursery.start_soon(client.request, address, command)
    first, second = [await network.server() for _ in range(2)]
    requests = [await first.next(), await second.next()]
    assert (command.opaque, command.flag) == (0, 0)
    assert requests[0].opaque != requests[1].opaque
    await first.answer(requests[0])
    await second.answer(requests[1])


async def test_requests_are_signed_as_they_leave(network, nursery):
    """With their flag and number, and without changing the caller's command."""

    def sign(command: RemotingCommand) -> None:
        assert command.ext is not None
        command.ext["Signature"] = f"{command.code} {command.flag} {bytes(command.body).decode()}"

    client = RemotingClient(sign=sign, connect=network.connect)
    await nursery.start(client.run)
    with_ext, without = RemotingCommand(10, ext={"a": "b"}, body=b"x"), RemotingCommand(11)
    nursery.start_soon(client.request, ADDRESS, with_ext)
    server = await network.server()
    assert (await server.next()).ext == {"a": "b", "Signature": "10 0 x"}
    await client.oneway(ADDRESS, without)
    assert (await server.next()).ext == {"Signature": "11 2 "}
    assert (with_ext.ext, without.ext) == ({"a": "b"}, None)


async def test_every_code_is_an_answer(client, network, nursery):
    async def serve() -> None:
        server = await network.server()
        await server.answer(await server.next(), ResponseCode.TOPIC_NOT_EXIST)

    nursery.start_soon(serve)
    assert (await client.request(ADDRESS, RemotingCommand(105))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_late_answer_is_a_timeout_and_disturbs_nobody(client, network, nursery, autojump_clock):
    server: list[Server] = []

    async def serve() -> None:
        server.append(await network.server())
        late = await server[0].next()
        second = await server[0].next()
        await server[0].answer(late, body=b"late")
        await server[0].answer(second, body=b"second")

    nursery.start_soon(serve)
    with pytest.raises(RemotingTimeoutError, match="broker:10911: no answer to request 11 within 500 ms") as caught:
        await client.request(ADDRESS, RemotingCommand(11), timeout_ms=500)
    assert (caught.value.address, caught.value.code, caught.value.timeout_ms) == (ADDRESS, 11, 500)
    assert trio.current_time() == pytest.approx(0.5)
    assert (await client.request(ADDRESS, RemotingCommand(12))).body == b"second"


async def test_a_lost_connection_fails_all_who_wait_and_the_next_request_connects_anew(client, network, nursery):
    failures: list[RemotingConnectError] = []

    async def ask() -> None:
        try:
            await client.request(ADDRESS, RemotingCommand(11))
        except RemotingConnectError as error:
            failures.append(error)

    for _ in range(5):
        nursery.start_soon(ask)
    server = await network.server()
    for _ in range(5):
        await server.next()
    await server.stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert [error.address for error in failures] == [ADDRESS] * 5
    assert client.addresses == set()

    async def serve() -> None:
        again = await network.server()
        await again.answer(await again.next())

    nursery.start_soon(serve)
    assert (await client.request(ADDRESS, RemotingCommand(11))).code == 0
    assert network.connected == [ADDRESS, ADDRESS]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\n", "at most 16777216"),
        (b"\0\0\0\6\0\0\0\2{]", "not JSON"),
        (b"\0\0\0\4\7\0\0\0", "type 7"),
    ],
)
async def test_a_server_that_breaks_the_protocol_loses_its_connection(client, network, nursery, data, reason):
    async def serve() -> None:
        server = await network.server()
        await server.next()
        await server.stream.send_all(data)

    nursery.start_soon(serve)
    with pytest.raises(RemotingConnectError, match=f"broke the protocol: .*{reason}"):
        await client.request(ADDRESS, RemotingCommand(11))
    assert client.addresses == set()


async def test_requests_of_the_server_are_answered(network, nursery):
    seen: list[int] = []

    def on_request(address: str, request: RemotingCommand) -> RemotingCommand | None:
        assert address == ADDRESS
        seen.append(request.code)
        if request.code == 1:
            raise ValueError("no such thing")
        return RemotingCommand.response_to(request, 0, body=b"info") if request.code == 307 else None

    client = RemotingClient(on_request, connect=network.connect)
    await nursery.start(client.run)
    nursery.start_soon(client.oneway, ADDRESS, RemotingCommand(34))
    server = await network.server()
    assert (await server.next()).is_oneway
    for code, flag, serialize_type in ((40, 2, 0), (40, 0, 0), (307, 2, 0), (307, 0, ROCKETMQ), (1, 0, 0)):
        request = RemotingCommand(code, opaque=code, flag=flag, serialize_type=serialize_type)
        await server.stream.send_all(encode(request))
    info = await server.next()
    assert (info.opaque, info.body, info.serialize_type, info.is_response) == (307, b"info", ROCKETMQ, True)
    failed = await server.next()
    assert (failed.code, failed.remark) == (ResponseCode.SYSTEM_ERROR, "ValueError: no such thing")
    assert seen == [40, 40, 307, 307, 1]


async def test_without_a_handler_the_servers_requests_are_refused(client, network, nursery):
    nursery.start_soon(client.oneway, ADDRESS, RemotingCommand(34))
    server = await network.server()
    await server.next()
    await server.stream.send_all(encode(RemotingCommand(307, opaque=4)))
    answer = await server.next()
    assert (answer.code, answer.opaque) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 4)


async def test_an_idle_connection_closes_but_not_under_a_long_request(client, network, nursery, autojump_clock):
    async def serve() -> None:
        server = await network.server()
        request = await server.next()
        await trio.sleep(3 * IDLE_MS / 1000)
        await server.answer(request)
        with pytest.raises(EOFError):
            await server.next()

    nursery.start_soon(serve)
    await client.request(ADDRESS, RemotingCommand(11), timeout_ms=10 * IDLE_MS)
    assert client.addresses == {ADDRESS}
    await trio.sleep(IDLE_MS / 1000 + 1)
    assert client.addresses == set()


async def test_one_connection_is_made_however_many_ask_first(nursery, network, autojump_clock):
    async def slow(address: str) -> trio.abc.Stream:
        await trio.sleep(1)
        return await network.connect(address)

    client = RemotingClient(connect=slow)
    await nursery.start(client.run)
    for _ in range(10):
        nursery.start_soon(client.oneway, ADDRESS, RemotingCommand(34))
    server = await network.server()
    for _ in range(10):
        await server.next()
    assert network.connected == [ADDRESS]


async def test_who_gives_up_connecting_does_not_stop_the_others(nursery, network, autojump_clock):
    """The task that connects times out; the next one connects instead."""

    async def slow(address: str) -> trio.abc.Stream:
        await trio.sleep(1)
        return await network.connect(address)

    async def serve() -> None:
        server = await network.server()
        await server.answer(await server.next())

    client = RemotingClient(connect=slow)
    await nursery.start(client.run)
    nursery.start_soon(serve)
    outcomes: list[object] = []

    async def impatient() -> None:
        with pytest.raises(RemotingConnectError, match="not connected within 500 ms"):
            await client.request(ADDRESS, RemotingCommand(1), timeout_ms=500)
        outcomes.append("gave up")

    nursery.start_soon(impatient)
    await trio.sleep(0.1)
    assert (await client.request(ADDRESS, RemotingCommand(2))).code == 0
    assert outcomes == ["gave up"]


async def test_connecting_has_a_limit_of_its_own(nursery, autojump_clock):
    async def never(address: str) -> trio.abc.Stream:
        await trio.sleep_forever()

    client = RemotingClient(connect=never)
    await nursery.start(client.run)
    with pytest.raises(RemotingConnectError, match="not connected within 3000 ms"):
        await client.request(ADDRESS, RemotingCommand(11), timeout_ms=30_000)
    assert trio.current_time() == pytest.approx(CONNECT_TIMEOUT_MS / 1000)


async def test_a_server_that_does_not_read_holds_its_callers_back(nursery, autojump_clock):
    """Unsent bytes stay bounded: callers wait, and time out, instead of piling up."""

    async def connect(address: str) -> trio.abc.Stream:
        ours, theirs = trio.testing.lockstep_stream_pair()
        streams.append(theirs)
        return ours

    streams: list[trio.abc.Stream] = []
    client = RemotingClient(connect=connect)
    await nursery.start(client.run)
    big = RemotingCommand(10, body=bytes(OUTBOX_SIZE_MAX))
    await client.oneway(ADDRESS, big)
    with pytest.raises(RemotingConnectError, match="not sent within 1000 ms"):
        await client.oneway(ADDRESS, big, timeout_ms=1000)


async def test_a_connection_that_brings_nothing_any_more_is_given_up(client, network, nursery, autojump_clock):
    """TCP would keep it for a quarter of an hour when the host is down."""
    for _ in range(4):
        with pytest.raises(RemotingTimeoutError):
            await client.request(ADDRESS, RemotingCommand(11))
    assert network.connected == [ADDRESS]
    await trio.testing.wait_all_tasks_blocked()
    assert client.addresses == frozenset()
    with pytest.raises(RemotingTimeoutError):
        await client.request(ADDRESS, RemotingCommand(11))
    assert network.connected == [ADDRESS] * 2


async def test_it_is_given_up_too_where_no_caller_waits_for_long(client, network, nursery, autojump_clock):
    """A candidate gives a member that is known to be silent a moment only. A pull that is held and given up says nothing."""
    for _ in range(6):
        with trio.move_on_after(0.1) as scope:
            await client.request(ADDRESS, RemotingCommand(11))
        assert scope.cancelled_caught
        await trio.sleep(2.5)
    assert network.connected == [ADDRESS] * 2
    with trio.move_on_after(15):
        await client.request(ADDRESS, RemotingCommand(11), timeout_ms=30_000)
    await trio.testing.wait_all_tasks_blocked()
    assert client.addresses == {ADDRESS}


async def test_a_connection_that_brings_something_is_kept(client, network, nursery, autojump_clock):
    """A request may take longer than its caller waits, while others are answered."""

    async def serve() -> None:
        server = await network.server()
        while True:
            request = await server.next()
            if request.code == 12:
                await server.answer(request)

    nursery.start_soon(serve)
    for _ in range(8):
        with pytest.raises(RemotingTimeoutError):
            await client.request(ADDRESS, RemotingCommand(11))
        await client.request(ADDRESS, RemotingCommand(12))
    assert network.connected == [ADDRESS]


async def test_what_cannot_be_encoded_hurts_only_its_caller(client, network, nursery):
    with pytest.raises(RemotingProtocolError, match="use JSON"):
        await client.request(ADDRESS, RemotingCommand(200_050, serialize_type=ROCKETMQ))
    assert client.addresses == {ADDRESS}


async def test_a_client_that_ends_fails_its_requests(network):
    client = RemotingClient(connect=network.connect)
    failures: list[str] = []

    async def ask() -> None:
        try:
            await client.request(ADDRESS, RemotingCommand(11))
        except RemotingConnectError as error:
            failures.append(error.reason)

    async with trio.open_nursery() as outer:
        scope = trio.CancelScope()

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await client.run(task_status=task_status)

        await outer.start(run)
        outer.start_soon(ask)
        server = await network.server()
        await server.next()
        scope.cancel()
    assert failures == ["the connection was closed"]
    with pytest.raises(RemotingConnectError, match="not running"):
        await client.request(ADDRESS, RemotingCommand(11))


async def test_over_loopback(nursery):
    async def serve(stream: trio.SocketStream) -> None:
        server = Server(stream)
        request = await server.next()
        await server.answer(request, body=bytes(request.body) * 2)

    listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
    address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    client = RemotingClient()
    await nursery.start(client.run)
    body = bytes(range(256)) * 4096
    assert (await client.request(address, RemotingCommand(10, body=body))).body == body * 2


async def test_nobody_listens(nursery):
    client = RemotingClient()
    await nursery.start(client.run)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # So that nobody else takes the port; but it does not listen.
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(RemotingConnectError, match=f"{address}: Connection refused"):
            await client.request(address, RemotingCommand(11))


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x", "a b:1", "::1:9876"])
async def test_what_is_no_address(nursery, address):
    client = RemotingClient()
    await nursery.start(client.run)
    with pytest.raises(RemotingConnectError, match="is not host:port"):
        await client.request(address, RemotingCommand(11))


@pytest.mark.parametrize(
    ("address", "parts"),
    [("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:9876", ("::1", 9876)), ("broker-a:65535", ("broker-a", 65_535))],
)
def test_addresses(address, parts):
    assert split_address(address) == parts


async def test_the_first_address_that_takes_a_connection(nursery):
    """A member has several; where none does, each is named with its reason."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    open_port, closed_port = listener.socket.getsockname()[1], free_port()
    stream = await connect_first((f"127.0.0.1:{closed_port}", f"127.0.0.1:{open_port}"))
    assert stream.socket.getpeername()[1] == open_port
    await stream.aclose()
    await listener.aclose()
    with pytest.raises(
        OSError, match=f"127.0.0.1:{closed_port}: Connection refused; 127.0.0.1:{open_port}: Connection refused"
    ):
        await connect_first((f"127.0.0.1:{closed_port}", f"127.0.0.1:{open_port}"))


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_caller_that_is_cancelled_cuts_no_frame(backend):
    """Also where it wrote itself, and the kernel took a part: the rest follows, and then the next frame."""

    async def main() -> list[tuple[int, int]]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = RemotingClient()
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            async with anyio.create_task_group() as tasks:
                await tasks.start(client.run)
                await client.oneway(address, RemotingCommand(0))
                await anyio.sleep(0.1)  # The write task waits from then on.
                with anyio.move_on_after(0.2):
                    await client.request(address, RemotingCommand(1, body=bytes(12_000_000)), timeout_ms=10_000)
                tasks.start_soon(partial(client.oneway, address, RemotingCommand(2, body=b"whole"), timeout_ms=10_000))
                seen = await anyio.to_thread.run_sync(_first_frames, listener, 3)
                tasks.cancel_scope.cancel()
        return seen

    assert anyio.run(main, backend=backend) == [(0, 0), (1, 12_000_000), (2, 5)]


def _first_frames(listener: socket.socket, count: int) -> list[tuple[int, int]]:
    """Code and size of the body of the first frames that somebody sends."""
    peer, _ = listener.accept()
    reader, seen = FrameReader(), list[tuple[int, int]]()
    with peer:
        peer.settimeout(10)
        while len(seen) < count and (data := peer.recv(1 << 20)):
            seen += [(command.code, len(command.body)) for command in map(decode, reader.feed(data))]
    return seen
