"""Stand-ins for functions of `os`: those that change files of a simulated machine go through its disk, all others pass by.

A machine's files are known by their path, which begins with the name of its directory, or by their descriptor.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from attrs import define, field

from tests.simulation.disk import REAL, REAL_IO_OPEN, Change, Disk, MachineDied, begin_stamps, owners, stamp, zombies


@contextmanager
def bounds(disks: dict[str, Disk]) -> Iterator[None]:
    """Let calls of `os` and io.open() that concern these disks, by the name of their directory, go through them."""
    begin_stamps()
    owners.clear()
    with ExitStack() as stack:
        calls = _Calls(disks)
        for name in REAL:
            stack.enter_context(patch.object(os, name, getattr(calls, name)))
        stack.enter_context(patch.object(io, "open", calls.io_open))
        try:
            yield
        finally:
            for disk in disks.values():
                disk.release()
            calls.over = True  # Finalizers of what was left over hold on to it for ever: it must hold nothing itself.
            calls.disks = {}
            calls.by_inode.clear()
            for fd in zombies:
                REAL["close"](fd)
            zombies.clear()


@define(eq=False)
class _Calls:
    """Stand-ins for functions of `os`, with their names."""

    disks: dict[str, Disk]
    by_inode: dict[int, Disk] = field(factory=dict)  # Of files that were opened by io.open().
    over: bool = False  # What calls now is an object that was left over.

    def _disk(self, path: Any) -> Disk | None:
        text = os.fspath(path) if not isinstance(path, int) else ""
        return self.disks.get(text.split("/", 1)[0]) if isinstance(text, str) else None

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        path = _from_root(path, dir_fd)
        disk = self._disk(path)
        if disk is None:
            return int(REAL["open"](path, flags, mode, dir_fd=dir_fd))
        makes = bool(flags & os.O_CREAT) and not os.path.exists(path)
        if makes or flags & os.O_TRUNC:
            disk.step()
        elif disk.dead:
            raise MachineDied
        fd = int(REAL["open"](path, flags, mode))
        disk.fds[fd] = os.fspath(path) if flags & os.O_TMPFILE != os.O_TMPFILE else ""
        owners[fd] = disk
        if makes:
            disk.added(os.fspath(path), os.fstat(fd).st_ino)
            stamp(fd)
        return fd

    def io_open(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        disk = self._disk(file)
        if disk is None:
            return REAL_IO_OPEN(file, mode, *arguments, **options)
        makes = any(letter in mode for letter in "wxa") and not os.path.exists(file)
        if makes or "w" in mode:
            disk.step()
        elif disk.dead:
            raise MachineDied
        opened = REAL_IO_OPEN(file, mode, *arguments, **options)
        if makes:
            disk.added(os.fspath(file), os.fstat(opened.fileno()).st_ino)
        self.by_inode[os.fstat(opened.fileno()).st_ino] = disk
        return opened

    def close(self, fd: int) -> None:
        if self.over:
            return
        zombies.discard(fd)
        disk = owners.pop(fd, None)
        if disk is not None:
            disk.fds.pop(fd, None)
        REAL["close"](fd)

    def dup(self, fd: int) -> int:
        new = int(REAL["dup"](fd))
        if fd in owners:
            disk = owners[new] = owners[fd]
            disk.fds[new] = disk.fds.get(fd, "")
        return new

    def link(self, src: Any, dst: Any, *, dst_dir_fd: int | None = None, **options: Any) -> None:
        target = _from_root(dst, dst_dir_fd)
        disk = self._disk(target)
        if disk is not None:
            disk.step()
        REAL["link"](src, dst, dst_dir_fd=dst_dir_fd, **options)
        if disk is not None:
            disk.added(os.fspath(target), os.stat(target).st_ino)

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        named, path = path, _from_root(path, dir_fd)
        disk = self._disk(path)
        if disk is not None:
            disk.step()
            disk.keep_ghost(os.fspath(path))
        REAL["unlink"](named, dir_fd=dir_fd)
        if disk is not None:
            disk.journal.append(Change(removes=os.fspath(path)))

    remove = unlink

    def rename(self, src: Any, dst: Any, **options: Any) -> None:
        disk = self._disk(src)
        if disk is not None:
            disk.step()
            disk.keep_ghost(os.fspath(dst))
        REAL["replace"](src, dst, **options)
        if disk is not None:
            is_directory = os.path.isdir(dst)
            disk.added(os.fspath(dst), 0 if is_directory else os.stat(dst).st_ino, removes=os.fspath(src))

    replace = rename

    def mkdir(self, path: Any, mode: int = 0o777, **options: Any) -> None:
        disk = self._disk(path)
        if disk is not None:
            disk.step()
        REAL["mkdir"](path, mode, **options)
        if disk is not None:
            disk.added(os.fspath(path), 0)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        named, path = path, _from_root(path, dir_fd)
        disk = self._disk(path)
        if disk is not None:
            disk.step()
        REAL["rmdir"](named, dir_fd=dir_fd)
        if disk is not None:
            disk.journal.append(Change(removes=os.fspath(path)))

    def ftruncate(self, fd: int, size: int) -> None:
        disk = self._stepped(fd)
        REAL["ftruncate"](fd, size)
        if disk is not None:
            disk.took_space(fd, size)
            stamp(fd)

    def posix_fallocate(self, fd: int, offset: int, size: int) -> None:
        disk = self._stepped(fd)
        REAL["posix_fallocate"](fd, offset, size)
        if disk is not None:
            disk.took_space(fd, offset + size)
            stamp(fd)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        disk = owners.get(fd)
        if disk is not None:
            self._write(disk, lambda part: REAL["pwrite"](fd, part, offset), data, offset)
        written = int(REAL["pwrite"](fd, data, offset))
        if disk is not None:
            stamp(fd)
        return written

    def write(self, fd: int, data: Any) -> int:
        disk = self._stepped(fd)
        written = int(REAL["write"](fd, data))
        if disk is not None:
            stamp(fd)
        return written

    def _write(self, disk: Disk, write: Callable[[Any], int], data: Any, offset: int) -> None:
        """A machine that dies in the middle may have written part of it, up to the end of a page."""
        was_dead = disk.dead
        try:
            disk.step()
        except MachineDied:
            if not was_dead and disk.rng.random() < 0.5:
                end = offset + disk.rng.randint(0, len(data))
                write(memoryview(data)[: max(0, end - end % disk.sector - offset)])
            raise

    def _stepped(self, fd: int) -> Disk | None:
        disk = owners.get(fd)
        if disk is not None:
            disk.step()
        return disk

    def fsync(self, fd: int) -> None:
        disk = owners.get(fd) or self.by_inode.get(os.fstat(fd).st_ino)
        if disk is None:
            REAL["fsync"](fd)
        else:
            disk.sync(fd)

    fdatasync = fsync


def _from_root(path: Any, dir_fd: int | None) -> Any:
    """A path that is meant from a directory of ours, as shutil.rmtree() does, from where all others are."""
    return path if dir_fd not in owners else f"{owners[dir_fd].fds[dir_fd]}/{os.fspath(path)}"
