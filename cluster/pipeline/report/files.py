"""The files of an audit's report: a page, JSON, and the findings as Parquet."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, fields

from twinlog.cluster.admin.documents import SCHEMA
from twinlog.cluster.pipeline.audit.report import AuditReport, ReportedFinding, to_json
from twinlog.cluster.pipeline.report.page import page


def findings_table(findings: Sequence[ReportedFinding]) -> Any:
    """The findings as a pyarrow.Table, one row each; its columns are the fields of a finding."""
    import pyarrow as pa

    rows = [asdict(finding) for finding in findings]
    types = {"offset": pa.int64(), "end": pa.int64(), "epoch": pa.int64(), "since_ms": pa.timestamp("ms", tz="UTC")}
    types |= {"record": pa.int64(), "record_end": pa.int64()}
    types |= {"queue_offset": pa.int64(), "count": pa.int64(), "queue_id": pa.int32(), "number": pa.int32()}
    columns = [
        pa.field(each.name, types.get(each.name, pa.string()), metadata={"comment": each.metadata.get("doc", "")})
        for each in fields(ReportedFinding)
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(columns, metadata={"twinlog.version": str(SCHEMA)}))


def write_report(report: AuditReport, directory: Path, *, parquet: bool) -> tuple[Path, ...]:
    """report.json, report.html and findings.parquet in a directory, made if need be; each is whole or not there.

    Returns what was written. Raises OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = {"report.json": to_json(report), "report.html": page(report).encode()}
    if parquet:
        files["findings.parquet"] = _parquet(report.findings)
    return tuple(_written(directory / name, data) for name, data in files.items())


def _parquet(findings: Sequence[ReportedFinding]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(findings_table(findings), sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _written(path: Path, data: bytes) -> Path:
    beside = path.with_name(f".{path.name}.part")
    beside.write_bytes(data)
    beside.replace(path)
    return path
