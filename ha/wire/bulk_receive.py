"""Takes much from a socket at once, in a thread: the event loop would be woken for each piece."""

import select
import socket
import time
from collections.abc import Callable

from twinlog.ha.errors import HAConnectionLostError
from twinlog.ha.policy.deferred_plan import Receive, Stream

# The thread is not woken for less, as long as more comes: each time costs the master's side as much as this one.
LOW_WATER_BYTES = 256 * 1024


def receive_bulk(sock: socket.socket, buffer: memoryview, take: Callable[[memoryview], None], step: Receive) -> Stream:
    """Give `take` what arrives, in pieces that lie in `buffer`.

    Raises HAConnectionLostError, and what `take` raises.
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LOW_WATER_BYTES)
        try:
            return _receive(sock, buffer, take, step)
        finally:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    except _SocketError as error:
        raise HAConnectionLostError(f"receiving failed: {error.__cause__}") from error


class _SocketError(Exception):
    """Told apart from what the disk says."""


def _receive(sock: socket.socket, buffer: memoryview, take: Callable[[memoryview], None], step: Receive) -> Stream:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    left, until = step.size_max, time.monotonic() + step.seconds_max
    while left > 0 and time.monotonic() < until:
        is_gap = not poll.poll(step.gap_seconds * 1000)
        try:
            size = sock.recv_into(buffer, min(len(buffer), left))
        except BlockingIOError:
            if is_gap:
                return "gap"
            continue
        except OSError as error:
            raise _SocketError from error
        if size == 0:
            return "ended"
        take(buffer[:size])
        left -= size
    return "more"
