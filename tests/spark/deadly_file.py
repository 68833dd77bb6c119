"""Kills processes that open a file, before they can read it, by permission requests of the kernel: fanotify(7).

Needs root. A process that opens the file waits for the answer, so nothing depends on time.
"""

import ctypes
import os
import select
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_CLOEXEC, _CLASS_CONTENT = 0x1, 0x4
_MARK_ADD, _OPEN_PERM, _AT_FDCWD = 0x1, 0x10000, -100
_ALLOW, _DENY = 1, 2
_EVENT, _RESPONSE = struct.Struct("=IBBHQii"), struct.Struct("=iI")
assert _EVENT.size == 24

Victim = Callable[[psutil.Process], psutil.Process | None]


def python_worker(opener: psutil.Process) -> psutil.Process | None:
    """A Spark worker that runs a task; None for all other processes."""
    return opener if "pyspark.daemon" in opener.cmdline() else None


def executor(opener: psutil.Process) -> psutil.Process | None:
    """The JVM of a worker, if that is a separate executor."""
    return next((each for each in opener.parents() if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline())), None)


class DeadlyFile:
    """In the `with` block, kills the first `times` processes selected by `victim` among those that open `path`."""

    _answer = _ALLOW

    def __init__(self, path: Path, victim: Victim, *, times: int = 1 << 30) -> None:
        self.path = path
        self.killed: list[int] = []
        self._victim = victim
        self._times = times

    def __enter__(self) -> Self:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.fanotify_init(_CLOEXEC | _CLASS_CONTENT, os.O_RDONLY | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "fanotify_init")
        mask = ctypes.c_uint64(_OPEN_PERM)
        if libc.fanotify_mark(self._fd, _MARK_ADD, mask, _AT_FDCWD, os.fsencode(self.path)) < 0:
            os.close(self._fd)
            raise OSError(ctypes.get_errno(), "fanotify_mark", str(self.path))
        self._end, self._ended = os.pipe()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._ended)
        self._thread.join()
        os.close(self._fd)  # Processes that still wait are let through.
        os.close(self._end)

    def _watch(self) -> None:
        while True:
            ready, _, _ = select.select([self._fd, self._end], [], [])
            if self._end in ready:
                return
            data = os.read(self._fd, 64 * _EVENT.size)
            for *_, fd, pid in _EVENT.iter_unpack(data):
                try:
                    self._kill(pid)
                finally:
                    os.write(self._fd, _RESPONSE.pack(fd, self._answer))
                    os.close(fd)

    def _kill(self, pid: int) -> None:
        try:
            victim = self._victim(psutil.Process(pid))
        except psutil.NoSuchProcess:
            return
        if victim is not None and len(self.killed) < self._times:
            victim.kill()
            self.killed.append(victim.pid)


class ForbiddenFile(DeadlyFile):
    """In the `with` block no process may open `path`, not even as root."""

    _answer = _DENY

    def __init__(self, path: Path) -> None:
        super().__init__(path, lambda _opener: None)
