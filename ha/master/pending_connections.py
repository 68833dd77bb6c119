"""Where connections wait that nobody knows: each may be a slave that has only just registered.

Such a connection costs one small object and no task. One task watches all of them with an epoll set of its own. Nothing
is read from them, nothing is sent to them: what they ask waits in the kernel until they are let in, when their
connection begins as any other, or sent away.
"""

import select
import socket
from collections.abc import Callable
from contextlib import suppress

import trio
from attrs import define, field

from twinlog.ha.config import HAConfig
from twinlog.ha.wire.protocol import ACK
from twinlog.ha.wire.transport import RECEIVE_SIZE
from twinlog.store.util.wakeup import Wakeup

TICK = 0.5  # Seconds: how late a guest may be sent away, and how often the name servers are asked meanwhile.
LEFT = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
EVENTS = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET  # On each arrival: it is not read, so it stays readable.


@define(eq=False)
class Guest:
    """A connection that waits to be let in."""

    sock: socket.socket
    address: str  # IP:PORT
    ip: str
    since: float
    asked_at: float | None = None  # When its request was there.


@define(eq=False)
class Lobby:
    """`let_in` gets a guest's socket once `admits` says yes to its IP; `refuse` is told whom it sent away, and why."""

    config: HAConfig
    admits: Callable[[str], bool]
    let_in: Callable[[socket.socket, str, str], None]
    refuse: Callable[[Guest], None]
    ask_members: Callable[[], None]
    guests: dict[int, Guest] = field(factory=dict, init=False)  # By descriptor, oldest first.
    _arrived: Wakeup = field(factory=Wakeup, init=False)
    _epoll: select.epoll | None = field(default=None, init=False)

    async def run(self) -> None:
        """Watch the guests until cancelled; then all are sent away."""
        with select.epoll() as self._epoll:
            try:
                while True:
                    if not self.guests:
                        await self._arrived.wait()
                    with trio.move_on_after(TICK):
                        await trio.lowlevel.wait_readable(self._epoll.fileno())
                    await trio.lowlevel.checkpoint()
                    for fd, events in self._epoll.poll(0):
                        self._look(self.guests[fd], left=bool(events & LEFT))
                    self._expire()
            finally:
                self.send_all_away()
                self._epoll = None

    def take(self, sock: socket.socket, address: str, ip: str) -> None:
        """Let a connection wait; it owns the socket now. One that has been closed by its peer already is dropped."""
        guest = Guest(sock, address, ip, trio.current_time())
        if self._epoll is None:  # It stops.
            sock.close()
            return
        sock.setblocking(False)
        self.guests[sock.fileno()] = guest
        self._epoll.register(sock.fileno(), EVENTS)
        self._arrived.set()
        self._look(guest)

    def members_changed(self) -> None:
        """Let in who may follow now."""
        for guest in list(self.guests.values()):
            if self.admits(guest.ip):
                self._forget(guest)
                self.let_in(guest.sock, guest.address, guest.ip)

    def send_away(self, guest: Guest) -> None:
        """Close its connection."""
        self._forget(guest)
        guest.sock.close()

    def send_all_away(self) -> None:
        """Close all: what they ask was meant for a log, or an epoch, that is over. They may come back."""
        for guest in list(self.guests.values()):
            self.send_away(guest)

    def _forget(self, guest: Guest) -> None:
        del self.guests[guest.sock.fileno()]
        if self._epoll is not None:
            self._epoll.unregister(guest.sock.fileno())

    def _look(self, guest: Guest, *, left: bool = False) -> None:
        """See what has arrived, without taking it. A peer that has left is forgotten, whatever it said before."""
        size = 0
        if not left:
            try:
                size = len(guest.sock.recv(ACK.size, socket.MSG_PEEK))
            except BlockingIOError:
                return
            except OSError:
                pass
        if size == 0:
            self.send_away(guest)
        elif size == ACK.size and guest.asked_at is None:
            guest.asked_at = trio.current_time()
            self.ask_members()

    def _expire(self) -> None:
        now = trio.current_time()
        silence, patience = self.config.housekeeping_interval_ms / 1000, self.config.admission_timeout_ms / 1000
        late = [
            guest
            for guest in self.guests.values()
            if now >= (guest.since + silence if guest.asked_at is None else guest.asked_at + patience)
        ]
        for guest in late:
            with suppress(OSError):
                guest.sock.recv(RECEIVE_SIZE)  # Or the kernel would say that the connection broke, not that it ends.
            self.send_away(guest)
            self.refuse(guest)
        if any(guest.asked_at is not None for guest in self.guests.values()):
            self.ask_members()
