"""A link between a slave and its master that misbehaves: a proxy on trio, in a thread of its own, with a seed.

Neither end knows of it: in the slave's namespace connections to replication ports are redirected to it, but its own, which are
marked.
"""

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import trio
from attrs import define, field

from scripts.fault_matrix.places import BROKER_PORT, Place, enter_namespace

PIECE = 64 * 1024
HA_PORT, PORT, OWN_MARK = BROKER_PORT + 1, 20_912, 7
SO_ORIGINAL_DST = 80  # linux/netfilter_ipv4.h
MAGIC = (0xDAA320A7).to_bytes(4, "big")
BODY_AT = 88  # Of a record's bytes, where its hosts are IPv4.
TO_SLAVE, TO_MASTER = "to the slave", "to the master"


@define(eq=False)
class Link:
    """What it does to bytes of the replication stream now. Nothing, unless told otherwise."""

    delay_s: float = 0.0  # Each piece, at most; at random.
    stalled: str = ""  # A direction in which nothing passes.
    tiny: int = 0  # The first so many bytes of each piece go one by one.
    cut_in: int = -1  # Bytes to the slave after which the connection dies.
    half_close: bool = False  # The next bytes to the slave are followed by an end, and the other direction stays.
    flip: str = ""  # "body" or "size": a bit of the next record to the slave.
    flipped: int = 0

    def clear(self) -> None:
        """A good link."""
        self.delay_s, self.stalled, self.tiny, self.cut_in, self.half_close, self.flip = 0.0, "", 0, -1, False, ""


@define(eq=False)
class Proxy:
    """In the namespace of one member: whatever this one opens to a replication port of another goes through it."""

    place: Place
    seed: str
    link: Link = field(factory=Link)
    _token: trio.lowlevel.TrioToken | None = field(default=None, init=False)
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _count: int = field(default=0, init=False)

    @contextmanager
    def running(self) -> Iterator["Proxy"]:
        """For as long as the block lasts."""
        self.place.run(
            *("iptables", "-w", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", str(HA_PORT)),
            *("-m", "mark", "!", "--mark", str(OWN_MARK), "-j", "REDIRECT", "--to-ports", str(PORT)),
        )
        ready = threading.Event()
        thread = threading.Thread(target=self._thread, args=(ready,))
        thread.start()
        try:
            assert ready.wait(10)
            yield self
        finally:
            if self._token is not None:
                self._token.run_sync_soon(self._scope.cancel)
            thread.join(10)

    def _thread(self, ready: threading.Event) -> None:
        enter_namespace(self.place)
        trio.run(self._run, ready)

    async def _run(self, ready: threading.Event) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(partial(trio.serve_tcp, self._serve, PORT, host="0.0.0.0"))
                ready.set()

    async def _serve(self, slave: trio.SocketStream) -> None:
        """One connection to where it was meant to go."""
        self._count += 1
        rng = random.Random(f"{self.seed} {self._count}")
        raw = slave.socket.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        port, ip = struct.unpack("!2xH4s8x", raw)
        with trio.socket.socket() as opened:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, OWN_MARK)
            try:
                await opened.connect((socket.inet_ntoa(ip), port))
            except OSError:
                return
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            master = trio.SocketStream(opened)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, master, slave, TO_SLAVE, rng, scope)
                    nursery.start_soon(self._pump, slave, master, TO_MASTER, rng, scope)

    async def _pump(
        self, source: trio.SocketStream, sink: trio.SocketStream, way: str, rng: random.Random, scope: trio.CancelScope
    ) -> None:
        try:
            while data := await source.receive_some(PIECE):
                if await self._misbehave(bytearray(data), sink, way, rng):
                    return
            await sink.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            scope.cancel()

    async def _misbehave(self, data: bytearray, sink: trio.SocketStream, way: str, rng: random.Random) -> bool:
        """Pass it on; True when this direction is over."""
        link = self.link
        while link.stalled == way:
            await trio.sleep(0.02)
        if link.delay_s:
            await trio.sleep(rng.uniform(0, link.delay_s))
        for at in range(min(link.tiny, len(data))):
            await sink.send_all(data[at : at + 1])
        del data[: link.tiny]
        if way == TO_SLAVE:
            if link.flip:
                self._flip(data, rng)
            if 0 <= link.cut_in <= len(data):
                await sink.send_all(data[: link.cut_in])
                link.cut_in = -1
                raise trio.BrokenResourceError
            if link.cut_in > 0:
                link.cut_in -= len(data)
        if data:
            await sink.send_all(data)
        if way == TO_SLAVE and link.half_close:
            link.half_close = False
            await sink.send_eof()
            return True
        return False

    def _flip(self, data: bytearray, rng: random.Random) -> None:
        """One bit, where a checksum or the framing covers it: what no checksum covers nobody can notice on the way."""
        at = data.find(MAGIC) - 4
        if at < 0 or len(data) < at + BODY_AT + 16:
            return
        place = at + BODY_AT + rng.randrange(16) if self.link.flip == "body" else at + rng.randrange(4)
        data[place] ^= 1 << rng.randrange(8)
        self.link.flip = ""
        self.link.flipped += 1
