"""A ledger on disk: a directory to which each run adds one directory, by a rename.

    LEDGER/lock                          held while a run or a service is on it
    LEDGER/runs/00000017/run.parquet     tables of the run, see rows.py; also members, ranges, proofs and findings
    LEDGER/runs/00000017/state           what the next run needs, with a checksum
    LEDGER/status.json                   what holds now, for `twinlog check`: written after the run, and again if it is missing

A run is there as a whole or not at all: a kill at any point leaves at most a directory `runs/.new`, which the next run removes.
Only the newest run is needed to go on; older ones are its history, and may be moved away or deleted.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from attrs import asdict, define, fields

from twinlog.cluster.pipeline.audit.standing import MemberStanding, Standing
from twinlog.cluster.pipeline.ledger.rows import TABLES, VERSION
from twinlog.cluster.pipeline.ledger.standing import standing_of
from twinlog.cluster.pipeline.ledger.tables import Rows, arrow_table, rows_of, schema_of_table
from twinlog.cluster.pipeline.ledger.values import LedgerState, RunResult
from twinlog.store.util.checked_file import decode_checked, encode_checked
from twinlog.store.util.plain import from_plain, to_plain
from twinlog.store.util.sync import make_directory, sync_directory, write_durably

if TYPE_CHECKING:
    import pyarrow as pa

RUNS, STATE, STATUS, LOCK = "runs", "state", "status.json", "lock"
_NEW = ".new"
_NAME = "ledger"


class LedgerError(Exception):
    """The directory cannot be used as a ledger. The message has cause, reason and next step."""


@define(eq=False)
class Ledger:
    """A ledger that is open for writing."""

    directory: Path

    def state(self) -> LedgerState:
        """The state after the last run; an empty one before the first. Raises LedgerError."""
        return read_state(self.directory)

    def add(self, result: RunResult, software: str) -> None:
        """Add a run, durably. Raises OSError; then the run is not in the ledger."""
        runs = self.directory / RUNS
        make_directory(runs)
        new, target = runs / _NEW, runs / run_name(result.state.run)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        for name, data in encoded(rows_of(result, software)).items():
            write_durably(new / f"{name}.parquet", data)
        write_durably(new / STATE, encode_checked(_NAME, VERSION, to_plain(result.state)))
        os.rename(new, target)
        sync_directory(runs)
        self.write_status(result.state)

    def write_status(self, state: LedgerState) -> None:
        """Write status.json. Raises OSError."""
        document = {"ledger": VERSION, **asdict(standing_of(state))}
        write_durably(
            self.directory / STATUS, orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        )


@contextmanager
def opened(directory: Path) -> Iterator[Ledger]:
    """Open a ledger, made if need be, for one process at a time. Raises LedgerError and OSError."""
    if re.match(r"\w+:/", str(directory)):
        raise LedgerError(f"{directory} is no local directory: a ledger needs renames and a lock. Name one on a disk.")
    if (
        directory.is_dir()
        and not (directory / RUNS).is_dir()
        and any(each.name != LOCK for each in directory.iterdir())
    ):
        raise LedgerError(f"{directory} is no ledger: it holds other files. Name a ledger, or a directory to create.")
    make_directory(directory)
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LedgerError(f"{directory} is in use by another audit. Wait for its end, or stop it.") from error
        ledger = Ledger(directory)
        state = ledger.state()
        if state.run and not (directory / STATUS).exists():
            ledger.write_status(state)
        yield ledger
    finally:
        os.close(lock)


def run_name(run: int) -> str:
    """Name of a run's directory."""
    return f"{run:08d}"


def run_numbers(directory: Path) -> list[int]:
    """Numbers of the runs that a ledger has, in order; none if there is no ledger. Raises OSError."""
    runs = directory / RUNS
    return sorted(int(each.name) for each in runs.iterdir() if each.name.isdecimal()) if runs.is_dir() else []


def read_state(directory: Path) -> LedgerState:
    """The state after the last run; an empty one before the first. Raises LedgerError."""
    try:
        numbers = run_numbers(directory)
        if not numbers:
            return LedgerState()
        path = directory / RUNS / run_name(numbers[-1]) / STATE
        return from_plain(LedgerState, decode_checked(_NAME, VERSION, path.read_bytes()))
    except (OSError, ValueError) as error:
        raise LedgerError(
            f"{directory} cannot be read: {error}. Name another ledger; the first run on it proves everything again. "
            "Or remove the directory of the last run: the one before it is gone on from."
        ) from error


def read_standing(path: Path) -> Standing:
    """Standing by a ledger, or by a copy of its status.json. Raises LedgerError."""
    if path.is_dir():
        return standing_of(read_state(path))
    try:
        document = orjson.loads(path.read_bytes())
        if not isinstance(document, dict) or document.get("ledger") != VERSION:
            raise ValueError("it is no status.json of a ledger of this version")
        return _standing(document)
    except (OSError, ValueError, TypeError) as error:
        raise LedgerError(f"{path} cannot be read: {error}. Name a ledger, or a copy of its status.json.") from error


def _standing(document: dict[str, Any]) -> Standing:
    """Fields that a later twinlog added are left out. Raises TypeError."""
    names, of_member = ({each.name for each in fields(kind)} for kind in (Standing, MemberStanding))
    known = {name: value for name, value in document.items() if name in names}
    members = [{key: value for key, value in each.items() if key in of_member} for each in document["members"]]
    return Standing(**{**known, "members": tuple(MemberStanding(**each) for each in members)})


def read_tables(directory: Path, *, last: int | None = None) -> "dict[str, pa.Table]":
    """All tables of a ledger by name, each with the rows of all runs, or of the `last` ones. Raises LedgerError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        numbers = run_numbers(directory)[-last if last else None :]
        places = [directory / RUNS / run_name(number) for number in numbers]
        return {
            name: pa.concat_tables(
                [pq.ParquetFile(place / f"{name}.parquet").read() for place in places]
                or [schema_of_table(name).empty_table()],
                promote_options="default",
            )
            for name in TABLES
        }
    except (OSError, pa.ArrowException) as error:
        raise LedgerError(f"{directory} cannot be read: {error}. Name a ledger.") from error


def encoded(rows: Rows) -> dict[str, bytes]:
    """Tables as Parquet, by name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = {}
    for name in TABLES:
        sink = pa.BufferOutputStream()
        pq.write_table(arrow_table(name, rows[name]), sink, compression="zstd")
        found[name] = sink.getvalue().to_pybytes()
    return found
