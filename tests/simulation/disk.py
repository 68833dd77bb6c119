"""A disk that keeps only what was flushed: the files lie in real directories, and beside them it is known what is durable.

Calls that change files come from os_calls.py. A machine's directory is its name, relative to the working directory.

    content   durable as it was at the last fsync or fdatasync of the file that succeeded; what came later survives a power
              cut sector by sector, by seed. Space that was taken for a new file is zero, and there when its name is.
    names     each change of a directory goes to a journal. Syncing a directory makes the changes up to its last one durable;
              of the others a power cut keeps a prefix, by seed: file systems write their journals in order. Syncing a file
              does not make its name durable.
    errors    a sync that fails may leave pages that are clean and were never written: a later sync does not write them.

A machine can be told to die at its n-th call from now on; whatever it calls after its death raises MachineDied, too.
"""

import errno
import io
import os
import random
from collections.abc import Callable

from attrs import define, field, frozen

from tests.simulation import determinism

REAL = {
    name: getattr(os, name)
    for name in (
        "open", "close", "dup", "link", "unlink", "remove", "rename", "replace", "mkdir", "rmdir", "ftruncate",
        "posix_fallocate", "pwrite", "write", "fsync", "fdatasync",
    )
}  # fmt: skip
REAL_IO_OPEN = io.open


class MachineDied(BaseException):
    """The machine is gone; nothing that runs on it goes on."""


def _content(path: str) -> bytes:
    with REAL_IO_OPEN(path, "rb") as file:
        return bytes(file.read())


def _read(fd: int) -> bytes:
    return _content(f"/proc/self/fd/{fd}")  # It may have been opened for writing only.


@define(eq=False)
class Change:
    """A change of names: `adds` path and inode, `removes` path; a directory has inode 0."""

    adds: tuple[str, int] | None = None
    removes: str | None = None

    def touches(self, directory: str) -> bool:
        """Whether it changes what this directory lists."""
        paths = [self.removes] if self.removes else []
        paths += [self.adds[0]] if self.adds else []
        return any(os.path.dirname(path) == directory for path in paths)

    def apply(self, names: dict[str, int]) -> None:
        """Do it."""
        if self.removes is not None:
            if self.adds is not None:  # What lies below moves along.
                for path in [path for path in names if path.startswith(f"{self.removes}/")]:
                    names[self.adds[0] + path[len(self.removes) :]] = names.pop(path)
            names.pop(self.removes, None)
        if self.adds is not None:
            names[self.adds[0]] = self.adds[1]


@frozen
class Image:
    """What a disk holds at a moment, as whoever copies the directory finds it. Paths are relative to its root."""

    directories: tuple[str, ...]
    files: dict[str, tuple[bytes, int]]  # Content, and the time of the last change.


