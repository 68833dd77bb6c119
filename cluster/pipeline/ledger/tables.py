"""The rows of a run, and the Arrow schemas of their tables. No I/O."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from attrs import asdict, fields

from twinlog.cluster.pipeline.ledger.rows import TABLES, VERSION, FindingRow, MemberRow, ProofRow, RangeRow, RunRow
from twinlog.cluster.pipeline.ledger.standing import member_proved_end, standing_of
from twinlog.cluster.pipeline.ledger.values import (
    Look,
    Lost,
    Piece,
    RunResult,
    SeenFinding,
    is_open_fault,
    reason_of,
    size_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

Rows = dict[str, Sequence[Any]]  # By the name of their table.


def rows_of(result: RunResult, software: str) -> Rows:
    """All rows of a run. `software`: our version."""
    run = result.state.run
    return {
        "run": [_run_row(result, software)],
        "members": [_member_row(result, look) for look in result.looks],
        "ranges": [_range_row(result, piece) for piece in result.compared.pieces],
        "proofs": [
            ProofRow(
                run=run,
                start=proof.start,
                end=proof.end,
                members=proof.members,
                by=proof.by.value,
                proved=proof.at_ms,
                proved_run=proof.run,
                digest=proof.digest,
            )
            for proof in result.state.proofs
        ],
        "findings": [_finding_row(run, seen) for seen in (*result.state.findings, *result.closed)],
    }


def _run_row(result: RunResult, software: str) -> RunRow:
    state, standing = result.state, standing_of(result.state)
    return RunRow(
        run=state.run,
        started=state.started_ms,
        ended=state.ended_ms,
        kind=state.kind,
        verdict=state.verdict,
        proved_from=standing.proved_from,
        proved_to=standing.proved_to,
        log_end=standing.log_end,
        oldest_proof=standing.oldest_proof_ms,
        new_bytes=state.new_bytes,
        again_bytes=state.again_bytes,
        fault_bytes=state.fault_bytes,
        read_bytes=state.read_bytes,
        lost_bytes=state.lost_bytes,
        findings_new=sum(seen.state == "new" for seen in state.findings),
        findings_open=sum(map(is_open_fault, state.findings)),
        findings_closed=len(result.closed),
        full_pass_seconds=state.full_pass_ms / 1000,
        software=software,
    )


def _member_row(result: RunResult, look: Look) -> MemberRow:
    lost = [each for each in result.lost if each.member == look.name]
    is_read = look.problem is None
    last = next((epoch for epoch in reversed(look.epochs) if epoch.start <= look.last), None)
    known = result.state.member(look.name)
    return MemberRow(
        run=result.state.run,
        member=look.name,
        place=look.place,
        is_master=look is result.looks[0],
        software=look.software,
        first=look.first if is_read else None,
        last=look.last if is_read else None,
        epoch=last.epoch if last is not None else None,
        winner=last.winner if last is not None else None,
        proved_to=member_proved_end(result.state, look.name) if known is not None else None,
        lost_bytes=size_of(lost),
        lost_why=_reasons(lost),
        problem=look.problem,
    )


def _reasons(lost: Sequence[Lost]) -> str | None:
    return "; ".join(why for why, _ in groupby(each.why for each in lost)) or None


def _range_row(result: RunResult, piece: Piece) -> RangeRow:
    return RangeRow(
        run=result.state.run,
        start=piece.start,
        end=piece.end,
        reason=reason_of(result.planned, piece).value,
        equal=piece.equal,
        different=piece.different,
        by=result.compared.by.value,
        at=result.state.started_ms,
        digest=piece.digest,
    )


def _finding_row(run: int, seen: SeenFinding) -> FindingRow:
    found = seen.finding
    return FindingRow(
        run=run,
        id=seen.id,
        state=seen.state,
        first_run=seen.first_run,
        first_seen=seen.first_ms,
        last_run=seen.last_run,
        last_seen=seen.last_ms,
        closed=seen.closed_ms,
        cls=found.cls.value,
        member=found.member,
        offset=found.offset,
        end=found.end,
        what=found.what,
        why=found.why,
        good=found.good,
        epoch=found.epoch,
        since=found.since_ms,
        topic=found.topic,
        queue_id=found.queue_id,
        file=found.file,
        count=found.count,
    )


def schema_of_table(name: str) -> "pa.Schema":
    """The Arrow schema of a table; its metadata has the version, and each column its description."""
    import pyarrow as pa

    kinds = {
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "string": pa.string(),
        "timestamp": pa.timestamp("ms", tz="UTC"),
        "list": pa.list_(pa.string()),
    }
    columns = [
        pa.field(each.name, kinds[each.metadata["kind"]], metadata={"comment": each.metadata["doc"]})
        for each in fields(TABLES[name])
    ]
    return pa.schema(columns, metadata={"twinlog.ledger": str(VERSION)})


def arrow_table(name: str, rows: Sequence[Any]) -> "pa.Table":
    """Rows as an Arrow table."""
    import pyarrow as pa

    return pa.Table.from_pylist([asdict(row) for row in rows], schema=schema_of_table(name))
