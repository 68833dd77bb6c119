"""Free TCP ports on loopback, below the range that the kernel hands out to outgoing connections."""

from collections import deque
from collections.abc import Iterable

from twinlog.cluster.testing.ports import HOST as HOST
from twinlog.cluster.testing.ports import Reservation, reserve

BROKER_OFFSETS = (-2, 0, 1, 3)  # Fast port, remoting, HA, twinlog's HTTP; RocketMQ 4.9 fixes the others by the second.


_reserved: deque[Reservation] = deque(maxlen=32)  # The latest ones: a port is bound soon after it was chosen.


def free_port(offsets: Iterable[int] = (0,)) -> int:
    """Return a port P such that P + offset is free for each of the offsets; no other test run is given it."""
    if len(_reserved) == _reserved.maxlen:
        _reserved.popleft().close()
    _reserved.append(reserve(tuple(offsets)))
    return _reserved[-1].number


def free_broker_port() -> int:
    """A port for a broker's remoting server, with those that come with it."""
    return free_port(BROKER_OFFSETS)
