"""Takes connections, and decides who has to go when there are too many. Source: HAService.AcceptSocketService."""

import errno
import socket
from collections.abc import Callable, Iterable

import trio
from attrs import define, frozen

BACKLOG = 1024  # RocketMQ: 50. A flood of strangers must not keep a slave out for seconds.
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PAUSE = 0.1  # Seconds, when the process or the machine can take no more.


@frozen
class Seat:
    """What the choice of a victim depends on."""

    registered: bool  # Its IP is that of a registered slave.
    has_request: bool


def victim(seats: Iterable[Seat], *, newcomer_registered: bool) -> int | None:
    """Choose who must leave for a newcomer, by position in `seats`, oldest first; None: the newcomer is refused.

    Strangers that never asked for anything go first. For a registered slave other strangers go, too, then the oldest
    connection from its own kind that has asked for nothing.
    """
    waiting_stranger = stranger = waiting = None
    for at, seat in enumerate(seats):
        if not seat.registered and not seat.has_request and waiting_stranger is None:
            waiting_stranger = at
        if not seat.registered and stranger is None:
            stranger = at
        if not seat.has_request and waiting is None:
            waiting = at
    if waiting_stranger is not None or not newcomer_registered:
        return waiting_stranger
    return stranger if stranger is not None else waiting


@define(eq=False)
class AcceptSocketService:
    """The listening socket. `take` gets each connection at once: it must not block, and owns the socket then."""

    host: str
    port: int
    take: Callable[[socket.socket, str, str], None]  # socket, IP:PORT, IP

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled; started() gives the port. Raises OSError when the address cannot be had."""
        listeners = await trio.open_tcp_listeners(self.port, host=self.host, backlog=BACKLOG)
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(self._accept_task, listener)
            task_status.started(listeners[0].socket.getsockname()[1])

    async def _accept_task(self, listener: trio.SocketListener) -> None:
        async with listener:
            while True:
                try:
                    accepted, peer = await listener.socket.accept()
                except OSError as error:
                    # Otherwise one connection was reset before it was taken, which is no matter.
                    if error.errno in OUT_OF_RESOURCES:
                        await trio.sleep(PAUSE)
                    continue
                ip = peer[0].removeprefix("::ffff:")
                self.take(socket.socket(fileno=accepted.detach()), f"{ip}:{peer[1]}", ip)
