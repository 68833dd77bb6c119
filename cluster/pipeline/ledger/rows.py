"""Rows of a ledger's tables: one class a table, each field a column. No I/O.

docs/reference/ledger.md is generated from them. Offsets are bytes of the log, times ms since 1970.
"""

from collections.abc import Mapping
from typing import Any

from attrs import NOTHING, field, frozen

VERSION = 1  # Of the ledger's form. A reader of this version reads no later one.


def column(kind: str, doc: str, default: Any = NOTHING) -> Any:
    """A column: the name of its type in schema.py, and its description."""
    return field(default=default, metadata={"kind": kind, "doc": doc})


def run_number() -> Any:
    """The column that all tables have in common."""
    return column("int64", "number of the run, from 1")


@frozen(kw_only=True)
class RunRow:
    """One run. There is one row in each run's directory."""

    run: int = run_number()
    started: int = column("timestamp", "start of the run")
    ended: int = column("timestamp", "its end")
    kind: str = column("string", "`directories`, or `live`: running brokers")
    verdict: str = column(
        "string", "as of `twinlog audit`, of what this run compared and of the findings that are open"
    )
    proved_from: int | None = column("int64", "where the bytes begin that all members have; null: there are none", None)
    proved_to: int | None = column("int64", "all members are proved equal from there up to here", None)
    log_end: int | None = column("int64", "end of the longest log", None)
    oldest_proof: int | None = column("timestamp", "time of the oldest proof that holds", None)
    new_bytes: int = column("int64", "bytes that were compared because no proof covered them", 0)
    again_bytes: int = column("int64", "bytes that were compared again because their proof was the oldest", 0)
    fault_bytes: int = column("int64", "bytes that were compared again because members differed there", 0)
    read_bytes: int = column("int64", "bytes whose digests were taken, over all members", 0)
    lost_bytes: int = column("int64", "bytes whose proof ended in this run, because a log was cut or replaced", 0)
    findings_new: int = column("int64", "findings seen for the first time", 0)
    findings_open: int = column("int64", "findings open after the run", 0)
    findings_closed: int = column("int64", "findings repaired, or gone with their bytes", 0)
    full_pass_seconds: float | None = column("float64", "within this time every byte is to be proved again", None)
    software: str = column("string", "version of twinlog", "")


@frozen(kw_only=True)
class MemberRow:
    """One member, as a run found it."""

    run: int = run_number()
    member: str = column("string", "name of the member")
    place: str = column("string", "directory or URI of its store, or address of its broker, without keys")
    is_master: bool = column("bool", "named first")
    software: str | None = column("string", "software of the broker, if known", None)
    first: int | None = column("int64", "start of its log; null: it was not read", None)
    last: int | None = column("int64", "end of its log", None)
    epoch: int | None = column("int64", "the epoch at the end of its log; null: it has no history", None)
    winner: str | None = column("string", "id of the member that won this epoch", None)
    proved_to: int | None = column(
        "int64", "its bytes are proved equal to another member's up to here, without a gap", None
    )
    lost_bytes: int = column("int64", "its bytes whose proof ended in this run", 0)
    lost_why: str | None = column("string", "why: cut, another store, another history, a file that changed", None)
    problem: str | None = column("string", "why it was not read; null: it was", None)


@frozen(kw_only=True)
class RangeRow:
    """One range that a run compared."""

    run: int = run_number()
    start: int = column("int64", "first byte")
    end: int = column("int64", "end of the range")
    reason: str = column(
        "string", "`new`: no proof covered it; `again`: its proof was the oldest; `fault`: members differed"
    )
    equal: tuple[str, ...] = column("list", "the members that were found equal; fewer than two: nothing was proved")
    different: tuple[str, ...] = column(
        "list", "members that have these bytes, and are not equal to them or not readable", ()
    )
    by: str = column(
        "string",
        "`digests`: of bytes as they were read; `written`: digests that running members keep of what they wrote; `samples`",
    )
    at: int = column("timestamp", "no later than the bytes were read")
    digest: str = column(
        "string", "xxh3-128 of the last block of 64 KiB of the range, or its part in it; empty: not taken", ""
    )


@frozen(kw_only=True)
class ProofRow:
    """A range that is proved after a run: this table is the coverage at that time."""

    run: int = run_number()
    start: int = column("int64", "first byte")
    end: int = column("int64", "end of the range")
    members: tuple[str, ...] = column("list", "members whose bytes are equal")
    by: str = column("string", "as in ranges")
    proved: int = column("timestamp", "the oldest time at which bytes of the range were proved")
    proved_run: int = column("int64", "the run of that time")
    digest: str = column("string", "as in ranges", "")


@frozen(kw_only=True)
class FindingRow:
    """A finding that is open after a run, or was closed in it. The fields from `cls` on are those of findings.parquet."""

    run: int = run_number()
    id: int = column("int64", "number of the finding in this ledger; the same in all runs")
    state: str = column(
        "string",
        "`new`; `seen`: again; `unchecked`: not compared in this run; `repaired`: its bytes were proved equal since;"
        " `gone`: its bytes were deleted or cut, or its member is not audited any more",
    )
    first_run: int = column("int64", "run that saw it first")
    first_seen: int = column("timestamp", "time of that run")
    last_run: int = column("int64", "run that saw it last")
    last_seen: int = column("timestamp", "time of that run")
    closed: int | None = column("timestamp", "when it was found to be repaired or gone", None)
    cls: str = column("string", "class, as in the reports of `twinlog audit`")
    member: str = column("string", "the member whose copy is wrong; if unknown, one of those that differ")
    offset: int | None = column("int64", "first byte of the log that is affected", None)
    end: int | None = column("int64", "end of the affected bytes", None)
    what: str = column("string", "short description", "")
    why: str = column("string", "the evidence", "")
    good: str | None = column("string", "a member whose copy is right", None)
    epoch: int | None = column("int64", "the epoch in which the member's own bytes were written", None)
    since: int | None = column("timestamp", "store time of the first affected record, or start of the epoch", None)
    topic: str | None = column("string", "topic of the first affected message", None)
    queue_id: int | None = column("int64", "its queue", None)
    file: str | None = column("string", "path below the member's directory", None)
    count: int = column("int64", "number of consecutive things merged into one finding", 1)


TABLES: Mapping[str, type[Any]] = {
    "run": RunRow,
    "members": MemberRow,
    "ranges": RangeRow,
    "proofs": ProofRow,
    "findings": FindingRow,
}
