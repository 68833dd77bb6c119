"""Comparison of the commit logs, and of the consume queues, of two stores: of any broker, for only files are read."""

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

RECORD_MAGICS = (0xDAA320A7, 0xDAA320AB)  # Version 1, and version 2 of RocketMQ 5.
BLANK_MAGIC = 0xCBD43194
HEAD = struct.Struct(">iI")  # Size of the record, its magic.
CHUNK_SIZE = 1 << 20
T = TypeVar("T")


class CommitLogsDifferError(AssertionError):
    """Two commit logs are not the same. `offset` is the first byte in which they differ."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"commit logs differ at offset {offset}: {why}")
        self.offset = offset


def assert_same_commitlog(dir_a: Path, dir_b: Path) -> tuple[int, int]:
    """Compare what was written in two commitlog directories; return its first and its end offset.

    A log may start later than the other, because a fresh slave of a real master begins with the master's last file: the
    comparison starts where both have data. It must end at the same byte. Raises CommitLogsDifferError.
    """
    start = max(start_offset(dir_a), start_offset(dir_b))
    end_a, end_b = end_offset(dir_a), end_offset(dir_b)
    position = start
    while position < min(end_a, end_b):
        a, b = _read(dir_a, position), _read(dir_b, position)
        size = min(len(a), len(b), min(end_a, end_b) - position)
        if size == 0:
            raise CommitLogsDifferError(position, f"no file holds it in {dir_a if not a else dir_b}")
        if a[:size] != b[:size]:
            wrong = next(i for i in range(size) if a[i] != b[i])
            what = f"0x{a[wrong]:02x} in {dir_a}, 0x{b[wrong]:02x} in {dir_b}"
            raise CommitLogsDifferError(position + wrong, what)
        position += size
    if end_a != end_b:
        raise CommitLogsDifferError(position, f"{dir_a} ends at {end_a}, {dir_b} at {end_b}")
    return start, end_a


def wait_for_same_commitlog(dir_a: Path, dir_b: Path, *, timeout_s: float = 30) -> tuple[int, int]:
    """Give replication some time, then say what assert_same_commitlog says."""
    return _in_time(lambda: assert_same_commitlog(dir_a, dir_b), CommitLogsDifferError, timeout_s)


def _in_time(compare: Callable[[], T], differs: type[AssertionError], timeout_s: float) -> T:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return compare()
        except differs:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def start_offset(directory: Path) -> int:
    """Return the offset of the first byte that the log still has."""
    return min(_files(directory), default=0)


def end_offset(directory: Path) -> int:
    """Return the offset behind the last whole record or blank: files are preallocated, so their size says nothing."""
    files = _files(directory)
    for start in sorted(files, reverse=True):
        used = _used(files[start])
        if used or start == min(files):
            return start + used
    return 0


def _used(path: Path) -> int:
    """Walk the records of one file; a blank reaches to the file's end, anything else that is no record is the end."""
    position = 0
    with path.open("rb") as file:
        while len(head := os.pread(file.fileno(), HEAD.size, position)) == HEAD.size:
            size, magic = HEAD.unpack(head)
            if size <= 0 or magic not in (*RECORD_MAGICS, BLANK_MAGIC):
                break
            position += size
    return position


def _files(directory: Path) -> dict[int, Path]:
    if not directory.is_dir():
        return {}
    return {int(path.name): path for path in directory.iterdir() if path.name.isdigit()}


def _read(directory: Path, offset: int) -> bytes:
    """Return some bytes at an offset of the log, none when no file holds it."""
    files = _files(directory)
    start = max((start for start in files if start <= offset), default=None)
    if start is None:
        return b""
    with files[start].open("rb") as file:
        return os.pread(file.fileno(), CHUNK_SIZE, offset - start)


UNIT = struct.Struct(">qiq")  # Where the record lies in the log, its size, its tag's code.
FILLER_SIZE = 0x7FFFFFFF  # Of units that only fill a queue which begins late.

Unit = tuple[int, int, int]
Queues = dict[tuple[str, int], dict[int, Unit]]  # By topic and queue id, then by queue offset.


class ConsumeQueuesDifferError(AssertionError):
    """Two stores lead consumers to different records, or one of them not as far."""


def queue_units(store: Path, *, start: int = 0) -> Queues:
    """Read all units of a store that point to the log at `start` or behind it."""
    return {
        (queue.parent.name, int(queue.name)): units
        for queue in sorted((store / "consumequeue").glob("*/*"))
        if (units := _units(queue, start))
    }


def assert_same_queues(store_a: Path, store_b: Path, *, start: int = 0) -> int:
    """Compare all that points to the log at `start` or behind it; returns the number of units of each.

    Raises ConsumeQueuesDifferError.
    """
    a, b = queue_units(store_a, start=start), queue_units(store_b, start=start)
    if a.keys() != b.keys():
        raise ConsumeQueuesDifferError(f"only one of them has the queues {sorted(a.keys() ^ b.keys())}")
    for name, units in a.items():
        if units != b[name]:
            at = min(offset for offset in units.keys() | b[name].keys() if units.get(offset) != b[name].get(offset))
            what = f"{units.get(at)} in {store_a}, {b[name].get(at)} in {store_b}"
            raise ConsumeQueuesDifferError(f"queue {name} differs at queue offset {at}: {what}")
    return sum(map(len, a.values()))


def wait_for_same_queues(store_a: Path, store_b: Path, *, start: int = 0, timeout_s: float = 20) -> int:
    """Give dispatch some time, then say what assert_same_queues says."""
    return _in_time(lambda: assert_same_queues(store_a, store_b, start=start), ConsumeQueuesDifferError, timeout_s)


def _units(queue: Path, start: int) -> dict[int, Unit]:
    units = {}
    for file in queue.iterdir():
        first = int(file.name) // UNIT.size
        content = file.read_bytes()
        for place, unit in enumerate(UNIT.iter_unpack(content[: len(content) // UNIT.size * UNIT.size])):
            if unit[0] >= start and 0 < unit[1] < FILLER_SIZE:
                units[first + place] = unit
    return units