@define(eq=False)
class Disk:
    """One machine's disk. `root` is its directory."""

    root: str
    rng: random.Random
    sector: int = 512
    on_death: Callable[[], None] = lambda: None
    dead: bool = False
    calls: int = 0  # That change anything, since the start of the run.
    dies_at: int | None = None  # The call at which it dies.
    fails_at: int | None = None  # The sync, by number, that fails.
    syncs: int = 0
    failed_syncs: int = 0
    names: dict[str, int] = field(factory=dict)  # Durable.
    journal: list[Change] = field(factory=list)  # Changes of names that are not durable yet.
    durable: dict[int, bytes] = field(factory=dict)  # By inode.
    lost: dict[int, dict[int, bytes]] = field(factory=dict)  # Sectors that a failed sync left behind as clean.
    ghosts: dict[int, bytes] = field(factory=dict)  # Content of files without a name.
    fds: dict[int, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        REAL["mkdir"](self.root)
        self.names[self.root] = 0

    # Death

    def step(self) -> None:
        """Something is about to be changed. Raises MachineDied."""
        if self.dead:
            raise MachineDied
        self.calls += 1
        if self.dies_at is not None and self.calls >= self.dies_at:
            self.die()
            raise MachineDied

    def die(self) -> None:
        """From now on nothing is written."""
        self.dead, self.dies_at = True, None
        self.on_death()

    def release(self) -> None:
        """Close what the dead had open, as the kernel does."""
        for fd in self.fds:
            owners.pop(fd, None)
            with open(os.devnull, "rb") as nothing:  # The number stays taken: objects of the dead may close it yet.
                os.dup2(nothing.fileno(), fd, inheritable=False)
            zombies.add(fd)
        self.fds.clear()

    def reboot(self) -> None:
        """Lets itself be used again. After a failed sync, pages that were dropped are read from the disk anew, or not."""
        self.release()
        for path, inode in self._live().items():
            if self.lost.get(inode) and self.rng.random() < 0.5:
                content = bytearray(_content(path))
                for at, was in self.lost[inode].items():
                    if content[at : at + self.sector] == was:
                        content[at : at + self.sector] = self._durable_sector(inode, at, len(was))
                self._rewrite(path, bytes(content))
        self.lost.clear()
        self.dead, self.dies_at, self.fails_at = False, None, None

    def _durable_sector(self, inode: int, at: int, size: int) -> bytes:
        return self.durable.get(inode, b"")[at : at + self.sector].ljust(size, b"\0")

    # Power

    def cut_power(self) -> None:
        """Lose what is not durable, by seed; the machine must be dead."""
        assert self.dead
        self.release()
        live = self._live()
        content = {inode: _content(path) for path, inode in live.items() if inode}
        times = {path: os.stat(path).st_mtime_ns for path, inode in live.items() if inode}
        kept = dict(self.names)
        for change in self.journal[: self._how_many(len(self.journal))]:
            change.apply(kept)
        mode = self.rng.choice(("none", "all", "prefix", "some", "some"))
        blends: dict[int, bytes] = {}  # A file of two names is one file.
        for _, inode in sorted(kept.items()):
            if inode and inode not in blends:
                blends[inode] = self._blend(inode, content.get(inode, self.ghosts.get(inode, b"")), mode)
        files = {path: blends[inode] for path, inode in kept.items() if inode}
        directories = [path for path, inode in kept.items() if not inode]
        self._remake(directories, files, {path: times.get(path, 0) for path in files})

    def _how_many(self, count: int) -> int:
        return self.rng.choice((0, count, self.rng.randint(0, count)))

    def _blend(self, inode: int, now: bytes, mode: str) -> bytes:
        was = self.durable.get(inode, b"")
        if mode == "none" or now == was:
            return was
        sectors = [
            at for at in range(0, len(now), self.sector) if now[at : at + self.sector] != was[at : at + self.sector]
        ]
        lost = self.lost.get(inode, {})
        sectors = [at for at in sectors if now[at : at + self.sector] != lost.get(at)]
        if mode == "prefix":
            sectors = sectors[: self._how_many(len(sectors))]
        elif mode == "some":
            sectors = [at for at in sectors if self.rng.random() < 0.5]
        size = max(len(was), max((min(len(now), at + self.sector) for at in sectors), default=0))
        if mode == "all" or self.rng.random() < 0.5:
            size = len(now)
        blend = bytearray(was.ljust(size, b"\0")[:size])
        for at in sectors:
            piece = now[at : at + self.sector][: max(0, size - at)]
            blend[at : at + len(piece)] = piece
        return bytes(blend)

    def _remake(self, directories: list[str], files: dict[str, bytes], times: dict[str, int]) -> None:
        for path in sorted(self._live(), key=len, reverse=True):
            if os.path.isdir(path):
                REAL["rmdir"](path)
            else:
                REAL["unlink"](path)
        self.names = {}
        self.durable.clear()
        self.lost.clear()
        self.ghosts.clear()
        self.journal.clear()
        for path in sorted(directories):
            REAL["mkdir"](path)
            self.names[path] = 0
        for path, data in files.items():
            self._rewrite(path, data)
            inode = os.stat(path).st_ino
            self.names[path], self.durable[inode] = inode, data
            if times[path]:
                os.utime(path, ns=(times[path], times[path]))

    def _rewrite(self, path: str, data: bytes) -> None:
        fd = REAL["open"](path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            REAL["pwrite"](fd, data, 0)
            stamp(fd)
        finally:
            REAL["close"](fd)

    def _live(self) -> dict[str, int]:
        """All paths that there are now, with their inodes."""
        found = {self.root: 0}
        for directory, directories, names in os.walk(self.root):
            directories.sort()
            found.update((f"{directory}/{name}", 0) for name in sorted(directories))
            found.update((f"{directory}/{name}", os.stat(f"{directory}/{name}").st_ino) for name in sorted(names))
        return found

    def durable_content(self, path: str) -> bytes | None:
        """What a power cut would leave of a file at least; None when its name is not durable."""
        inode = self.names.get(path)
        return None if inode is None else self.durable.get(inode, b"")

    def wipe(self) -> None:
        """Somebody deletes all."""
        self._remake([self.root], {}, {})

    def image(self) -> Image:
        """A copy of it, as it is now."""
        live, root = self._live(), len(self.root)
        files = [path for path, inode in live.items() if inode]
        return Image(
            tuple(path[root:] for path, inode in live.items() if not inode),
            {path[root:]: (_content(path), os.stat(path).st_mtime_ns) for path in files},
        )

    def put_back(self, image: Image) -> None:
        """Hold what that holds, durably; nothing may be open."""
        files = {self.root + path: each for path, each in image.files.items()}
        directories = [self.root + path for path in image.directories]
        self._remake(
            directories,
            {path: content for path, (content, _) in files.items()},
            {path: time for path, (_, time) in files.items()},
        )

    # What is called

    def sync(self, fd: int) -> None:
        """fsync or fdatasync of a file or a directory."""
        self.step()
        self.syncs += 1
        status = os.fstat(fd)
        failing = self.fails_at is not None and self.syncs >= self.fails_at
        if failing:
            self.fails_at = None
            self.failed_syncs += 1
        if fd in self.fds and os.path.isdir(self.fds[fd]):
            if not failing:
                self._sync_names(self.fds[fd])
        else:
            self._sync_content(status.st_ino, _read(fd), failing=failing)
        if failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _sync_names(self, directory: str) -> None:
        touching = [number for number, change in enumerate(self.journal) if change.touches(directory)]
        count = touching[-1] + 1 if touching else 0
        for change in self.journal[:count]:
            change.apply(self.names)
        del self.journal[:count]

    def _sync_content(self, inode: int, now: bytes, *, failing: bool) -> None:
        lost = self.lost.get(inode, {})
        if not failing and not lost:
            self.durable[inode] = now
            return
        was = self.durable.get(inode, b"")
        durable, left = bytearray(was.ljust(len(now), b"\0")[: len(now)]), {}
        for at in range(0, len(now), self.sector):
            piece = now[at : at + self.sector]
            if piece == durable[at : at + self.sector]:
                continue
            if failing or lost.get(at) == piece:
                left[at] = piece
            else:
                durable[at : at + self.sector] = piece
        self.durable[inode], self.lost[inode] = bytes(durable), left

    def added(self, path: str, inode: int, removes: str | None = None) -> None:
        """A name was given to a file, or another one."""
        self.journal.append(Change((path, inode), removes))

    def keep_ghost(self, path: str) -> None:
        """A name is about to go."""
        try:
            inode = os.stat(path).st_ino
            if not os.path.isdir(path):
                self.ghosts[inode] = _content(path)
        except FileNotFoundError:
            pass

    def took_space(self, fd: int, size: int) -> None:
        """A file has a length; where it is new, it has that as soon as it has a name."""
        inode = os.fstat(fd).st_ino
        if inode not in self.durable:
            self.durable[inode] = bytes(size)


_stamps = iter(range(0))
owners: dict[int, Disk] = {}  # By descriptor.
zombies: set[int] = set()  # Descriptors of the dead.


def begin_stamps() -> None:
    """Let the first file have the first time."""
    global _stamps
    _stamps = iter(range(1 << 62))


def stamp(fd: int) -> None:
    """Set a file's time of change: virtual, and never the same twice."""
    ns = int(determinism.wall() * 1000) * 1_000_000 + next(_stamps) % 1_000_000
    os.utime(fd, ns=(ns, ns))
