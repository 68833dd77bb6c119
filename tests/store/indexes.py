"""Indexes for tests: services over a log that lies in a directory, and files taken apart without the code under test."""

from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import trio

from twinlog.store.config import StoreConfig
from twinlog.store.index.service import IndexService
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.record.scan import DispatchEntry, scan_records

SLOTS, ITEMS = 100, 400  # Of the captured stores.
HEADER, ITEM = Struct(">qqqqii"), Struct(">iqii")


class Taken(NamedTuple):
    """A file taken apart: header fields, slots, items from item 0 on."""

    header: tuple[int, ...]
    slots: list[int]
    items: list[tuple[int, ...]]


def take_apart(content: bytes, slots: int = SLOTS) -> Taken:
    numbers = [number for (number,) in Struct(">i").iter_unpack(content[40 : 40 + 4 * slots])]
    return Taken(HEADER.unpack_from(content), numbers, list(ITEM.iter_unpack(content[40 + 4 * slots :])))


def index_files(root: Path) -> list[bytes]:
    """The contents, oldest first."""
    directory = root / "index"
    return [path.read_bytes() for path in sorted(directory.iterdir())] if directory.is_dir() else []


class Clock:
    """Local time that goes on by a ms with each look."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 31, 23, 59, 59, 120_000)

    def __call__(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time


class DispatchedLog(CommitLog):
    """A log whose records are in the queues as soon as they are written."""

    dispatched_offset = property(lambda self: self.max_offset, lambda self, value: None)


def open_log(root: Path, file_size: int) -> CommitLog:
    """The log of a directory, with its end where the last whole record ends."""
    files = MappedFileQueue(root / "commitlog", file_size, "mappedFileSizeCommitLog")
    files.load()
    while files.files:
        last = files.files[-1]
        last.wrote = scan_records(last.read(0, file_size), last.start, file_size, check_crc=True).consumed
        if last.wrote:
            break
        files.files.pop().close()
    return DispatchedLog(files)


def entries_of(log: CommitLog) -> list[DispatchEntry]:
    """Every record of a log."""
    return [
        entry
        for file in log.files.files
        for entry in scan_records(file.read(0, file.wrote), file.start, log.file_size, check_crc=True).entries
    ]


def make_index(root: Path, log: CommitLog, *, slots: int = SLOTS, items: int = ITEMS, **options: int) -> IndexService:
    """A service that follows the log to its end."""
    checkpoint = Checkpoint(root / "checkpoint")
    checkpoint.load()
    config = StoreConfig(root=root, max_hash_slot_num=slots, max_index_num=items)
    note = root / "twinlog" / "index-behind"
    return IndexService(root / "index", note, log, config, checkpoint, now=Clock(), **options)


async def until_caught_up(index: IndexService) -> None:
    """Wait until the index has all of the log."""
    while (
        index.statistics().lag_bytes or not index.is_caught_up
    ):  # Bounded by the test's own limit: threads take real time.
        await trio.sleep(0.01)


@asynccontextmanager
async def running(index: IndexService, *, after_crash: bool = False):
    """The service, open and caught up with the log; closed at the end."""
    index.load(after_crash=after_crash)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(index.run)
        await until_caught_up(index)
        yield index
        nursery.cancel_scope.cancel()
    await index.close()


# What RocketMQ would write


def java_hash(text: str) -> int:
    """String.hashCode by its definition, signed."""
    units, h = text.encode("utf-16-be", "surrogatepass"), 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        h = (31 * h + high * 256 + low) % (1 << 32)
    return h - (1 << 32) if h >= 1 << 31 else h


def java_abs(number: int) -> int:
    """Math.abs, with 0 for the one number that has none."""
    return 0 if number == -(1 << 31) else abs(number)


def expected_files(messages, slots: int, items: int) -> list[bytes]:
    """The contents of RocketMQ's files for (topic, keys, offset, store time) in the order of the log, put one by one."""
    files: list[tuple[list[int], list[int], list[tuple[int, ...]]]] = []
    for topic, keys, offset, timestamp in messages:
        for key in [None, *keys]:  # None: each message has a file looked up, keys or not.
            if not files or files[-1][0][5] >= items:
                header = [0, 0, 0, 0, 0, 1]
                if files:
                    full = files[-1][0]
                    header[:4] = full[1], full[1], full[3], full[3]
                files.append((header, [0] * slots, [(0, 0, 0, 0)]))
            if key is None:
                continue
            header, numbers, put = files[-1]
            h = java_abs(java_hash(f"{topic}#{key}"))
            seconds = max(0, (timestamp - header[0]) // 1000) if header[0] > 0 else 0
            previous = numbers[h % slots]
            put.append((h, offset, seconds, previous))
            numbers[h % slots] = header[5]
            if header[5] <= 1:
                header[0], header[2] = timestamp, offset
            header[4] += previous == 0
            header[1], header[3] = timestamp, offset
            header[5] += 1
    return [
        HEADER.pack(*header[:5], header[5] if header[5] > 1 else 0)  # Written with the first item.
        + Struct(f">{slots}i").pack(*numbers)
        + b"".join(ITEM.pack(*item) for item in put).ljust(items * ITEM.size, b"\0")
        for header, numbers, put in files
    ]
