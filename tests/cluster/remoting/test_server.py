"""The server over real sockets on loopback: responses, and the effect of bad input."""

import errno
import gc
import os
import resource
import socket
import struct
from contextlib import ExitStack, contextmanager, suppress

import psutil
import pytest
import trio
import trio.lowlevel
import trio.testing
from structlog.testing import capture_logs

from tests.cluster.remoting.serving import (
    BATCH,
    ECHO,
    FAIL,
    FILL,
    HOLD,
    UNKNOWN,
    WAIT,
    Owner,
    frame,
    quick_reader,
    serving,
)
from twinlog.cluster.remoting import server
from twinlog.cluster.remoting.command import (
    FRAME_SIZE_MAX,
    ONEWAY,
    ROCKETMQ,
    RemotingCommand,
    encode,
)
from twinlog.cluster.remoting.connection import BEHIND_BYTES
from twinlog.cluster.remoting.dispatch import Dispatcher
from twinlog.cluster.remoting.errors import RemotingConnectError, RemotingTimeoutError, RequestError
from twinlog.cluster.remoting.request import Reply, handlers_of
from twinlog.cluster.remoting.server import RemotingServer

# Requests and answers


@pytest.mark.parametrize("serialize_type", [0, ROCKETMQ])
async def test_an_answer_comes_in_the_requests_serialization(serialize_type):
    async with serving() as here:
        client = await here.connect()
        answer = await client.ask(ECHO, text="grüße", body=b"body", serialize_type=serialize_type)
        assert (answer.code, answer.opaque, answer.flag, answer.serialize_type) == (0, 1, 1, serialize_type)
        assert answer.ext == {"text": "grüße", "flag": "true", "number": "7"}
        assert answer.body == b"body"


async def test_unknown_codes_are_answered_with_3():
    async with serving() as here:
        answer = await (await here.connect()).ask(UNKNOWN)
        assert (answer.code, answer.remark) == (3, " request type 999 not supported")


async def test_a_check_answers_instead_of_the_handler():
    """It is called for every request, including those of batches, and sees the body."""
    seen = []

    def check(request):
        command = request.command
        seen.append((request.connection.remote_address, command.code, bytes(command.body)))
        if command.body == b"raise":
            raise RequestError(16, "not you")
        return Reply(16, "not that") if command.body == b"refuse" else None

    async with serving() as here:
        here.server.dispatcher.check = check
        client = await here.connect()
        for code, ext in ((ECHO, {"text": "x"}), (BATCH, {}), (UNKNOWN, {})):
            assert (await client.ask(code, body=b"refuse", **ext)).remark == "not that"
            assert (await client.ask(code, body=b"raise", **ext)).remark == "not you"
        assert here.batches == []
        assert (await client.ask(ECHO, text="x", body=b"fine")).body == b"fine"
        assert (await client.ask(BATCH, body=b"fine")).ext == {"size": "4"}
        assert {host for host, *_ in seen} == {here.connection.remote_address}
        assert [code for _, code, _ in seen] == [ECHO, ECHO, BATCH, BATCH, UNKNOWN, UNKNOWN, ECHO, BATCH]


async def test_a_check_may_be_of_some_codes_only():
    """What is sent in masses pays nothing for a check of other requests."""
    async with serving() as here:
        here.server.dispatcher.check, here.server.dispatcher.check_codes = lambda _request: Reply(16, "no"), {ECHO}
        client = await here.connect()
        answers = [await client.ask(ECHO, text="x"), await client.ask(BATCH), await client.ask(FILL, size=1)]
        assert [answer.code for answer in answers] == [16, 0, 0]


async def test_a_check_that_fails_lets_nobody_in():
    async with serving() as here:
        here.server.dispatcher.check = lambda _request: 1 // 0
        client = await here.connect()
        with capture_logs() as logs:
            answers = [await client.ask(ECHO, text="x"), await client.ask(BATCH, body=b"x")]
        assert [answer.code for answer in answers] == [1, 1]
        assert len(logs) == 2
        assert here.batches == []


