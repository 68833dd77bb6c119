"""A member is refused something by its machine: room on its disk, writing at all, one more open file. Reads go on."""

import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from attrs import define, field

from scripts.fault_matrix.disks import mount, unmount
from scripts.fault_matrix.fault import Fault
from scripts.fault_matrix.group import Member
from tests.support.disk.faults import Disk
from tests.support.process_group.process import Process

PIECE = 1 << 20


@define(eq=False)
class Refusal(Fault):
    """Of the master, or of a slave."""

    needs: ClassVar[Sequence[str]] = ("root",)
    victim: Member = field(init=False)

    def prepare(self) -> None:
        self.victim = self.rng.choice([self.group.master(), *self.group.slaves()[:1]])
        self.hold_s = self.rng.uniform(2.0, 4.0)

    def reads_go_on(self) -> None:
        """Whatever was shown to consumers can still be read, from the master, to its end."""
        done = self.group.read_all(self.group.root / "reads")
        if done.returncode:
            raise AssertionError(f"reads do not go on: {done.stderr[-1000:]}")
        self.group.write("note", text="reads went on")


@define(eq=False)
class NoRoom(Refusal):
    """Somebody else's file takes all that is left of the disk: the log's next file does not fit."""

    trace: ClassVar[str] = r"No space left|disk full"

    @property
    def text(self) -> str:
        return f"the disk of {self.victim.label} is full for {self.hold_s:.1f} s"

    @property
    def ballast(self) -> Path:
        return self.victim.home / "ballast"

    def inject(self) -> None:
        with self.ballast.open("wb") as file:
            while True:  # Also what is kept for root.
                found = os.statvfs(self.victim.home)
                size = file.seek(0, os.SEEK_END)
                room = max(found.f_bfree * found.f_frsize - PIECE, PIECE)
                try:
                    os.posix_fallocate(file.fileno(), size, room)
                except OSError:
                    return

    def heal(self) -> None:
        self.reads_go_on()
        self.ballast.unlink()


@define(eq=False)
class ReadOnly(Refusal):
    """The kernel finds an error in a slave's file system and makes it read-only, and the machine is started anew.

    What was not on the disk is gone with it, as if the power had been cut: a master is fenced then (row 3).
    """

    trace: ClassVar[str] = r"Read-only file system"

    def prepare(self) -> None:
        Refusal.prepare(self)
        self.victim = self.rng.choice(self.group.slaves())

    @property
    def killed(self) -> Sequence[Process]:
        return [self.victim]

    @property
    def text(self) -> str:
        return f"the disk of {self.victim.label} is read-only for {self.hold_s:.1f} s, and its machine is started anew"

    def inject(self) -> None:
        mounts = [line.split()[:2] for line in Path("/proc/mounts").read_text().splitlines()]
        (device,) = (source for source, path in mounts if path == str(self.victim.home))
        disk = Disk(self.victim.home)
        disk.device = device.rpartition("/")[2]
        disk.report_error()

    def heal(self) -> None:
        self.reads_go_on()
        self.victim.kill()
        unmount(self.victim.home)
        mount(self.group.disks[self.victim.label], self.victim.home)
        self.victim.note_boot()
        Process.start(self.victim)


@define(eq=False)
class TooManyFiles(Refusal):
    """It may open no more file and take no more connection; those that it has go on."""

    trace: ClassVar[str] = r"Too many open files|connections refused"
    limits: tuple[int, int] = field(init=False)

    @property
    def text(self) -> str:
        return f"{self.victim.label} may open no more files for {self.hold_s:.1f} s"

    def inject(self) -> None:
        pid = self.victim.pid
        self.limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        number = max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (number, self.limits[1]))
        time.sleep(0.1)

    def heal(self) -> None:
        resource.prlimit(self.victim.pid, resource.RLIMIT_NOFILE, self.limits)
