"""Hooks of a store: clocks, and decisions of the layers above it."""

import time
from collections.abc import Callable
from pathlib import Path

from attrs import define, field

from twinlog.store.retention import NO_FLOOR
from twinlog.store.util import disk_space


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _disk_usage(path: Path) -> float:
    return disk_space.usage_ratio(path)


def _no_floor() -> int:
    return NO_FLOOR


@define(eq=False, kw_only=True)
class StoreHooks:
    """Shared by the parts of a store; the layers above set them before it runs.

    Both retention floors are log offsets: files with bytes from there on stay. The soft one holds as long as the disk has room.
    """

    now_ms: Callable[[], int] = _wall_clock_ms
    clock: Callable[[], float] = time.monotonic  # Seconds, for the duration of writes.
    disk_usage: Callable[[Path], float] = _disk_usage
    retention_floor: Callable[[], int] = _no_floor  # The lowest byte that replicas still need.
    soft_retention_floor: Callable[[], int] = _no_floor  # The lowest byte that a disconnected replica may ask for.
    dispatch_limit: Callable[[], int] | None = None  # Consumers are shown bytes below it only; None: all bytes.
    appended: list[Callable[[], None]] = field(factory=list)  # Called after bytes were added to the log.
    on_truncate: list[Callable[[int], None]] = field(factory=list)  # Called with its new end, before it grows again.
