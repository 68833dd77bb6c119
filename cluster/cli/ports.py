"""Is a port free, and if not, who has it?"""

import socket
from collections.abc import Iterable

from cluster.cli.up_plan import LOOPBACK, Port


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


def holder(port: int) -> str:
    """Name the process that listens on a TCP port: "process 4711 (java)"; vaguely where this user may not know."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
                if connection.pid is None:
                    break
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    except psutil.Error:
        pass
    return "a process that this user cannot see"
