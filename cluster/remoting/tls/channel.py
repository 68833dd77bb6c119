"""The server's side of one TLS connection: ciphertext in, plaintext out, and back. No socket, no clock."""

import ssl
from collections.abc import Iterable

from attrs import define, field

from twinlog.cluster.remoting.errors import RemotingProtocolError

_PIECE = 16 * 1024  # Bytes that OpenSSL gets at a time: its buffers never shrink, and each connection has its own.
HANDSHAKE_READ_SIZE, READ_SIZE = _PIECE, 256 * 1024
FIRST_BYTE = b"\x16"  # Of a TLS handshake; frames of this protocol begin with 0 or 1.


@define(eq=False)
class TlsChannel:
    """`is_open`: the handshake is done; `ended`: the peer has sent close_notify."""

    context: ssl.SSLContext = field(repr=False)
    is_open: bool = field(default=False, init=False)
    ended: bool = field(default=False, init=False)
    _incoming: ssl.MemoryBIO = field(factory=ssl.MemoryBIO, init=False)
    _outgoing: ssl.MemoryBIO = field(factory=ssl.MemoryBIO, init=False)
    _tls: ssl.SSLObject = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._tls = self.context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def shake_hands(self, data: bytes | memoryview) -> bool:
        """Continue the handshake with received bytes; True when it is done. Raises RemotingProtocolError."""
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise _broken("handshake", error) from None
        self.is_open = True
        return True

    def decrypt(self, data: bytes | memoryview, into: memoryview) -> int:
        """Decrypt received bytes, and those left from the handshake; returns the size of the plaintext.

        `into` has room for `data` and one record more. Raises RemotingProtocolError.
        """
        size = 0
        for at in range(0, len(data) or 1, _PIECE):
            self._incoming.write(data[at : at + _PIECE])
            size += self._decrypt(into[size:])
        return size

    def _decrypt(self, into: memoryview) -> int:
        size = 0
        try:
            while taken := self._tls.read(len(into) - size, into[size:]):
                size += int(taken)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise _broken("connection", error) from None
        return size

    def encrypt(self, buffers: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
        """Encrypt these bytes, after pending records of TLS itself. Raises RemotingProtocolError."""
        pieces: list[bytes | memoryview] = []
        try:
            for buffer in buffers:
                view = memoryview(buffer)
                for at in range(0, len(view), _PIECE):
                    self._tls.write(view[at : at + _PIECE])
                    pieces.append(self._outgoing.read())
        except ssl.SSLError as error:
            raise _broken("connection", error) from None
        if self._outgoing.pending:
            pieces.append(self._outgoing.read())
        return pieces


def _broken(what: str, error: ssl.SSLError) -> RemotingProtocolError:
    """The error with the reason that OpenSSL gives, without its file and line."""
    reason = error.reason.replace("_", " ").lower() if error.reason else str(error)
    return RemotingProtocolError(f"the TLS {what} failed: {reason}")
