"""A network of memory streams with a fault layer between any two machines.

Each direction of a connection is a Wire: bytes are taken into a window of bounded size, travel in pieces of any size with a
delay each, and arrive in order. A link, from one IP to another, can be cut in one direction (nothing arrives, nobody is told,
as when packets are dropped: it arrives once the link is whole again), be slow, flip a bit, or reset all that goes over it,
at once or in the middle of a frame.
"""

import math
import random
from collections.abc import Awaitable, Callable

import trio
from attrs import define, field

from tests.simulation.determinism import machine_of_task
from tests.support.stream_transport import StreamTransport
from twinlog.ha.errors import HAConnectionLostError

WINDOW = 64 * 1024
Serve = Callable[[StreamTransport, str, str], Awaitable[None]]  # transport, IP:PORT of the peer, its IP


@define(eq=False)
class Link:
    """What happens to bytes on their way from one machine to another."""

    cut: bool = False
    delay_max: float = 0.002
    piece_max: int = WINDOW
    flips: int = 0  # So many of the next pieces get a bit flipped.
    flipped: int = 0  # So many did.
    resets_after: int | None = None  # So many bytes from now on all connections over it are reset.
    changed: trio.Event = field(factory=trio.Event)
    changed_at: float = 0.0

    def change(self, **values: object) -> None:
        """Set some of it."""
        for name, value in values.items():
            setattr(self, name, value)
        self.changed_at = trio.current_time()
        self.changed.set()
        self.changed = trio.Event()


@define(eq=False)
class Wire:
    """One direction of one connection."""

    link: Link
    rng: random.Random
    sent: bytearray = field(factory=bytearray)
    arrived: bytearray = field(factory=bytearray)
    ended: bool = False  # The sender closed.
    closed: bool = False  # The receiver closed.
    broken: bool = False
    muted: bool = False  # The machine at one end lost power: nobody says anything any more.
    moved: trio.Event = field(factory=trio.Event)

    def notify(self) -> None:
        self.moved.set()
        self.moved = trio.Event()

    async def run(self) -> None:
        """Carry until the end."""
        machine_of_task.set(None)  # It goes on while the process at its end stands still.
        link, rng = self.link, self.rng
        while not self.broken:
            if link.cut:
                await self._either(link)
            elif self.muted:
                await self.moved.wait()
            elif self.sent and len(self.arrived) < WINDOW:
                await trio.sleep(rng.random() * link.delay_max)
                if not link.cut and not self.broken and not self.muted:
                    self._carry(link)
            elif self.ended and not self.sent:
                return
            else:
                await self.moved.wait()

    async def _either(self, link: Link) -> None:
        changed, moved = link.changed, self.moved
        async with trio.open_nursery() as nursery:

            async def wait(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait, changed)
            nursery.start_soon(wait, moved)

    def _carry(self, link: Link) -> None:
        size = min(len(self.sent), self.rng.randint(1, link.piece_max))
        resets = False
        if link.resets_after is not None:
            size = min(size, link.resets_after)
            link.resets_after -= size
            resets = link.resets_after == 0
        piece = self.sent[:size]
        del self.sent[:size]
        if link.flips and piece:
            link.flips -= 1
            link.flipped += 1
            piece[self.rng.randrange(len(piece))] ^= 1 << self.rng.randrange(8)
        self.arrived += piece
        if resets:
            link.change(resets_after=None)
            self.break_off()
        self.notify()

    def break_off(self) -> None:
        """Reset: both ends find it broken, and what was under way is gone."""
        self.broken = True
        self.notify()


@define(eq=False)
class SimStream(trio.abc.Stream):
    """One end of a connection."""

    outgoing: Wire
    incoming: Wire
    name: str
    is_closed: bool = False
    is_reset: bool = False  # This end only.
    read_at: float = -math.inf  # When bytes were taken last.

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        rest = memoryview(bytes(data))
        while len(rest):
            self._check()
            if self.outgoing.closed:
                raise trio.BrokenResourceError("reset by peer")
            room = WINDOW - len(self.outgoing.sent)
            if room <= 0:
                await self.outgoing.moved.wait()
                continue
            self.outgoing.sent += rest[:room]
            rest = rest[room:]
            self.outgoing.notify()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        wire = self.incoming
        while True:
            self._check()
            if wire.arrived:
                size = min(len(wire.arrived), max_bytes or WINDOW)
                data = bytes(wire.arrived[:size])
                del wire.arrived[:size]
                wire.notify()
                self.read_at = trio.current_time()
                return data
            if wire.ended and not wire.sent and not wire.muted:
                return b""
            await wire.moved.wait()

    def _check(self) -> None:
        if self.is_closed:
            raise trio.ClosedResourceError
        if self.is_reset or self.incoming.broken or self.outgoing.broken:
            raise trio.BrokenResourceError("connection reset")

    async def aclose(self) -> None:
        if not self.is_closed:
            self.is_closed = self.outgoing.ended = self.incoming.closed = True
            self.incoming.sent.clear()
            self.outgoing.notify()
            self.incoming.notify()
        await trio.lowlevel.checkpoint()


