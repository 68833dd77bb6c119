"""The HA port of a master that a test plays by hand: it decides which bytes a slave gets, and sees when they are acknowledged."""

import socket
import time
from types import TracebackType
from typing import Self

from tests.pairs.group import FILE_SIZE
from tests.support.process_group.ports import HOST, free_broker_port
from twinlog.ha.wire.protocol import ACK, BATCH_HEADER

FRAME_SIZE = 32 * 1024


class FakeMaster:
    """Listens until the end of its `with` block. Nobody answers on the remoting port that belongs to it."""

    def __init__(self) -> None:
        port = free_broker_port() + 1
        self._listener = socket.create_server((HOST, port))
        self.address = f"{HOST}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def accept(self, *, timeout_s: float = 30) -> "FakeConnection":
        """Wait for a slave. Raises TimeoutError."""
        self._listener.settimeout(timeout_s)
        return FakeConnection(self._listener.accept()[0])


class FakeConnection:
    """A slave's connection. Its first report, `offset`, is taken by then: the end of its log."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.offset = -1
        first = self.next_report(timeout_s=30)
        assert first is not None, "it left without a report"
        self.offset = first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def next_report(self, *, timeout_s: float) -> int | None:
        """What it reports next; None: it closed the connection. Raises TimeoutError."""
        self._socket.settimeout(timeout_s)
        data = b""
        while len(data) < ACK.size:
            try:
                piece = self._socket.recv(ACK.size - len(data))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            data += piece
        return int(ACK.unpack(data)[0])

    def send(self, body: bytes, *, phy_offset: int | None = None, cut: int | None = None) -> None:
        """Send log bytes, by default those that the slave lacks, in frames; only the first `cut` bytes of the stream."""
        start = self.offset if phy_offset is None else phy_offset
        stream = b""
        at = 0
        while at < len(body):  # No frame reaches into the next file.
            piece = body[at : at + min(FRAME_SIZE, FILE_SIZE - (start + at) % FILE_SIZE)]
            stream += BATCH_HEADER.pack(start + at, len(piece)) + piece
            at += len(piece)
        self._socket.settimeout(30)
        self._socket.sendall(stream[:cut])

    def seconds_until_acked(self, offset: int, *, timeout_s: float = 5) -> float | None:
        """How long until it acknowledges this or more; None: it closed the connection. Raises TimeoutError."""
        began = time.monotonic()
        while True:
            acked = self.next_report(timeout_s=max(timeout_s - (time.monotonic() - began), 0.01))
            if acked is None:
                return None
            if acked >= offset:
                return time.monotonic() - began