async def test_what_is_refused_in_a_read_leaves_the_rest_of_it():
    async with serving() as here:
        here.server.dispatcher.check = lambda request: Reply(16, "no") if request.body == b"refuse" else None
        client = await here.connect()
        bodies = [b"one", b"refuse", b"two"]
        await client.send(b"".join(client.request(BATCH, body=body) for body in bodies))
        answers = {answer.opaque: answer.code for answer in [await client.receive() for _ in bodies]}
        assert answers == {1: 0, 2: 16, 3: 0}
        assert sum(here.batches, start=[]) == [b"one", b"two"]  # noqa: RUF017


async def test_answers_of_the_peer_are_not_checked(nursery, autojump_clock):
    async with serving() as here:
        here.server.dispatcher.check = lambda _request: Reply(16, "no")
        client = await here.connect()
        await client.ask(ECHO, text="x")
        answers = []

        async def call():
            answers.append(await here.connection.call(RemotingCommand(220), 3000))

        nursery.start_soon(call)
        await client.send(encode(RemotingCommand.response_to(await client.receive(), 0, remark="hello")))
        await trio.testing.wait_all_tasks_blocked()
        assert [answer.remark for answer in answers] == ["hello"]


async def test_oneway_gets_nothing_whatever_happens():
    async with serving() as here:
        client = await here.connect()
        for code, ext in [
            (ECHO, {"text": "x"}),
            (UNKNOWN, {}),
            (FAIL, {"how": "x"}),
            (ECHO, {}),
            (WAIT, {"seconds": 0}),
        ]:
            await client.send(client.request(code, flag=ONEWAY, **ext))
        assert (await client.ask(ECHO, text="y")).opaque == client.opaque


@pytest.mark.parametrize(
    ("code", "ext", "answered", "remark"),
    [
        (FAIL, {"how": "request error"}, 17, "no such topic"),
        (FAIL, {"how": "exception"}, 1, "ValueError: went wrong"),
        (FAIL, {"how": "large"}, 1, "RemotingProtocolError: frame of"),
        (FAIL, {"how": "no reply"}, 1, "AttributeError"),
        (WAIT, {"seconds": 3}, 24, "late"),
        (WAIT, {"seconds": 4}, 1, "RemotingProtocolError: frame of"),
        (ECHO, {}, 1, "the custom field <text> is null"),
        (FILL, {"size": "many"}, 1, "the custom field <size> is not a number"),
    ],
)
async def test_errors_become_answers(code, ext, answered, remark, autojump_clock):
    """The connection and the server continue."""
    async with serving() as here:
        client = await here.connect()
        with capture_logs() as logs:
            answer = await client.ask(code, **ext)
        assert answer.code == answered
        assert answer.remark.startswith(remark)
        assert len(logs) == ("Error" in remark)
        assert (await client.ask(ECHO, text="y")).code == 0


async def test_answers_may_overtake_each_other(autojump_clock):
    async with serving() as here:
        client = await here.connect()
        await client.send(
            client.request(WAIT, seconds=2)
            + client.request(HOLD)
            + client.request(WAIT, seconds=1)
            + client.request(ECHO, text="x")
        )
        assert [(await client.receive()).opaque for _ in range(3)] == [4, 3, 1]
        here.owner.held[0].reply(Reply.success(late=True))
        answer = await client.receive()
        assert (answer.opaque, answer.ext) == (2, {"late": "true"})


async def test_requests_of_one_read_reach_the_batch_handler_together():
    async with serving() as here:
        client = await here.connect()
        frames = [client.request(BATCH, body=b"%d" % n) for n in range(20)]
        frames.insert(7, client.request(ECHO, text="between"))
        await client.send(b"".join(frames))
        answers = [await client.receive() for _ in range(21)]
        assert {answer.opaque for answer in answers} == set(range(1, 22))
        assert sum(here.batches, start=[]) == [b"%d" % n for n in range(20)]  # noqa: RUF017
        assert len(here.batches) <= 3


async def test_a_batch_handler_that_fails_answers_each():
    async with serving() as here:
        client = await here.connect()
        with capture_logs() as logs:
            await client.send(client.request(BATCH, body=b"fine") + client.request(BATCH, body=b"explode"))
            answers = [await client.receive() for _ in range(2)]
        assert {(answer.code, answer.remark) for answer in answers} <= {(1, "ValueError: a bad batch"), (0, None)}
        assert len(logs) == 1
        assert (await client.ask(ECHO, text="y")).code == 0


