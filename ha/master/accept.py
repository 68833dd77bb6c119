"""Accepts connections, and chooses which end when there are too many. Source: HAService.AcceptSocketService."""

import errno
import socket
from collections.abc import Callable, Sequence

import structlog
import trio
from attrs import define, field, frozen

log = structlog.get_logger()

BACKLOG = 1024  # RocketMQ: 50. A flood of untrusted peers must not keep a slave out for seconds.
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
ACCEPTED_AT_ONCE = 16  # Then other tasks run.
RECEIVE_BUFFER_SIZE = 64 * 1024  # Bytes. Reports are 8 each; what an untrusted peer sends waits in the kernel's memory.
PAUSE = 0.1  # Seconds, when the process or the machine can take no more.


@frozen
class Seat:
    """A connection, as far as the choice of those that must leave depends on it."""

    ip: str
    admitted: bool  # It may follow; otherwise it is pending.
    has_request: bool


def must_leave(seats: Sequence[Seat], new: Seat, *, total: int, per_address: int) -> list[int] | None:
    """Positions in `seats`, oldest first, of the connections that must end for a new one; None: it is refused.

    `total`, `per_address`: most connections, of all IPs and of one. Connections without a request end before those with one,
    pending ones before admitted ones; a pending connection never replaces an admitted one. A slave that is served stays.
    """
    leavers: list[int] = []
    same = [at for at, seat in enumerate(seats) if seat.ip == new.ip]
    for among, count_max in ((same, per_address), (range(len(seats)), total)):
        left = [at for at in among if at not in leavers]
        if len(left) >= count_max:
            chosen = _victim(seats, left, new)
            if chosen is None:
                return None
            leavers.append(chosen)
    return leavers


def _victim(seats: Sequence[Seat], among: Sequence[int], new: Seat) -> int | None:
    kinds = [(False, False)]
    if new.admitted:
        kinds += [(False, True), (True, False)]
    for kind in kinds:
        for at in among:
            if (seats[at].admitted, seats[at].has_request) == kind:
                return at
    return None


@define(eq=False)
class AcceptSocketService:
    """Listening socket. `take` gets each connection at once: it must not block, and owns the socket from then on."""

    host: str
    port: int
    take: Callable[[socket.socket, str, str], None]  # socket, IP:PORT, IP
    _exhausted: bool = field(default=False, init=False)  # So that it is logged once.

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled; started() gives the port. Raises OSError when the address cannot be had."""
        listeners = await trio.open_tcp_listeners(self.port, host=self.host, backlog=BACKLOG)
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_SIZE)
                nursery.start_soon(self._accept_task, listener)
            task_status.started(listeners[0].socket.getsockname()[1])

    async def _accept_task(self, listener: trio.SocketListener) -> None:
        async with listener:
            while True:
                await trio.lowlevel.wait_readable(listener.socket)
                if not self._accept_some(listener.socket.fileno()):
                    await trio.sleep(PAUSE)

    def _accept_some(self, fd: int) -> bool:
        """Accept up to ACCEPTED_AT_ONCE connections; False when the process or the machine is out of resources for now."""
        waiting = socket.socket(fileno=fd)  # The plain socket: trio's costs a task switch for each connection.
        try:
            for _ in range(ACCEPTED_AT_ONCE):
                try:
                    accepted, peer = waiting.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    # Otherwise one connection was reset before it was accepted, which does not matter.
                    if error.errno in OUT_OF_RESOURCES:
                        self._out_of_resources(error)
                        return False
                    continue
                self._exhausted = False
                ip = peer[0].removeprefix("::ffff:")
                self.take(accepted, f"{ip}:{peer[1]}", ip)
        finally:
            waiting.detach()
        return True

    def _out_of_resources(self, error: OSError) -> None:
        if not self._exhausted:
            self._exhausted = True
            log.error("accepting slaves failed: out of resources, retrying", why=str(error))
