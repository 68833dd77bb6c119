"""Too little of everything: no idle core, little memory, a thousand clients. Nobody is dead, and nobody may be taken for it."""

import atexit
import os
import re
import resource
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.fault import LEASE_S, Fault
from scripts.fault_matrix.group import PYTHON, Member

CLIENTS = 1000
BURNERS_PER_CORE = 4
ROOM = 16 << 20  # Bytes of memory that a member may take besides what it has: files that it writes are among them.
SPARSE = 1 << 30  # Bytes of a file without any.
SECONDS_MAX = 60.0
STALL = re.compile(r"(?:stalls|did not run|has no CPU|goes on).*\"seconds\": ([0-9.]+)")
TAKEN_FOR_DEAD = re.compile(
    r"replication interrupted|slave left|no answer|fenced|gives no answer|connection .*given up"
)
CGROUPS = Path("/sys/fs/cgroup")
_numbers = count()
_made: list[Path] = []


def burn(seconds: float) -> list[subprocess.Popen[bytes]]:
    """All cores, for so long at most."""
    program = f"import time\nends = time.monotonic() + {seconds}\nwhile time.monotonic() < ends: pass"
    number = (os.cpu_count() or 1) * BURNERS_PER_CORE
    return [subprocess.Popen([PYTHON, "-c", program]) for _ in range(number)]


def read_on(path: Path, seconds: float) -> subprocess.Popen[bytes]:
    """A file of holes, over and over: what is cached of it crowds out what others have cached.

    A little at a time, and nothing ahead: pages that are being read cannot be taken from anybody. With 8 MiB of them, as
    some disks have read ahead, there was nothing left to take, and the kernel killed a member.
    """
    with path.open("wb") as file:
        file.truncate(SPARSE)
    program = (
        "import os, time\n"
        f"ends, file, buffer = time.monotonic() + {seconds}, open({str(path)!r}, 'rb', 0), bytearray(1 << 16)\n"
        "os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)\n"
        "while time.monotonic() < ends:\n"
        "    if not file.readinto(buffer): file.seek(0)\n"
    )
    return subprocess.Popen([PYTHON, "-c", program])


def can_cap() -> bool:
    """Whether this machine lets us make a group of processes with little memory."""
    here = _hierarchy()
    if here == CGROUPS:
        control = CGROUPS / "cgroup.subtree_control"
        if not control.exists() or "memory" not in control.read_text().split():
            return False
    return os.access(here, os.W_OK)


def _hierarchy() -> Path:
    old = CGROUPS / "memory"
    return old if old.exists() else CGROUPS


@define
class Cage:
    """A control group with little memory, and who was put into it. Version 1 of them, or 2."""

    path: Path
    pids: list[int] = field(factory=list)

    @classmethod
    def of(cls, pids: Iterable[int], room: int) -> "Cage":
        path = _hierarchy() / f"twinlog-{os.getpid()}-{next(_numbers)}"
        path.mkdir()
        _made.append(path)
        cage = cls(path)
        is_old = (path / "memory.limit_in_bytes").exists()
        (path / ("memory.limit_in_bytes" if is_old else "memory.max")).write_text(str(room))
        for pid in pids:
            cage.put(pid)
        return cage

    def put(self, pid: int) -> None:
        """What it has by now is not counted."""
        (self.path / "cgroup.procs").write_text(str(pid))
        self.pids.append(pid)

    @property
    def refusals(self) -> int:
        """How often there was no memory, and something had to go first."""
        old, new = self.path / "memory.failcnt", self.path / "memory.events"
        words = (old if old.exists() else new).read_text().split()
        return int(words[words.index("max") + 1] if "max" in words else words[0])

    def open(self) -> None:
        """Everybody leaves, as far as he lives."""
        for pid in self.pids:
            with suppress(OSError):
                (_hierarchy() / "cgroup.procs").write_text(str(pid))
        _remove(self.path)


def _remove(path: Path) -> None:
    for _ in range(50):
        with suppress(FileNotFoundError):
            try:
                path.rmdir()
            except OSError:
                time.sleep(0.1)
                continue
        return


@atexit.register
def _remove_all() -> None:
    """Those of a run that was interrupted, once its processes are gone."""
    for path in _made:
        if path.exists():
            for pid in (path / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    (_hierarchy() / "cgroup.procs").write_text(pid)
            _remove(path)


def crowd(member: Member, number: int) -> list[socket.socket]:
    """Clients that have come, and say nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * number < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * number, hard))
    return [socket.create_connection((member.place.address, member.port), timeout=10) for _ in range(number)]


@define(eq=False)
class Pressure(Fault):
    """All at once, longer than a lease."""

    needs: ClassVar[Sequence[str]] = ("cgroup",)
    sizes: dict[str, int] = field(init=False)
    burners: list[subprocess.Popen[bytes]] = field(init=False)
    clients: list[socket.socket] = field(factory=list, init=False)
    cage: Cage = field(init=False)

    def prepare(self) -> None:
        self.hold_s = self.rng.uniform(LEASE_S + 2, LEASE_S + 5)
        self.master = self.group.master()

    master: Member = field(init=False)

    @property
    def text(self) -> str:
        return (
            f"{CLIENTS} clients come to {self.master.label} and say nothing, members and somebody who reads a large file "
            f"share {ROOM >> 20} MiB of new memory, and all cores are busy for {self.hold_s:.1f} s"
        )

    def inject(self) -> None:
        self.sizes = {each.label: each.log_size for each in self.group.members}
        self.clients = crowd(self.master, CLIENTS)
        self.cage = Cage.of([each.pid for each in self.group.members], ROOM)
        self.burners = [*burn(SECONDS_MAX), reader := read_on(self.group.root / "holes.img", SECONDS_MAX)]
        self.cage.put(reader.pid)

    def heal(self) -> None:
        for burner in self.burners:
            burner.kill()
            burner.wait()
        refusals = self.cage.refusals
        self.group.write("note", text=f"{refusals} times there was no memory")
        self.cage.open()
        for client in self.clients:
            client.close()
        assert refusals, "there was memory all the time: the fault was none"
        gone = [each.label for each in self.group.members if not each.running]
        assert not gone, f"{', '.join(gone)} ended: dmesg tells whether it was killed for want of memory"
        self.look()

    def look(self) -> None:
        """Was anybody taken for dead who stood still for less than a lease?"""
        lines = {each.label: each.lines_from(self.sizes[each.label]) for each in self.group.members}
        stood = max(
            (float(found[1]) for each in lines.values() for line in each if (found := STALL.search(line))), default=0
        )
        self.group.write("note", text=f"the longest that anybody stood still: {stood:g} s")
        for label, said in lines.items():
            wrong = [line for line in said if TAKEN_FOR_DEAD.search(line)]
            if wrong and stood < LEASE_S:
                what = f"{label} takes somebody for dead, though nobody stood still for a lease: {wrong[0]}"
                self.group.complain("F", what)