async def test_frames_that_are_read_quickly_keep_their_place():
    async with serving() as here:
        here.server.dispatcher.quick = quick_reader
        client = await here.connect()
        bodies = [b"q1", b"slow", b"q2", b"q3", b"slow too", b"explode", b"q4"]
        await client.send(b"".join(client.request(BATCH, body=body) for body in bodies[:5]))
        assert {(await client.receive()).code for _ in bodies[:5]} == {0}
        with capture_logs() as logs:
            await client.send(b"".join(client.request(BATCH, body=body) for body in bodies[5:]))
            answers = [await client.receive() for _ in bodies[5:]]
        assert (answers[0].opaque, answers[0].code) == (6, 1)
        assert (answers[1].opaque, len(logs)) == (7, 1)
        assert sum(here.batches, start=[])[:5] == bodies[:5]  # noqa: RUF017


@pytest.mark.parametrize(("codes", "is_quick"), [(None, False), ({BATCH}, False), ({ECHO}, True)])
async def test_nothing_that_a_check_wants_to_see_is_read_quickly(codes, is_quick):
    async with serving() as here:
        dispatcher = here.server.dispatcher
        dispatcher.check, dispatcher.check_codes = (
            lambda request: Reply(16, "no") if request.body == b"q" else None,
            codes,
        )
        dispatcher.quick = quick_reader
        answer = await (await here.connect()).ask(BATCH, body=b"q")
        assert (answer.code, here.batches) == ((0, [[b"q"]]) if is_quick else (16, []))


@pytest.mark.parametrize("step", [1, 3, 7, 100])
async def test_frames_may_come_in_pieces(step):
    async with serving() as here:
        client = await here.connect()
        data = client.request(ECHO, text="a", body=b"b" * 300) + client.request(BATCH, body=b"c" * 300)
        for at in range(0, len(data), step):
            await client.send(data[at : at + step])
            await trio.testing.wait_all_tasks_blocked()
        assert [(await client.receive()).opaque for _ in range(2)] == [1, 2]
        assert here.batches == [[b"c" * 300]]


async def test_bodies_stay_what_they_were_while_others_send():
    """A handler that replies later still has its own request's body: the receive buffer is reused."""
    async with serving() as here:
        one, two = await here.connect(), await here.connect()
        await one.send(one.request(HOLD, body=b"1" * 1000))
        await trio.testing.wait_all_tasks_blocked()
        await two.ask(ECHO, text="x", body=b"2" * 5000)
        assert here.owner.held[0].body == b"1" * 1000


async def test_the_server_may_ask_its_client(autojump_clock, nursery):
    """As with 40 and 220: the response is paired by its number, or the wait ends."""
    async with serving() as here:
        client = await here.connect()
        await client.ask(ECHO, text="x")
        answers = []

        async def call():
            answers.append(await here.connection.call(RemotingCommand(220), 3000))

        nursery.start_soon(call)
        question = await client.receive()
        assert (question.code, question.is_response) == (220, False)
        await client.send(encode(RemotingCommand.response_to(question, 0, remark="hello")))
        await trio.testing.wait_all_tasks_blocked()
        assert [answer.remark for answer in answers] == ["hello"]
        await client.send(encode(RemotingCommand.response_to(question, 0)))  # Nobody waits for it any more.
        with pytest.raises(RemotingTimeoutError):
            await here.connection.call(RemotingCommand(220), 3000)
        connection = here.connection
        await client.stream.aclose()
        with pytest.raises(RemotingConnectError):
            await connection.call(RemotingCommand(220), 3000)


async def test_a_stop_waits_for_no_answers_of_peers(nursery):
    """They are not read any more; a handler that waits for one can still reply to its own peer."""
    async with serving() as here:
        client = await here.connect()
        await client.ask(ECHO, text="x")
        failed = []

        async def call():
            with pytest.raises(RemotingConnectError):
                await here.connection.call(RemotingCommand(220), 3000)
            failed.append(True)

        nursery.start_soon(call)
        await client.receive()
        here.server.stop_reading()
        await trio.testing.wait_all_tasks_blocked()
        assert failed == [True]
        assert not here.connection.closed
        await call()
        assert failed == [True, True]


