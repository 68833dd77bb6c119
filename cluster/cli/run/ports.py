"""Ports in use, and the processes that hold them."""

import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from twinlog.cluster.cli.run.up_plan import LOOPBACK, Port

if TYPE_CHECKING:
    import psutil


def busy_ports(ports: Iterable[Port], host: str = LOOPBACK) -> list[Port]:
    """Return the ports that cannot be listened on now. Lingering connections of an earlier run do not count."""
    return [port for port in ports if not _is_free(host, port.number)]


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError:
            return False
    return True


MORE_MAX = 10
_MAIN = "twinlog.cluster.cli.program"


def in_use(busy: Sequence[Port]) -> tuple[str, str]:
    """Return a sentence about the first busy port and its process, and one about the others, if any."""
    first, *more = busy
    what = f"Port {first.number} ({first.purpose}) is in use by {holder(first.number)}."
    if not more:
        return what, ""
    numbers = ", ".join(str(port.number) for port in more[:MORE_MAX])
    return what, f"{len(more)} more are in use: {numbers}{', ...' if len(more) > MORE_MAX else ''}."


def holder(port: int) -> str:
    """Name the process that listens on a TCP port, "process 4711 (java)", as far as this user may see it."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
                if connection.pid is None:
                    break
                return f"process {connection.pid} ({_name(psutil.Process(connection.pid))})"
    except psutil.Error:
        pass
    return "a process that this user cannot see"


def _name(process: "psutil.Process") -> str:
    """Return the name of a process: the twinlog command for one of ours, which would be "python"."""
    words = process.cmdline()
    if _MAIN in words[:-1]:  # As `twinlog up` starts its members.
        return f"twinlog {words[words.index(_MAIN) + 1]}"
    return process.name()
