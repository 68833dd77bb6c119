"""Members' own disks: ext4 in a file each, which can lose its power, be frozen, and be mounted again."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.disk.faults import make_image

if TYPE_CHECKING:
    from scripts.fault_matrix.group import Group


def mount(image: Path, path: Path) -> None:
    """With a loop device that goes away with it."""
    subprocess.run(["mount", "-o", "loop,errors=remount-ro", str(image), str(path)], check=True)


def unmount(path: Path) -> None:
    """Once nobody uses it any more; it must be gone before it is mounted again, or the old one stays."""
    subprocess.run(["fsfreeze", "-u", str(path)], check=False, capture_output=True)
    for _ in range(100):
        done = subprocess.run(["umount", str(path)], check=False, capture_output=True, text=True)
        if done.returncode == 0 or "not mounted" in done.stderr:
            return
        time.sleep(0.1)
    raise OSError(f"{path} is still in use: {done.stderr}")


@contextmanager
def mounted_all(group: "Group", megabytes: int) -> Iterator[None]:
    """Every member's own, made, and mounted for as long as the group runs."""
    group.disks = {
        each.label: make_image(group.root / f"{each.label}.img", megabytes=megabytes) for each in group.members
    }
    homes = [member.home for member in group.members]
    try:
        for member in group.members:
            mount(group.disks[member.label], member.home)
        yield
    finally:
        for home in homes:
            unmount(home)
