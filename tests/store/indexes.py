"""Indexes for tests: services over a log that lies in a directory, and files taken apart without the code under test."""

from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import trio

from store.checkpoint import Checkpoint
from store.commit_log import CommitLog
from store.config import StoreConfig
from store.index_service import IndexService
from store.mapped_file_queue import MappedFileQueue
from store.record_scan import DispatchEntry, scan_records

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
    return CommitLog(files)


def entries_of(log: CommitLog) -> list[DispatchEntry]:
    """Every record of a log."""
    return [
        entry
        for file in log.files.files
        for entry in scan_records(file.read(0, file.wrote), file.start, log.file_size, check_crc=True).entries
    ]


def make_index(root: Path, log: CommitLog, *, slots: int = SLOTS, items: int = ITEMS) -> IndexService:
    """A service that follows the log to its end."""
    checkpoint = Checkpoint(root / "checkpoint")
    checkpoint.load()
    config = StoreConfig(root=root, max_hash_slot_num=slots, max_index_num=items)
    return IndexService(root / "index", log, config, checkpoint, lambda: log.max_offset, now=Clock())


async def until_level(index: IndexService) -> None:
    """Wait until the index has all of the log."""
    with trio.fail_after(60):
        while index.statistics().lag_bytes or not index.is_level:
            await trio.sleep(0.01)


@asynccontextmanager
async def running(index: IndexService, *, after_crash: bool = False):
    """The service, open, level with the log; closed in the end."""
    index.load(after_crash=after_crash)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(index.run)
        await until_level(index)
        yield index
        nursery.cancel_scope.cancel()
    await index.close()