@define(eq=False)
class Network:
    """Listeners by address, links by pair of IPs, and the connections there are."""

    rng: random.Random
    nursery: trio.Nursery
    listeners: dict[str, tuple[trio.Nursery, Serve]] = field(factory=dict)
    links: dict[tuple[str, str], Link] = field(factory=dict)
    connections: list[tuple[str, str, Wire, Wire, SimStream]] = field(factory=list)  # The last is the client's end.
    _port: int = 40_000

    def link(self, source: str, target: str) -> Link:
        """The way from one IP to another."""
        return self.links.setdefault((source, target), Link())

    def listen(self, address: str, nursery: trio.Nursery, serve: Serve) -> None:
        """Whoever connects to an address is served in this nursery."""
        self.listeners[address] = (nursery, serve)

    def passes(self, one: str, other: str) -> bool:
        """Whether packets go both ways."""
        return not self.link(one, other).cut and not self.link(other, one).cut

    @property
    def flipped(self) -> int:
        """How many bits were flipped."""
        return sum(link.flipped for link in self.links.values())

    def is_clear(self, one: str, other: str) -> bool:
        """Whether nothing is the matter with the way, in either direction."""
        links = (self.link(one, other), self.link(other, one))
        return not any(
            link.cut or link.flips or link.resets_after or link.delay_max > 0.01 or link.piece_max < WINDOW
            for link in links
        )

    def clear_since(self, one: str, other: str) -> float:
        """Since when nothing is the matter with it."""
        if not self.is_clear(one, other):
            return trio.current_time()
        return max(self.link(one, other).changed_at, self.link(other, one).changed_at)

    async def round_trip(self, one: str, other: str) -> None:
        """A question and its answer; for ever, while the way is cut."""
        for source, target in ((one, other), (other, one)):
            link = self.link(source, target)
            while link.cut:
                await link.changed.wait()
            await trio.sleep(self.rng.random() * link.delay_max)

    async def connect(self, ip: str, address: str) -> StreamTransport:
        """Connect from an IP. Raises HAConnectionLostError when nobody listens; waits for ever while the way is cut."""
        target = address.rpartition(":")[0]
        await self.round_trip(ip, target)
        if address not in self.listeners:
            raise HAConnectionLostError("cannot connect: connection refused")
        self._port += 1
        local = f"{ip}:{self._port}"
        there, back = Wire(self.link(ip, target), self.rng), Wire(self.link(target, ip), self.rng)
        client = SimStream(there, back, local)
        self.connections.append((ip, target, there, back, client))
        self.nursery.start_soon(there.run)
        self.nursery.start_soon(back.run)
        nursery, serve = self.listeners[address]
        nursery.start_soon(serve, StreamTransport(SimStream(back, there, address)), local, ip)
        transport = StreamTransport(client)
        transport.local_address = local
        return transport

    def reset(self, one: str, other: str | None = None) -> None:
        """Break all connections of an IP, or between two."""
        for source, target, there, back, _ in self.connections:
            if one in (source, target) and (other is None or other in (source, target)):
                there.break_off()
                back.break_off()
        self.connections = [each for each in self.connections if not each[2].broken]

    def reset_half(self, ip: str) -> None:
        """The clients at an IP lose their connections, as to a router that forgets them; those they talked to hear nothing."""
        for source, _, there, back, client in self.connections:
            if source == ip and not client.is_closed:
                there.muted = back.muted = client.is_reset = True
                back.notify()
                there.notify()

    def mute(self, ip: str) -> None:
        """A machine lost power: its connections stay, and say nothing."""
        for source, target, there, back, _ in self.connections:
            if ip in (source, target):
                there.muted = back.muted = True

    def heal(self) -> None:
        """Make everything whole, and quick."""
        for link in self.links.values():
            link.change(cut=False, delay_max=0.002, piece_max=WINDOW, flips=0, resets_after=None)
