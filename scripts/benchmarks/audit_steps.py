"""What is measured of `twinlog audit` and its tables, each step in a process of its own.

    python -m scripts.benchmarks.audit_steps STEP OPTIONS_AS_JSON

Each line that stdout gets is a result, as JSON; stderr tells of progress. `roots` and `root` are store directories.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
import structlog
from attrs import evolve

from scripts.benchmarks.machine import memory
from scripts.benchmarks.store_directory import FULL
from scripts.benchmarks.store_steps import build_index, fill
from twinlog.store.integrity.digest import digests_of
from twinlog.store.record.scan import scan_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 2
READ_SIZE = 4 << 20
QUEUES = 64  # In topics of eight.
LEFT_FREE = 256 << 10  # A few messages fewer, so that the last file is full and the next one does not begin.
SAMPLE_SECONDS = 0.05
Result = dict[str, Any]


# Without Spark


def fill_log(*, root: str, log_bytes: int, log_file_bytes: int, with_index: bool = False) -> Iterator[Result]:
    """Make a store whose log fills so many bytes of files, or go on filling one. `with_index`: also index and digests."""
    scale = evolve(FULL, log_bytes=log_bytes - LEFT_FREE, log_file_bytes=log_file_bytes, queues=QUEUES)
    yield fill(Path(root), scale)
    if with_index:
        build_index(Path(root), scale)


def page_cache(*, roots: list[str], processes: int, rounds: int) -> Iterator[Result]:
    """Read all bytes, each process its share of the files, and do nothing with them. The first time is not counted."""
    files = [file for root in roots for file in log_files(root)]
    for number in range(rounds + 1):
        began = time.perf_counter()
        children = [_forked(_read_all, files[at::processes]) for at in range(processes)]
        assert all(os.waitpid(child, 0)[1] == 0 for child in children)
        if number:
            size = sum(file.stat().st_size for file in files)
            yield {"bytes": size, "processes": processes, "seconds": time.perf_counter() - began}


def plain_digests(*, roots: list[str], rounds: int) -> Iterator[Result]:
    """The digests of all blocks, by a loop of Python."""
    for _ in range(rounds):
        began, size = time.perf_counter(), 0
        for root in roots:
            for start, view in _pieces(root):
                digests_of(view, start)
                size += len(view)
        yield {"bytes": size, "seconds": time.perf_counter() - began}


def plain_records(*, root: str, rounds: int) -> Iterator[Result]:
    """All records and their CRCs, by the loop that dispatch and recovery use."""
    for _ in range(rounds):
        began, size, records = time.perf_counter(), 0, 0
        for file in log_files(root):
            start, file_size, rest = int(file.name), file.stat().st_size, b""
            for piece in _views(file):
                data = rest + piece
                scan = scan_records(data, start, file_size, check_crc=True)
                start, rest = start + scan.consumed, data[scan.consumed :]
                records += len(scan.entries)
            size += file_size
        yield {"bytes": size, "messages": records, "seconds": time.perf_counter() - began}


def log_files(root: str) -> list[Path]:
    return sorted((Path(root) / "commitlog").iterdir())


def _read_all(files: list[Path]) -> None:
    for file in files:
        for _ in _views(file):
            pass


def _pieces(root: str) -> Iterator[tuple[int, memoryview]]:
    for file in log_files(root):
        start = int(file.name)
        for view in _views(file):
            yield start, view
            start += len(view)


def _views(file: Path) -> Iterator[memoryview]:
    """The file in pieces, each of which is good until the next one is asked for."""
    buffer, at = memoryview(bytearray(READ_SIZE)), 0
    fd = os.open(file, os.O_RDONLY)
    try:
        while count := os.preadv(fd, [buffer], at):
            yield buffer[:count]
            at += count
    finally:
        os.close(fd)


def _forked(work: Callable[..., None], *arguments: Any) -> int:
    child = os.fork()
    if child == 0:
        work(*arguments)
        os._exit(0)
    return child


# With Spark


def start_up(*, root: str) -> Iterator[Result]:
    """From the start of a process until Spark has answered something, and once more."""
    began = time.perf_counter()
    with _session() as spark:
        seconds = {"session": time.perf_counter() - began}
        for name in ("first", "second"):
            began = time.perf_counter()
            _run(_table(spark, "rocketmq_blocks", [root]))
            seconds[name] = time.perf_counter() - began
        yield {f"{name}_seconds": value for name, value in seconds.items()}


def table_scan(
    *, source: str, roots: list[str], rounds: int, warm_up: str, options: dict[str, str] | None = None
) -> Iterator[Result]:
    """All rows and columns of a table, thrown away. Warm: the same table of store `warm_up` was read before."""
    with _session() as spark:
        _run(_table(spark, source, [warm_up], options))
        for _ in range(rounds):
            with Watch(spark) as watch:
                _run(_table(spark, source, roots, options))
            yield {"bytes": _size(roots), **watch.result()}


def audits(*, roots: list[str], rounds: int, warm_up: str, tasks: int = TASKS, **options: bool) -> Iterator[Result]:
    """`twinlog audit` without the start of Spark, so many tasks at once, with options of AuditOptions."""
    from twinlog.cluster.pipeline.jobs.audit import AuditOptions, audit
    from twinlog.cluster.pipeline.sources.places import StoreUri

    with _session(tasks, with_tables=False, is_brief=True) as spark:  # As the command's.
        for number in range(rounds + 1):
            stores = [StoreUri(root) for root in (roots if number else [warm_up, warm_up])]
            with Watch(spark) as watch:
                report = audit(spark, stores, AuditOptions(**options))
            if number:
                yield {"bytes": _size(roots), "verdict": str(report.verdict), "processes": tasks, **watch.result()}


def master(tasks: int) -> str:
    """So many at once, on this machine."""
    return f"local[{tasks},4]"


@contextmanager
def _session(tasks: int = TASKS, **options: bool) -> Iterator["SparkSession"]:
    from twinlog.cluster.pipeline.jobs.session import spark_session

    session = spark_session(master(tasks), name="bench", **options)
    try:
        yield session
    finally:
        session.stop()


def _table(spark: "SparkSession", source: str, roots: list[str], options: dict[str, str] | None = None) -> "DataFrame":
    return spark.read.format(source).options(**(options or {})).option("path", ",".join(roots)).load()


def _run(table: "DataFrame") -> None:
    table.write.format("noop").mode("overwrite").save()


def _size(roots: list[str]) -> int:
    return sum(file.stat().st_size for root in roots for file in log_files(root))


class Watch:
    """Time, and the most memory that a Python worker, the JVM and this process held meanwhile."""

    def __init__(self, spark: "SparkSession") -> None:
        self._jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._worker_mib = self._jvm_mib = self._job_mib = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = time.perf_counter() - self._began
        self._over.set()
        self._thread.join()

    def result(self) -> Result:
        return {
            "seconds": self._seconds,
            "worker_mib_max": self._worker_mib,
            "jvm_mib_max": self._jvm_mib,
            "job_mib_max": self._job_mib,
        }

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            found = [mib for each in self._jvm.children(recursive=True) if (mib := _anon_mib(each.pid)) is not None]
            self._worker_mib = max([self._worker_mib, *found])
            self._jvm_mib = max(self._jvm_mib, _anon_mib(self._jvm.pid) or 0)
            self._job_mib = max(self._job_mib, _anon_mib(os.getpid()) or 0)


def _anon_mib(pid: int) -> float | None:
    """None: it has ended."""
    try:
        return memory(pid)["anon_mib"]
    except (OSError, KeyError):
        return None


STEPS: dict[str, Callable[..., Iterator[Result]]] = {
    "fill": fill_log,
    "page-cache": page_cache,
    "plain-digests": plain_digests,
    "plain-records": plain_records,
    "start-up": start_up,
    "scan": table_scan,
    "audit": audits,
}

if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    step, options = sys.argv[1:]
    for row in STEPS[step](**json.loads(options)):
        print(json.dumps(row), flush=True)