# Bad input


BAD = {
    "over 16 MiB": frame(FRAME_SIZE_MAX - 3, 4, b"{}"),
    "negative length": frame(-1, 4, b"{}"),
    "length 0": frame(0, 0),
    "length 3": frame(3, 0),
    "smallest number": frame(-(1 << 31), 4, b"{}"),
    "header longer than its frame": frame(10, 7, b"{}{}{}"),
    "header of 16 MB": frame(1 << 20, 0xFFFFFF),
    "unknown serialization": frame(10, 0x09000006, b"{}{}{}"),
    "broken JSON": frame(10, 6, b"{code:"),
    "JSON of another kind": frame(10, 6, b"[1, 2]"),
    "deep JSON": frame(5004, 5000, b"[" * 5000),
    "not UTF-8": frame(10, 6, b'{"\xff":0'),
    "binary header that ends early": frame(10, 0x01000006, b"\0\1\0\0\0\0"),
    "code that is none": frame(18, 14, b'{"code":"abc"}'),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "random": bytes(range(128, 256)),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
async def test_bad_input_ends_the_connection_with_one_line(data):
    """And no other; earlier requests may or may not be answered, but the server continues."""
    async with serving() as here:
        other, client = await here.connect(), await here.connect()
        with capture_logs() as logs:
            await client.send(data)
            assert await client.receive() is None
        assert len(logs) == 1
        assert logs[0]["why"]
        assert (await other.ask(ECHO, text="y")).code == 0
        assert len(here.server.connections) == 1


async def test_bad_input_time_and_again_is_one_line_now_and_then(autojump_clock):
    """A hundred thousand probes do not make a hundred thousand lines; the next line says how many there were."""
    async with serving() as here:
        with capture_logs() as logs:
            for pause in (0, 0, 0, 6):
                await trio.sleep(pause)
                client = await here.connect()
                await client.send(BAD["random"])
                assert await client.receive() is None
    assert [line["left_out"] for line in logs] == [0, 2]


async def test_a_large_frame_is_no_bad_input():
    async with serving() as here:
        client = await here.connect()
        body = bytes(FRAME_SIZE_MAX - 1000)
        answer = await client.ask(BATCH, body=body)
        assert answer.ext == {"size": str(len(body))}


async def test_half_a_frame_and_then_silence(autojump_clock):
    async with serving(half_frame_seconds_max=30, idle_seconds_max=120) as here:
        client = await here.connect()
        await client.send(client.request(ECHO, text="x")[:-1])
        with capture_logs() as logs:
            assert await client.receive() is None
        assert 30 <= trio.current_time() <= 36
        assert logs == []


async def test_a_frame_that_comes_in_drops_keeps_no_place(autojump_clock):
    """A peer that sends single bytes is treated like one that sends none."""
    async with serving(half_frame_seconds_max=30, idle_seconds_max=120) as here:
        client = await here.connect()
        request = client.request(ECHO, text="x" * 100)
        with suppress(trio.BrokenResourceError), capture_logs() as logs:
            for byte in request:
                await client.send(bytes([byte]))
                await trio.sleep(1)
        assert 30 <= trio.current_time() <= 38
        assert [entry["event"] for entry in logs] == ["connection closed: its request arrives too slowly"]
        assert not here.server.connections


async def test_a_large_frame_over_a_slow_line_is_waited_for(autojump_clock):
    async with serving(half_frame_seconds_max=30, idle_seconds_max=120) as here:
        client = await here.connect()
        frame = client.request(BATCH, body=bytes(400_000))
        for at in range(0, len(frame), 2000):
            await client.send(frame[at : at + 2000])
            await trio.sleep(1)
        assert trio.current_time() > 190
        assert (await client.ask(ECHO, text="x")).code == 0


async def test_a_silent_connection_is_closed_when_it_was_idle_long_enough(autojump_clock):
    async with serving(idle_seconds_max=120) as here:
        silent, talking = await here.connect(), await here.connect()
        for _ in range(5):
            await trio.sleep(40)
            assert (await talking.ask(ECHO, text="x")).code == 0
        assert len(here.server.connections) == 1
        assert await silent.receive() is None


async def test_what_goes_wrong_with_one_connection_ends_that_one_only():
    async with serving() as here:
        before = await here.connect()
        assert (await before.ask(ECHO, text="x")).code == 0
        faults = [ValueError("nobody thought of this")]
        here.server.on_connect.append(lambda connection: _raise(faults))
        with capture_logs() as logs:
            assert await (await here.connect()).receive() is None
        assert [(entry["log_level"], entry["event"]) for entry in logs] == [
            ("error", "connection closed: unexpected error")
        ]
        assert (await before.ask(ECHO, text="y")).code == 0
        assert (await (await here.connect()).ask(ECHO, text="z")).code == 0


def _raise(faults):
    if faults:
        raise faults.pop()


async def test_a_peer_that_leaves_is_forgotten():
    async with serving() as here:
        client, gone = await here.connect(), []
        await client.send(client.request(HOLD))
        await trio.testing.wait_all_tasks_blocked()
        here.connection.on_close.append(gone.append)
        connection = here.connection
        await client.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert gone == [connection]
        assert here.server.connections == set()
        here.owner.held[0].reply(Reply.success())  # A long poll that ends too late.
        assert connection.closed


# Much of everything


async def test_connections_that_die_together_are_forgotten_together():
    """Each callback closes the next connection: that must not nest as deeply as there are connections."""
    count, told = 300, []
    async with serving() as here:

        def tell_the_others(connection):
            told.append(connection)
            for other in list(here.server.connections - set(told)):
                other.write(b"news")

        here.server.on_connect.append(lambda connection: connection.on_close.append(tell_the_others))
        clients = [await here.connect() for _ in range(count)]
        while len(here.server.connections) < count:
            await trio.testing.wait_all_tasks_blocked()
        for client in clients:
            client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.stream.socket.close()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert here.server.connections == set()
        assert len(told) == len(set(told)) == count


async def test_a_slow_reader_gets_everything_in_order():
    async with serving() as here:
        client = await here.connect()
        for number in range(40):
            await client.send(client.request(FILL, size=100_000, parts=1 + number % 3))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert here.connection.unsent_bytes > 0
        for number in range(40):
            answer = await client.receive()
            assert (answer.opaque, len(answer.body)) == (number + 1, 100_000 * (1 + number % 3))
            assert bytes(answer.body) == b"".join(bytes([n]) * 100_000 for n in range(1 + number % 3))
        assert here.connection.unsent_bytes == 0


async def test_many_small_buffers_go_out_whole():
    """More buffers than one system call takes."""
    async with serving() as here:
        client = await here.connect()
        answer = await client.ask(FILL, size=3, parts=5000)
        assert bytes(answer.body) == b"".join(bytes([n % 256]) * 3 for n in range(5000))


async def test_a_reader_that_never_reads_is_not_read_from_and_closed_in_the_end(autojump_clock):
    """Its unsent bytes are bounded, one line is logged, and others are not affected."""
    async with serving(unread_seconds_max=60) as here:
        client, other = await here.connect(), await here.connect()
        (connection,) = [each for each in here.server.connections if each.remote_address.endswith(port_of(client))]
        most = 0
        with capture_logs() as logs:
            with trio.move_on_after(30):
                while True:
                    await client.send(client.request(FILL, size=1 << 20))
                    most = max(most, connection.unsent_bytes)
                    await trio.lowlevel.checkpoint()
            assert connection.is_behind
            assert most < BEHIND_BYTES + (2 << 20)
            for _ in range(9):
                assert (await other.ask(ECHO, text="x")).code == 0
                await trio.sleep(5)
        assert connection.closed
        assert len(here.server.connections) == 1
        assert [entry["event"] for entry in logs] == ["connection closed: the peer does not read its responses"]


def port_of(client):
    return f":{client.stream.socket.getsockname()[1]}"


async def test_one_answer_above_the_limit_is_enough():
    async with serving(unsent_bytes_max=4 << 20) as here:
        client = await here.connect()
        with capture_logs() as logs:
            await client.send(client.request(FILL, size=1 << 20, parts=15))
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert here.server.connections == set()
        assert [entry["event"] for entry in logs] == ["connection closed: the peer does not read its responses"]


async def test_connections_are_limited():
    async with serving(connections_max=3) as here:
        clients = [await here.connect() for _ in range(3)]
        for client in clients:
            assert (await client.ask(ECHO, text="x")).code == 0
        assert await (await here.connect()).receive() is None
        await clients[0].stream.aclose()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (await (await here.connect()).ask(ECHO, text="x")).code == 0


@contextmanager
def no_gaps():
    """The next free descriptor; all above it are free."""
    with ExitStack() as gaps:
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        while gaps.enter_context(socket.socket()).fileno() < highest:
            pass
        with socket.socket() as following:
            descriptor = following.fileno()
        yield descriptor


async def test_connections_leave_descriptors_for_files(monkeypatch):
    """A flood of connections must not prevent the store from opening its next file, which it cannot recover from."""
    with no_gaps() as descriptor:
        limit = descriptor + 100
        monkeypatch.setattr(resource, "getrlimit", lambda _which: (limit, limit))
        monkeypatch.setattr(server, "_DESCRIPTORS_KEPT", 25)
        async with serving() as here:
            with capture_logs() as logs:
                clients = [await here.connect() for _ in range(100)]
                assert await clients[-1].receive() is None
            assert 0 < len(here.server.connections) < 50
            assert [entry["event"] for entry in logs] == ["connections refused: there are too many"]
            assert (await clients[0].ask(ECHO, text="x")).code == 0


def knock(address, count, *, reset):
    """Connect and disconnect at once; with `reset` without FIN."""
    for number in range(count):
        with socket.create_connection(address) as peer:
            if reset:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if number % 3 == 0:
                peer.send(b"\0")


@pytest.mark.slow
@pytest.mark.parametrize(
    "reset",
    [
        pytest.param(False, id="goodbye", marks=pytest.mark.long),  # tests/processes has as many at each port.
        pytest.param(True, id="reset"),
    ],
)
async def test_ten_thousand_connects_leave_nothing_behind(reset):
    async with serving() as here:
        with capture_logs() as logs:
            await trio.to_thread.run_sync(lambda: knock(here.address, 1000, reset=reset))
            gc.collect()
            before = psutil.Process().memory_info().rss
            await trio.to_thread.run_sync(lambda: knock(here.address, 10_000, reset=reset))
            assert (await (await here.connect()).ask(ECHO, text="x")).code == 0
            gc.collect()
            grown = psutil.Process().memory_info().rss - before
        assert len(logs) <= 1
        assert grown < 8 << 20
        assert len(here.server.connections) <= 1
        assert len(here.server._readers) <= 1


async def test_without_descriptors_it_waits(autojump_clock):
    """Accepting continues once there are some; the loop does not spin meanwhile."""
    listener = FullListener(times=3)
    server = RemotingServer(Dispatcher({}))
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server._accept, listener)
            await trio.sleep(10)
            nursery.cancel_scope.cancel()
    assert [entry["log_level"] for entry in logs] == ["error"] * 3
    listener.close()


class FullListener(socket.socket):
    """A socket that is always readable and finds no descriptors a few times."""

    def __init__(self, times):
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        theirs.send(b"x")
        self.theirs, self.times = theirs, times
        self.setblocking(False)

    def accept(self):
        self.times -= 1
        if self.times >= 0:
            raise OSError(errno.EMFILE, "too many open files")
        self.recv(1)
        raise BlockingIOError

    def close(self):
        self.theirs.close()
        super().close()


async def test_the_end_closes_everything():
    async with serving() as here:
        client = await here.connect()
        await client.ask(ECHO, text="x")
        connection = here.connection
    assert connection.closed
    with pytest.raises(OSError, match=r"111|refused|connect"):
        await here.connect()


def test_two_handlers_for_one_code_are_a_mistake():
    with pytest.raises(AssertionError, match="two handlers"):
        handlers_of(Owner(), Owner())
