"""Runs as the page of a ledger shows them: few enough to draw, and quick to read however many there are.

The coverage of up to COLUMNS runs is drawn, evenly chosen, always with the last one. Findings are those that were open after
the last run, or closed in the last FINDINGS_OF runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attrs import AttrsInstance, fields, frozen

from twinlog.cluster.pipeline.audit.findings import FindingClass
from twinlog.cluster.pipeline.ledger.files import RUNS, LedgerError, run_name, run_numbers
from twinlog.cluster.pipeline.ledger.rows import FindingRow, MemberRow, ProofRow, RunRow

COLUMNS = 96
RUNS_LISTED = 30
FINDINGS_OF = 200
_Row = TypeVar("_Row", bound=AttrsInstance)


@frozen(kw_only=True)
class Coverage:
    """Proved part after a run."""

    run: RunRow
    members: tuple[MemberRow, ...]
    proofs: tuple[ProofRow, ...]


@frozen(kw_only=True)
class History:
    """`drawn`: the runs in the picture, `listed`: those in the table, both in order. `first`: number of the oldest run."""

    drawn: tuple[Coverage, ...]
    listed: tuple[RunRow, ...]
    findings: tuple[FindingRow, ...]  # As they are known last, without what members had merely not received yet.
    first: int

    @property
    def last(self) -> Coverage:
        return self.drawn[-1]


def read_history(directory: Path) -> History:
    """Read a ledger. Raises LedgerError, also if it has no run."""
    import pyarrow as pa

    try:
        numbers = run_numbers(directory)
        if not numbers:
            raise LedgerError(
                f"{directory} has no run of an audit. Name a ledger, as given to twinlog audit --incremental."
            )
        drawn = [_coverage(directory, number) for number in chosen(numbers, COLUMNS)]
        return History(
            drawn=tuple(drawn),
            listed=tuple(row for number in numbers[-RUNS_LISTED:] for row in _rows(directory, number, "run", RunRow)),
            findings=known_last(
                row for number in numbers[-FINDINGS_OF:] for row in _rows(directory, number, "findings", FindingRow)
            ),
            first=numbers[0],
        )
    except (OSError, pa.ArrowException) as error:
        raise LedgerError(f"{directory} cannot be read: {error}. Name a ledger.") from error


def chosen(numbers: Sequence[int], count: int) -> list[int]:
    """Up to `count` of them, evenly, with the last one."""
    step = max(1, -(-len(numbers) // count))
    return list(numbers[::-1][::step])[::-1]


def known_last(rows: Iterable[FindingRow]) -> tuple[FindingRow, ...]:
    """The newest row of each finding, in the order in which they were first seen. `rows` are in order of their runs."""
    found: Mapping[int, FindingRow] = {row.id: row for row in rows if row.cls != FindingClass.LAG}
    return tuple(found[number] for number in sorted(found))


def _coverage(directory: Path, number: int) -> Coverage:
    (run,) = _rows(directory, number, "run", RunRow)
    members = _rows(directory, number, "members", MemberRow)
    return Coverage(run=run, members=members, proofs=_rows(directory, number, "proofs", ProofRow))


def _rows(directory: Path, number: int, name: str, kind: type[_Row]) -> tuple[_Row, ...]:
    """Rows of one table of one run; columns that a later version added are left out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(directory / RUNS / run_name(number) / f"{name}.parquet").read()
    for name in [each.name for each in table.schema if pa.types.is_timestamp(each.type)]:
        table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.int64()))
    names = [each.name for each in fields(kind) if each.name in table.column_names]
    return tuple(kind(**_plain(row)) for row in table.select(names).to_pylist())


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
