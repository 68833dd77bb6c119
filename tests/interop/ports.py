"""Free TCP ports on loopback, below the range that the kernel hands out to outgoing connections."""

import random
import socket
from collections.abc import Iterable

LOWEST, HIGHEST = 20_000, 32_000
HOST = "127.0.0.1"
BROKER_OFFSETS = (-2, 0, 1)  # Fast port, remoting, HA: the last two are fixed by RocketMQ 4.9 relative to the first.


def free_port(offsets: Iterable[int] = (0,)) -> int:
    """Return a port P such that P + offset is free for each of the offsets.

    The choice is random, not "the next one", so that tests side by side do not meet between probing and binding.
    """
    wanted = tuple(offsets)
    for _ in range(200):
        port = random.randrange(LOWEST - min(wanted), HIGHEST - max(wanted))
        if all(_is_free(port + offset) for offset in wanted):
            return port
    raise RuntimeError(f"no free ports between {LOWEST} and {HIGHEST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As servers do: TIME_WAIT is no reason to refuse.
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
