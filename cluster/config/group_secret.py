"""The group secret: members of one replication group prove with it who they are. The file that `haSecretFile` names.

    # comment
    3f9a0c1b cnXq4…=        the first one signs
    77d0e2a4 Zm9vYm…=       all are accepted, three at most

An id is the beginning of the secret's SHA-256, so that a typing error is found, and tells nothing about the secret. The file may
be replaced while members run: a secret is rotated by adding the new one everywhere, then signing with it, then dropping the old.
"""

import hashlib
import os
import secrets
import stat
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from attrs import define, field, frozen

from twinlog.cluster.user_errors import USAGE, UserError
from twinlog.store.util.late_logger import LateLogger
from twinlog.store.util.sync import write_durably

log = LateLogger(__name__)

KEY_BYTES = 32
SECRETS_MAX = 3
LOOK_SECONDS = 1.0
FILE_BYTES_MAX = 4_096
_COMMENT = (
    "# Written by `twinlog group secret`; comments in it are lost. For the members of one group only.\n"
    "# Each line: id, secret. The first one signs, all are accepted.\n"
)

Stamp = tuple[int, ...]


class SecretFileError(UserError):
    """The file cannot be used. The message says what and why, `next_step` what to do."""

    exit_status = USAGE

    def __init__(self, what: str, next_step: str) -> None:
        super().__init__(what)
        self.next_step = next_step

    def report_line(self) -> str:
        """All of it in one line, for a start that is refused and for the log."""
        return f"{self}. Next: {self.next_step}"


@frozen
class GroupSecret:
    """One secret. `id` may be shown to anybody."""

    id: str
    key: bytes = field(repr=False)


def id_of(key: bytes) -> str:
    """The id that belongs to a secret."""
    return hashlib.sha256(b"twinlog group secret id\n" + key).hexdigest()[:8]


def new_secret() -> GroupSecret:
    """A secret that nobody has yet."""
    key = secrets.token_bytes(KEY_BYTES)
    return GroupSecret(id_of(key), key)


def encode(found: tuple[GroupSecret, ...]) -> bytes:
    """The content of a file, in this order."""
    lines = "".join(f"{each.id} {b64encode(each.key).decode()}\n" for each in found)
    return (_COMMENT + lines).encode()


def decode(raw: bytes) -> tuple[GroupSecret, ...]:
    """The secrets in a file. Raises ValueError, which says what is wrong with it, without any of its bytes."""
    if len(raw) > FILE_BYTES_MAX:
        raise ValueError(f"has more than {FILE_BYTES_MAX} bytes, and is no file of secrets")
    lines = [(number, line.split()) for number, line in enumerate(raw.splitlines(), 1)]
    found = tuple(_secret(number, words) for number, words in lines if words and not words[0].startswith(b"#"))
    if not found:
        raise ValueError("has no secret in it")
    if len(found) > SECRETS_MAX:
        raise ValueError(f"has {len(found)} secrets, and {SECRETS_MAX} are the most")
    if len({each.id for each in found}) < len(found):
        raise ValueError("has one secret twice")
    return found


def _secret(number: int, words: list[bytes]) -> GroupSecret:
    if len(words) != 2:
        raise ValueError(f"is damaged in line {number}: there must be an id and a secret")
    try:
        id, key = words[0].decode("ascii"), b64decode(words[1], validate=True)
    except ValueError:
        raise ValueError(f"is damaged in line {number}: its secret is no base64") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"is damaged in line {number}: its secret has {len(key)} bytes, not {KEY_BYTES}")
    if id != id_of(key):
        raise ValueError(f"is damaged in line {number}: the secret is not the one of its id")
    return GroupSecret(id, key)


def read_secrets(path: Path) -> tuple[GroupSecret, ...]:
    """The secrets of a file, the one that signs first. Raises SecretFileError."""
    return _read(path)[0]


def _read(path: Path) -> tuple[tuple[GroupSecret, ...], Stamp]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # A pipe would block.
        with open(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        _refuse_unreadable(path, error)
    if not stat.S_ISREG(status.st_mode):
        raise SecretFileError(f"the group secret {path} is no file", "Name the file itself.")
    if status.st_mode & 0o077:
        raise SecretFileError(
            f"the group secret {path} has mode {stat.S_IMODE(status.st_mode):04o}: others than its owner may read or change it",
            f"chmod 600 {path}; if others may have read it, change the secret as well: twinlog group secret --help",
        )
    try:
        return decode(raw), _stamp(status)
    except ValueError as error:
        raise SecretFileError(
            f"the group secret {path} {error}",
            f"Copy the file from another member; or, for the whole group, make another one: twinlog group secret new {path}",
        ) from None


def _refuse_unreadable(path: Path, error: OSError) -> NoReturn:
    if isinstance(error, IsADirectoryError):
        raise SecretFileError(f"the group secret {path} is a directory", "Name the file in it.") from None
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise SecretFileError(
            f"the group secret {path} is not there",
            "Copy the file from another member of the group; or, if no member has one yet, make it: "
            f"twinlog group secret new {path}",
        ) from None
    raise SecretFileError(
        f"the group secret {path} cannot be read: {error.strerror}",
        "Make the user that members run as the owner of the file, with mode 0600.",
    ) from None


def write_secrets(path: Path, found: tuple[GroupSecret, ...]) -> None:
    """Replace the file, durably; a new one has mode 0600 from its first byte. A link stays one. Raises SecretFileError."""
    try:
        write_durably(path.resolve(), encode(found), new_mode=0o600)
    except OSError as error:
        raise SecretFileError(
            f"the group secret {path} cannot be written: {error.strerror}",
            "Nothing was changed. A file that is mounted on its own cannot be replaced: change it where it comes from.",
        ) from None


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size


@define(eq=False)
class GroupSecrets:
    """The secrets in use by a process. A changed file that cannot be used leaves them as they are."""

    path: Path | None = None
    secrets: tuple[GroupSecret, ...] = ()
    on_change: list[Callable[[], None]] = field(factory=list, init=False)
    # Of the file that was looked at last, whether it could be used or not.
    _seen: Stamp = field(default=(), init=False)

    @classmethod
    def load(cls, path: Path | None) -> "GroupSecrets":
        """The secrets of a file, at the start; None: there are none. Raises SecretFileError."""
        holder = cls(path)
        if path is not None:
            holder.secrets, holder._seen = _read(path)
        return holder

    @property
    def current(self) -> GroupSecret | None:
        """The secret that signs."""
        return self.secrets[0] if self.secrets else None

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all that are accepted, the one that signs first."""
        return tuple(each.id for each in self.secrets)

    def find(self, id: str) -> GroupSecret | None:
        """The accepted secret of that id."""
        return next((each for each in self.secrets if each.id == id), None)

    async def run(self) -> None:
        """Look at the file once a second, until cancelled."""
        import trio  # Commands that only read the file start without it.

        if self.path is None:
            await trio.sleep_forever()
        while True:
            await trio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Read the file if it changed. One that cannot be used is an error in the log, once."""
        assert self.path is not None
        try:
            seen = _stamp(self.path.stat())
        except OSError:
            seen = ()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            found, self._seen = _read(self.path)
        except SecretFileError as error:
            log.error("changed group secret cannot be used; the old one stays in use", why=error.report_line())
            return
        if found != self.secrets:
            self.secrets = found
            for callback in self.on_change:
                callback()
            log.info("changed group secret in use", signs=self.ids[0], accepted=", ".join(self.ids))
