"""Usage of a disk, by RocketMQ's formula, and its consequences.

Source: UtilAll.getDiskPartitionSpaceUsedPercent, DefaultMessageStore.CleanCommitLogService.isSpaceToDelete; RocketMQ 4.9.8.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

UNKNOWN = -1.0  # No such path.


def usage_ratio(path: Path) -> float:
    """The used part of the disk that holds `path`, rounded up to whole percents; UNKNOWN when there is no such path.

    Space reserved for the super-user counts as neither used nor free.
    """
    try:
        found = os.statvfs(path)
    except OSError:
        return UNKNOWN
    return used_ratio(total=found.f_blocks, free=found.f_bfree, usable=found.f_bavail)


def used_ratio(*, total: int, free: int, usable: int) -> float:
    """The used part, given three sizes in any unit."""
    used = total - free
    entire = used + usable
    return -(-used * 100 // entire) / 100 if entire else UNKNOWN


@frozen
class DiskLimits:
    """Percent. Above `clean` old files go at any hour, above `forced` whatever their age, above `full` producers are refused."""

    clean: int
    forced: int
    full: int


@frozen
class DiskState:
    """Consequences of a disk usage of `ratio`."""

    ratio: float
    must_clean: bool
    must_force: bool
    is_full: bool


def judge(ratios: Sequence[float], limits: DiskLimits) -> DiskState:
    """The state of a store's disks. The fullest one decides; an unknown one needs cleaning, as in RocketMQ."""
    ratio = max(ratios)
    percent = round(ratio * 100)
    return DiskState(
        ratio=ratio,
        must_clean=min(ratios) < 0 or percent > limits.clean,
        must_force=percent > limits.forced or percent > limits.full,
        is_full=percent > limits.full,
    )
