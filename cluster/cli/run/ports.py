"""Is a port free, and if not, who has it?"""

import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from twinlog.cluster.cli.run.up_plan import LOOPBACK, Port

if TYPE_CHECKING:
    import psutil


def busy_ports(ports: Iterable[Port], host: str = LOOPBACK) -> list[Port]:
    """Those of the ports that cannot be listened on now. Connections of an earlier run that linger do not count."""
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


def in_use(busy: Sequence[Port]) -> tuple[str, str]:
    """One sentence about the first busy port and who holds it, and one about the others, if any."""
    first, *more = busy
    what = f"Port {first.number} ({first.purpose}) is in use by {holder(first.number)}."
    if not more:
        return what, ""
    numbers = ", ".join(str(port.number) for port in more[:MORE_MAX])
    return what, f"{len(more)} more are in use: {numbers}{', ...' if len(more) > MORE_MAX else ''}."


def holder(port: int) -> str:
    """Name the process that listens on a TCP port: "process 4711 (java)"; vaguely where this user may not know."""
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
    """What a person calls it: one of ours is not just some Python."""
    words = process.cmdline()
    if "twinlog.cluster.cli.main" in words[:-1]:  # As `twinlog up` starts its members.
        return f"twinlog {words[words.index('cluster.cli.main') + 1]}"
    return process.name()
