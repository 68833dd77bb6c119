"""Free TCP ports on loopback, below the range that the kernel gives to outgoing connections.

Whoever reserves a port holds a socket with its number as name, so that other test runs on this machine do not choose it.
"""

import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack

from attrs import define

LOWEST, HIGHEST = 12_000, 32_000
HOST = "127.0.0.1"
BROKER_OFFSETS = (-2, 0, 1)  # Fast port, remoting, HA: RocketMQ 4.9 fixes the others by the second.
_TRIES = 200


@define(eq=False)
class Reservation:
    """Ports `number` + each offset, until close()."""

    number: int
    _names: ExitStack

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{HOST}:{self.number}"

    def close(self) -> None:
        """Let others have them."""
        self._names.close()


def reserve(offsets: Sequence[int] = (0,)) -> Reservation:
    """Reserve ports that are free now. Raises OSError when there are none."""
    for _ in range(_TRIES):
        number = random.randrange(LOWEST - min(offsets), HIGHEST - max(offsets))
        with ExitStack() as stack:
            if all(_is_free(number + offset, stack) for offset in offsets):
                return Reservation(number, stack.pop_all())
    raise OSError(f"no free ports between {LOWEST} and {HIGHEST} on {HOST}")


def _is_free(port: int, names: ExitStack) -> bool:
    name = names.enter_context(socket.socket(socket.AF_UNIX))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As servers do: TIME_WAIT is no reason to refuse.
        try:
            name.bind(f"\0twinlog-test-port-{port}")
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
