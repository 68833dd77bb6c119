"""Bytes cut from the log while in use: kept in ROOT/twinlog/divergent/<first byte>-<bytes>/ until an operator removes them.

Each directory is a small store for `log dump` and `log diff`: commitlog/ has files with their former names and length, of which
the first holds nothing below the cut, and divergent.json describes it. Whole files are linked, not copied.

    divergent.json   {"version": 1, "first": byte, "size": bytes, "whenMs": ms, "why": text}

A directory whose name ends in `.new` is not finished; nothing was cut then.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import orjson
from attrs import frozen

from twinlog.store.errors import StoreError
from twinlog.store.util.sync import make_directory, sync_data, sync_directory, write_durably

NOTE, VERSION = "divergent.json", 1
_UNFINISHED = ".new"
_PIECE = 1 << 20
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)


@frozen
class Divergent:
    """Bytes `first` to `first + size` of the log as it was before a cut, kept in `path`."""

    path: Path
    first: int
    size: int
    when_ms: int
    why: str


@frozen
class CutFile:
    """A file of the log: bytes `start` to `end` of it are written. `goes`: nothing will be written there again."""

    path: Path
    fd: int  # Open for reading.
    start: int
    end: int
    goes: bool


@frozen
class DivergentDirectory:
    """ROOT/twinlog/divergent; made when something is kept."""

    path: Path

    def list(self) -> tuple[Divergent, ...]:
        """The kept cuts, in the order of the log. Unreadable ones are left out."""
        try:
            names = sorted(os.listdir(self.path))
        except OSError:
            return ()
        found = (read_note(self.path / name) for name in names if not name.endswith(_UNFINISHED))
        return tuple(entry for entry in found if entry is not None)

    def free_name(self, first: int, size: int) -> str:
        """An unused name for bytes to be kept: two cuts at one place are both kept."""
        name = wanted = f"{first:020d}-{size}"
        number = 1
        while (self.path / name).exists():
            number += 1
            name = f"{wanted}-{number}"
        return name

    def keep(self, name: str, what: Divergent, files: Sequence[CutFile], file_size: int, *, may_copy: bool) -> None:
        """Bring a copy to the disk, under a name that is not final yet. May block for long: run it in a thread.

        Raises OSError, StoreError where a whole log cannot be linked (not `may_copy`); call drop_unfinished() then.
        """
        self.drop_unfinished()
        scratch = self.path / (name + _UNFINISHED)
        make_directory(scratch / "commitlog")
        for file in files:
            target = scratch / "commitlog" / f"{file.start:020d}"
            if not file.goes or not _link(file.path, target, may_copy=may_copy):
                _copy(file, target, max(what.first, file.start), file_size)
        note = {"version": VERSION, "first": what.first, "size": what.size, "whenMs": what.when_ms, "why": what.why}
        sync_directory(scratch / "commitlog")
        write_durably(scratch / NOTE, orjson.dumps(note))

    def settle(self, name: str) -> None:
        """Give kept bytes their final name, durably, unless they have it. Raises OSError."""
        scratch = self.path / (name + _UNFINISHED)
        if scratch.exists():
            scratch.rename(self.path / name)
            sync_directory(self.path)

    def read(self, name: str, file_start: int, position: int, size: int) -> bytes | None:
        """Bytes of a kept file, under either name of its directory; None when the file is not there. Raises OSError."""
        for directory in (self.path / name, self.path / (name + _UNFINISHED)):
            with suppress(FileNotFoundError), (directory / "commitlog" / f"{file_start:020d}").open("rb") as file:
                return os.pread(file.fileno(), size, position)
        return None

    def drop_unfinished(self) -> None:
        """Remove unfinished copies. Raises OSError."""
        for path in self.path.glob(f"*{_UNFINISHED}") if self.path.is_dir() else ():
            shutil.rmtree(path)


def read_note(directory: Path) -> Divergent | None:
    """The description of a kept cut; None for any other directory."""
    try:
        note = orjson.loads((directory / NOTE).read_bytes())
        if note["version"] != VERSION:
            return None
        return Divergent(directory, int(note["first"]), int(note["size"]), int(note["whenMs"]), str(note["why"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _link(path: Path, target: Path, *, may_copy: bool) -> bool:
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if not may_copy:
            raise StoreError(
                f"{path} cannot be linked into {target.parent}: {error.strerror}. The log can begin anew only where both are on "
                "one file system that has links; stop the broker, and move its store away"
            ) from error
        return False
    return True


def _copy(file: CutFile, target: Path, begin: int, file_size: int) -> None:
    """Copy bytes from `begin` on to their place in a file that is a hole elsewhere."""
    with target.open("wb") as copy:
        os.ftruncate(copy.fileno(), file_size)
        at, end = begin - file.start, file.end - file.start
        while at < end:
            piece = os.pread(file.fd, min(_PIECE, end - at), at)
            if not piece:
                raise OSError(errno.EIO, "the file ends early", str(file.path))
            at += os.pwrite(copy.fileno(), piece, at)
        sync_data(copy.fileno())
