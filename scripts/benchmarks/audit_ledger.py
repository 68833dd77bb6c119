"""scripts/bench audit-ledger: what a run of `twinlog audit --incremental` costs, by the length of the log and by what is new.

Two replicas. All files of a log but the last one are links to one file, so that logs of any length take 2 GiB of disk and memory
for both replicas: digests take as long for these bytes as for others. They are in the page cache; a disk would add its own time.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

from attrs import define, evolve, field, frozen

from scripts.benchmarks.report import Row, say, scratch
from scripts.benchmarks.store_directory import BODY_SIZE
from twinlog.cluster.pipeline.ledger.directories import run_directories
from twinlog.cluster.pipeline.ledger.files import Ledger, opened
from twinlog.cluster.pipeline.ledger.standing import standing_of
from twinlog.cluster.pipeline.ledger.values import LedgerState
from twinlog.store.record.message import Message, body_crc, encode_message

MIB, GIB = 1 << 20, 1 << 30
HOUR_MS, WEEK_MS = 3_600_000, 7 * 24 * 3_600_000
NOW_MS = 1_795_000_000_000


@frozen
class Case:
    """A run: `new_bytes` were appended since the last one, which was `hours` ago."""

    name: str
    new_bytes: int = 0
    hours: float = 0.0


@define
class AuditLedgerBench:
    """One run. `sizes`: of the logs, in bytes; multiples of `file_bytes`. `new_bytes`: so many come before a run."""

    sizes: tuple[int, ...]
    file_bytes: int
    new_bytes: tuple[int, ...]
    rounds: int
    root: Path = field(init=False)

    def rows(self) -> Iterator[Row]:
        """Measure."""
        with scratch("bench-audit-ledger-") as self.root:
            bases = [self._base(name) for name in ("a", "b")]
            for number in range(1, self.rounds + 1):
                for size in self.sizes:
                    say(f"round {number}: {size / GIB:g} GiB ...")
                    roots = [_linked(base, self.root / f"{number}-{size}-{base.name}", size) for base in bases]
                    yield from ({"round": number, "log_bytes": size, **row} for row in self._measured(roots, size))

    def _base(self, name: str) -> Path:
        """A full file of a log: the same bytes in a file of each replica's own."""
        path = self.root / name
        data = b"".join(_records(0, MIB))
        with path.open("wb") as file:
            for _ in range(self.file_bytes // MIB):
                file.write(data[:MIB].ljust(MIB, b"\0"))
        return path

    def _measured(self, roots: list[Path], size: int) -> Iterator[Row]:
        end = self._append(roots, size, size, MIB)
        with opened(roots[0].with_name(f"{roots[0].name}-ledger")) as ledger:
            cases = [Case("first"), Case("nothing new")]
            cases += [Case("new", new) for new in self.new_bytes]
            cases += [Case("an hour later", hours=1.0)]
            for case in cases:
                if case.new_bytes:
                    end = self._append(roots, size, end, case.new_bytes)
                yield {"case": case.name, **_run(ledger, roots, case)}

    def _append(self, roots: list[Path], start: int, at: int, size: int) -> int:
        """Write messages behind the log's end, in both replicas; returns the new end."""
        size = min(size, start + self.file_bytes - at - MIB)
        data = b"".join(_records(at, size))
        for root in roots:
            with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
                file.seek(at - start)
                file.write(data)
        return at + len(data)


def _run(ledger: Ledger, roots: list[Path], case: Case) -> Row:
    state: LedgerState = ledger.state()
    state = evolve(state, paced_ms=state.paced_ms - round(case.hours * HOUR_MS))
    began, cpu = time.perf_counter(), time.process_time()
    result, _ = run_directories(state, [str(root) for root in roots], WEEK_MS)
    ledger.add(result, "bench")
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    standing = standing_of(result.state)
    assert (standing.verdict, standing.proved_to) == ("equal", standing.log_end), standing
    return {
        "new_bytes": standing.new_bytes,
        "again_bytes": standing.again_bytes,
        "read_bytes": standing.read_bytes,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
    }


def _linked(base: Path, root: Path, size: int) -> Path:
    """A store whose log has `size` bytes in links to one file, and a sparse file more for what is appended."""
    directory, file_bytes = root / "commitlog", base.stat().st_size
    directory.mkdir(parents=True)
    for start in range(0, size, file_bytes):
        os.link(base, directory / f"{start:020d}")
    with (directory / f"{size:020d}").open("wb") as last:
        last.truncate(file_bytes)
    return root


def _records(start: int, size: int) -> Iterator[bytes]:
    """Messages as they lie from a byte of the log on, up to `size` bytes of them."""
    body, at, number = random.Random(start).randbytes(BODY_SIZE), start, 0
    crc = body_crc(body)
    while True:
        message = Message(
            topic="bench",
            queue_id=number % 8,
            properties_raw=b"",
            body=body,
            phy_offset=at,
            queue_offset=number // 8,
            body_crc=crc,
            store_timestamp=NOW_MS + number,
        )
        record = encode_message(message)
        if at + len(record) > start + size:
            return
        yield record
        at += len(record)
        number += 1
