"""A proxy between two members: a stream whose bytes take their time, in virtual seconds, and can be held up or cut.

Bytes are under way all at once, as on a real link: a delay is no limit of speed. `WINDOW` bytes at most are under way each way.
"""

from collections import deque

import trio
from attrs import define, field

WINDOW = 8 << 20


@define(eq=False)
class Line:
    """One link, both ways: `delay` seconds each; `held`: nothing gets through, and nobody is told."""

    delay: float = 0.0
    held: bool = False
    changed: trio.Event = field(factory=trio.Event)
    ends: "list[LineStream]" = field(factory=list)

    def hold(self, held: bool) -> None:
        """Stop everything, or let it go on."""
        self.held = held
        self.changed.set()
        self.changed = trio.Event()

    def cut(self) -> None:
        """Reset all connections over it."""
        for end in self.ends:
            end.broken = True
            end.moved()
        self.ends.clear()

    def connect(self) -> "tuple[LineStream, LineStream]":
        """Both ends of a new connection."""
        one, other = LineStream(self), LineStream(self)
        one.peer, other.peer = other, one
        self.ends += (one, other)
        return one, other


@define(eq=False)
class LineStream(trio.abc.Stream):
    """One end. `arriving`: when each piece is there, and the piece."""

    line: Line
    peer: "LineStream" = field(init=False)
    arriving: deque[tuple[float, bytes]] = field(factory=deque)
    size: int = 0  # Of what is arriving.
    ended: bool = False
    broken: bool = False
    closed: bool = False
    _moved: trio.Event = field(factory=trio.Event)

    def moved(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self._check()
        peer = self.peer
        while peer.size > WINDOW:
            await peer._moved.wait()
            self._check()
        peer.arriving.append((trio.current_time() + self.line.delay, bytes(data)))
        peer.size += len(data)
        peer.moved()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        while True:
            self._check()
            if self.line.held:
                await self.line.changed.wait()
            elif self.arriving and self.arriving[0][0] <= trio.current_time():
                return self._take(max_bytes or WINDOW)
            elif self.arriving:
                with trio.move_on_at(self.arriving[0][0]):
                    await self._moved.wait()
            elif self.ended:
                return b""
            else:
                await self._moved.wait()

    def _take(self, max_bytes: int) -> bytes:
        at, piece = self.arriving.popleft()
        if len(piece) > max_bytes:
            self.arriving.appendleft((at, piece[max_bytes:]))
            piece = piece[:max_bytes]
        self.size -= len(piece)
        self.moved()
        return piece

    def _check(self) -> None:
        if self.closed:
            raise trio.ClosedResourceError
        if self.broken:
            raise trio.BrokenResourceError("connection reset")

    async def aclose(self) -> None:
        if not self.closed:
            self.closed = self.peer.ended = True
            self.peer.moved()
        await trio.lowlevel.checkpoint()
