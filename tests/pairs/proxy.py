"""A link between a slave and its master's HA port that dies in the middle of things."""

import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.support.process_group.ports import HOST, free_port

PIECE = 64 * 1024


class CuttingProxy:
    """Passes bytes on to the master's HA port. Connection after connection ends once so many bytes of `cuts` have come from
    there; when there are no cuts any more, connections last. The port below passes on requests to the remoting port.
    """

    def __init__(self, ha_port: int, cuts: Iterable[int]) -> None:
        port = free_port((-1, 0))
        self.address = f"{HOST}:{port}"
        self.cuts = list(cuts)
        self._listeners = {socket.create_server((HOST, port + offset)): ha_port + offset for offset in (-1, 0)}
        self._ha_port = ha_port
        self._open: list[socket.socket] = []
        self._threads = [
            threading.Thread(target=self._accept, args=(listener, target))
            for listener, target in self._listeners.items()
        ]

    def __enter__(self) -> Self:
        for thread in tuple(self._threads):
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opened in (*self._listeners, *self._open):
            _end(opened)
        for thread in self._threads:
            thread.join(10)

    def _accept(self, listener: socket.socket, target: int) -> None:
        while True:
            try:
                slave, _ = listener.accept()
            except OSError:
                return
            try:
                master = socket.create_connection((HOST, target), timeout=5)
            except OSError:
                _end(slave)
                continue
            self._open += [slave, master]
            limit = self.cuts[0] if self.cuts and target == self._ha_port else None
            for source, sink, most in ((master, slave, limit), (slave, master, None)):
                self._threads.append(threading.Thread(target=self._pass_on, args=(source, sink, most)))
                self._threads[-1].start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, most: int | None) -> None:
        """Until either end leaves, or `most` bytes are passed on."""
        with suppress(OSError):
            source.settimeout(None)
            while most is None or most > 0:
                piece = source.recv(PIECE if most is None else min(most, PIECE))
                if not piece:
                    break
                sink.sendall(piece)
                if most is not None:
                    most -= len(piece)
            if most == 0:
                del self.cuts[0]
        for end in (source, sink):
            _end(end)


def _end(opened: socket.socket) -> None:
    """Close it, and wake whoever waits for it."""
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
    opened.close()
