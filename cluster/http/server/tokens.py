"""Authorization of changes: a request needs a token of the token file, which is read again when it changes."""

import hmac
import os
import stat
from pathlib import Path

from attrs import define, field

from twinlog.cluster.http.server.responses import HttpError

LENGTH_MIN = 16
FILE_BYTES_MAX = 64 * 1024
NO_CHANGES = "Changes over HTTP are off here."


class TokenFileError(Exception):
    """The token file cannot be used; the message says why and what to do."""


@define(eq=False)
class Tokens:
    """The tokens of one port. `path` None: all changes are refused."""

    path: Path | None = None
    guards_bodies: bool = False  # Messages are shown only to who has a token.
    _seen: tuple[int, ...] = field(default=(), init=False)
    _tokens: tuple[bytes, ...] = field(default=(), init=False)

    def check(self, authorization: str | None) -> None:
        """Raises HttpError unless the Authorization header carries one of the tokens."""
        if self.path is None:
            raise HttpError(
                status=403,
                what=NO_CHANGES,
                why="httpTokenFile names no file with tokens.",
                next_step="Set httpTokenFile, or use the command line: twinlog --help",
            )
        try:
            tokens = self.read()
        except TokenFileError as error:
            raise HttpError(
                status=403, what=NO_CHANGES, why=f"The token file {error}.", next_step="Mend it; it is read again."
            ) from error
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            raise _unauthorized("This needs a token.", "No Authorization: Bearer header came.")
        sent = given.strip().encode("latin-1", "replace")
        # All of them: how long it takes tells nothing.
        matches = [hmac.compare_digest(sent, token) for token in tokens]
        if not any(matches):
            raise _unauthorized("The token is not one of ours.", "It stands on no line of the token file.")

    def check_bodies(self, authorization: str | None) -> None:
        """Raises HttpError when the request may not see the content of messages."""
        if self.guards_bodies:
            self.check(authorization)

    def read(self) -> tuple[bytes, ...]:
        """The tokens as the file has them now. Raises TokenFileError."""
        assert self.path is not None
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # A pipe would block.
            with open(descriptor, "rb") as file:
                status = os.fstat(file.fileno())
                seen = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size)
                if seen != self._seen:
                    self._tokens = _parsed(status, file.read(FILE_BYTES_MAX + 1))
                    self._seen = seen
        except OSError as error:
            self._seen = ()
            raise TokenFileError(f"{self.path} cannot be read: {error.strerror}") from error
        except TokenFileError as error:
            self._seen = ()
            raise TokenFileError(f"{self.path} {error}") from None
        return self._tokens


def _parsed(status: os.stat_result, data: bytes) -> tuple[bytes, ...]:
    if not stat.S_ISREG(status.st_mode):
        raise TokenFileError("is no file")
    if status.st_mode & stat.S_IRWXO:
        raise TokenFileError("may be read by everybody on this machine: chmod o= it")
    if len(data) > FILE_BYTES_MAX:
        raise TokenFileError(f"has more than {FILE_BYTES_MAX} bytes")
    tokens = tuple(line.strip() for line in data.splitlines() if line.strip() and not line.startswith(b"#"))
    if not tokens:
        raise TokenFileError("has no token in it")
    if any(len(token) < LENGTH_MIN for token in tokens):
        raise TokenFileError(f"has a token of less than {LENGTH_MIN} characters: make one with: openssl rand -hex 32")
    return tokens


def _unauthorized(what: str, why: str) -> HttpError:
    return HttpError(
        status=401,
        what=what,
        why=why,
        next_step="Send: Authorization: Bearer TOKEN, with a line of the file that httpTokenFile names.",
        headers={"www-authenticate": 'Bearer realm="twinlog"'},
    )
