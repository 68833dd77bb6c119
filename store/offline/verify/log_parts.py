"""Checks the files of the log one after the other, or several at a time in processes of their own."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from twinlog.store.integrity.digest import Block
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory
from twinlog.store.offline.verify.digest_check import DigestCheck
from twinlog.store.offline.verify.log_check import Segment, check_log
from twinlog.store.offline.walk import Gap

_PROGRESS_SECONDS = 0.1


@frozen
class Part:
    """What was found in one file of the log. `is_gone`: a running broker removed it."""

    end: int
    pieces: list[Segment | Gap]
    differing: list[Block]
    digest_bytes: int
    is_gone: bool = False
    unreadable: str | None = None  # Why the file cannot be read.


def check_part(
    directory: StoreDirectory, digests: DigestCheck, start: int, end: int, progress: Callable[[int], None]
) -> Part:
    part = evolve(digests, differing=[], checked_bytes=0)
    try:
        pieces = list(check_log(directory, start, end, progress))
        part.check(start, end, progress)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and directory.is_running:
            return Part(end, [], [], 0, is_gone=True)
        return Part(end, [Gap(start, end, f"it cannot be read: {error}")], [], 0, unreadable=str(error))
    return Part(end, pieces, part.differing, part.checked_bytes)


_worker: Any = None  # In a process of the pool: directory, digests, counter.


def _open_worker(root: Path, options: DirectoryOptions, done: "Synchronized[int]") -> None:
    global _worker
    directory = StoreDirectory.open(root, options)
    _worker = directory, DigestCheck.open(directory), done


def _check_in_worker(start: int, end: int) -> Part:
    directory, digests, done = _worker

    def advance(count: int) -> None:
        with done.get_lock():
            done.value += count

    return check_part(directory, digests, start, end, advance)


def check_in_processes(
    directory: StoreDirectory, ranges: list[tuple[int, int]], processes: int, progress: Callable[[int], None]
) -> Iterator[Part]:
    """The parts in order. New processes, not forks: this one may have threads."""
    context = multiprocessing.get_context("spawn")
    done = context.Value("q", 0)
    arguments = directory.root, directory.options, done
    with ProcessPoolExecutor(processes, context, _open_worker, arguments) as pool:
        futures = [pool.submit(_check_in_worker, start, end) for start, end in ranges]
        try:
            for future in futures:
                while wait_for([future], timeout=_PROGRESS_SECONDS).not_done:
                    progress(done.value)
                yield future.result()
                progress(done.value)
        finally:
            for future in futures:
                future.cancel()
