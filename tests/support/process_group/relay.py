"""TCP relays in this process: ports of one address that lead to ports of another, as an address translation's."""

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def relays(*ways: tuple[str, str]) -> Iterator[None]:
    """Relay from each first HOST:PORT to the second, which sees connections of this process."""
    with contextlib.ExitStack() as stack:
        for here, there in ways:
            stack.enter_context(_relay(here, there))
        yield


@contextlib.contextmanager
def _relay(here: str, there: str) -> Iterator[None]:
    open_sockets: set[socket.socket] = set()
    with socket.create_server(_pair(here), backlog=64) as listener:
        threading.Thread(target=_accept, args=(listener, _pair(there), open_sockets), daemon=True).start()
        try:
            yield
        finally:
            for each in (listener, *open_sockets):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, there: tuple[str, int], open_sockets: set[socket.socket]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:  # It ends.
            return
        threading.Thread(target=_carry, args=(client, there, open_sockets), daemon=True).start()


def _carry(client: socket.socket, there: tuple[str, int], open_sockets: set[socket.socket]) -> None:
    with client, contextlib.suppress(OSError), socket.create_connection(there, timeout=5) as server:
        server.settimeout(None)
        open_sockets |= {client, server}
        back = threading.Thread(target=_pump, args=(server, client), daemon=True)
        back.start()
        _pump(client, server)
        back.join()
        open_sockets -= {client, server}


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 18):
            sink.sendall(data)
    for each in (source, sink):  # One end ends both, as no peer here half-closes.
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _pair(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
