"""Free TCP ports on loopback, below the range that the kernel hands out to outgoing connections."""

import random
import socket
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack

LOWEST, HIGHEST = 12_000, 32_000
HOST = "127.0.0.1"
BROKER_OFFSETS = (-2, 0, 1, 3)  # Fast port, remoting, HA, twinlog's HTTP; RocketMQ 4.9 fixes the others by the second.


_reserved: deque[ExitStack] = deque(maxlen=32)  # The latest ones: a port is bound soon after it was chosen.


def free_port(offsets: Iterable[int] = (0,)) -> int:
    """Return a port P such that P + offset is free for each of the offsets.

    Other test runs on this machine are not given it meanwhile: whoever has chosen a port holds a socket of that name.
    """
    wanted = tuple(offsets)
    for _ in range(200):
        port = random.randrange(LOWEST - min(wanted), HIGHEST - max(wanted))
        with ExitStack() as stack:
            if all(_is_free(port + offset, stack) for offset in wanted):
                if len(_reserved) == _reserved.maxlen:
                    _reserved.popleft().close()
                _reserved.append(stack.pop_all())
                return port
    raise RuntimeError(f"no free ports between {LOWEST} and {HIGHEST}")


def free_broker_port() -> int:
    """A port for a broker's remoting server, with those that come with it."""
    return free_port(BROKER_OFFSETS)


def _is_free(port: int, reservations: ExitStack) -> bool:
    name = reservations.enter_context(socket.socket(socket.AF_UNIX))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As servers do: TIME_WAIT is no reason to refuse.
        try:
            name.bind(f"\0twinlog-test-port-{port}")
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
