"""A remoting server with a handler of each kind, and a client of it that speaks frames."""

import struct
import time
from contextlib import asynccontextmanager
from typing import ClassVar, NamedTuple

import trio
import trio.lowlevel
import trio.testing
from attrs import define

from twinlog.cluster.remoting.command import (
    FRAME_SIZE_MAX,
    FrameReader,
    RemotingCommand,
    decode,
    encode,
)
from twinlog.cluster.remoting.config import ServerConfig
from twinlog.cluster.remoting.dispatch import Dispatcher
from twinlog.cluster.remoting.errors import RequestError
from twinlog.cluster.remoting.header_fields import I32, RequestHeader
from twinlog.cluster.remoting.request import Reply, Request, handlers_of
from twinlog.cluster.remoting.server import RemotingServer, open_listener

ECHO, FILL, FAIL, WAIT, HOLD, BURN, BATCH, UNKNOWN = 901, 902, 903, 904, 905, 906, 310, 999


@define
class Echo(RequestHeader):
    code: ClassVar[int] = ECHO
    text: str


@define
class Fill(RequestHeader):
    code: ClassVar[int] = FILL
    size: I32
    parts: I32 = 1


@define
class Fail(RequestHeader):
    code: ClassVar[int] = FAIL
    how: str


@define
class Wait(RequestHeader):
    code: ClassVar[int] = WAIT
    seconds: I32


@define
class Hold(RequestHeader):
    code: ClassVar[int] = HOLD


@define
class Burn(RequestHeader):
    code: ClassVar[int] = BURN
    seconds: str


class Owner:
    """Serves a request of each kind."""

    def __init__(self):
        self.held: list[Request] = []
        self.look, self.seen = lambda: None, []  # Each Burn looks, and keeps what it sees.

    def echo(self, header: Echo, request: Request) -> Reply:
        return Reply.success(body=bytes(request.body), text=header.text, flag=True, number=7, nothing=None)

    def fill(self, header: Fill, request: Request) -> Reply:
        return Reply.success(body=[memoryview(bytes([n % 256]) * header.size) for n in range(header.parts)])

    def fail(self, header: Fail, request: Request) -> Reply:
        if header.how == "request error":
            raise RequestError(17, "no such topic")
        if header.how == "large":
            return Reply.success(body=bytes(FRAME_SIZE_MAX))
        if header.how == "no reply":
            return "nonsense"
        raise ValueError("went wrong")

    async def wait(self, header: Wait, request: Request) -> Reply:
        await trio.sleep(header.seconds)
        if header.seconds == 3:
            raise RequestError(24, "late")
        if header.seconds == 4:
            return Reply.success(body=bytes(FRAME_SIZE_MAX))
        return Reply.success(seconds=header.seconds)

    def hold(self, header: Hold, request: Request) -> None:
        self.held.append(request)

    def burn(self, header: Burn, request: Request) -> Reply:
        """Blocks the event loop."""
        self.seen.append(self.look())
        until = time.monotonic() + float(header.seconds)
        while time.monotonic() < until:
            pass
        return Reply.success()


class Client:
    """Speaks frames over a socket."""

    def __init__(self, stream: trio.SocketStream):
        self.stream, self.reader, self.frames, self.opaque = stream, FrameReader(), [], 0

    def request(self, code, *, body=b"", flag=0, serialize_type=0, **ext):
        self.opaque += 1
        texts = {name: str(value) for name, value in ext.items()}
        return encode(RemotingCommand(code, self.opaque, flag, texts, body, serialize_type=serialize_type))

    async def send(self, data):
        await self.stream.send_all(data)

    async def receive(self):
        """The next command of the server; None when it closed the connection."""
        while not self.frames:
            try:
                data = await self.stream.receive_some(1 << 20)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self.frames += [decode(bytes(frame)) for frame in self.reader.feed(data)]
        return self.frames.pop(0)

    async def ask(self, code, **how):
        await self.send(self.request(code, **how))
        return await self.receive()


class Serving:
    """A server under test with its owner; `connect` gives clients."""

    def __init__(self, server, owner, address):
        self.server, self.owner, self.address = server, owner, address
        self.batches, self.streams = [], []

    async def connect(self):
        self.streams.append(await trio.open_tcp_stream(*self.address))
        return Client(self.streams[-1])

    @property
    def connection(self):
        (connection,) = self.server.connections
        return connection


@asynccontextmanager
async def serving(**config):
    """A server on a free port of loopback, for as long as the block runs."""
    owner = Owner()
    listener = open_listener("127.0.0.1", 0)
    dispatcher = Dispatcher(
        handlers_of(owner),
        ServerConfig(**config),
        batch=lambda connection, commands: take_batch(here, connection, commands),
        batch_codes=(BATCH,),
    )
    server = RemotingServer(dispatcher, ServerConfig(**config))
    here = Serving(server, owner, listener.getsockname())
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, listener)
            with trio.fail_after(300):  # Virtual seconds, mostly.
                yield here
            nursery.cancel_scope.cancel()
    finally:
        for stream in here.streams:
            stream.socket.close()


class ReadQuickly(NamedTuple):
    """A request that was read without the dispatcher's decode()."""

    command: RemotingCommand


def quick_reader(_connection):
    """Reads requests whose body begins with a q."""
    return lambda frame: ReadQuickly(decode(frame)) if bytes(decode(frame).body[:1]) == b"q" else None


def take_batch(here, connection, commands):
    commands = [each.command if isinstance(each, ReadQuickly) else each for each in commands]
    if any(command.body == b"explode" for command in commands):
        raise ValueError("a bad batch")
    here.batches.append([bytes(command.body) for command in commands])
    for command in commands:
        Request(connection, command).reply(Reply.success(size=len(command.body)))


def frame(total, header_word, rest=b""):
    return struct.pack(">iI", total, header_word) + rest
