"""The pure part of an audit, run in one process as the Spark job runs it."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from twinlog.cluster.pipeline.audit.classify import classify, tails
from twinlog.cluster.pipeline.audit.compare import BlockRow, differing_blocks
from twinlog.cluster.pipeline.audit.completeness import incomplete
from twinlog.cluster.pipeline.audit.config_tables import compare_tables, read_tables
from twinlog.cluster.pipeline.audit.copies import StoreCopy, side_of
from twinlog.cluster.pipeline.audit.findings import AuditFinding, AuditFindings, settled
from twinlog.cluster.pipeline.audit.side_tables import (
    check_range,
    check_tables,
    extent_of,
    file_ranges,
    members_with_losses,
    own_findings,
)
from twinlog.cluster.pipeline.sources.files import StoreFiles, inspect_store
from twinlog.cluster.pipeline.sources.log_bytes import splits
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.cluster.pipeline.tables.scan import block_batches

SPLIT_SIZE = 1 << 17


def audited(roots: Mapping[str, Path]) -> AuditFindings:
    """Findings of an audit; the first member is the master."""
    stores = {name: inspect_store(StoreUri(str(root))) for name, root in roots.items()}
    log = log_findings(stores)
    own = {name: own_findings(name, check_tables(files), log) for name, files in stores.items()}
    tables = [read_tables(name, files) for name, files in stores.items()]
    extents = [extent_of(name, files, files.end) for name, files in stores.items()]
    lacking = incomplete(extents, members_with_losses(log, [each for found in own.values() for each in found]))
    found = AuditFindings()
    found.extend(settled(log, own, [*compare_tables(tables[0], tables[1:]), *lacking]))
    return found


def log_findings(stores: Mapping[str, StoreFiles]) -> list[AuditFinding]:
    """Findings by digests, and record by record where these differ."""
    sides = [side_of(name, files) for name, files in stores.items()]
    found: list[AuditFinding] = []
    with ExitStack() as opened:
        copies = [opened.enter_context(closing(StoreCopy(side, stores[side.name]))) for side in sides]
        for part in differing_blocks(sides, {name: block_rows(files) for name, files in stores.items()}):
            found += classify([copy for copy in copies if copy.side.has(*part)], *part)
        return found + tails(copies)


def block_rows(files: StoreFiles) -> list[BlockRow]:
    """Digests of a log, split by split."""
    return [
        BlockRow(row["start"], row["end"], row["digest"])
        for split in splits(files.log, SPLIT_SIZE, files.first, files.end)
        for batch in block_batches(files, split)
        for row in batch.to_pylist()
    ]


def tables_in_parts(name: str, files: StoreFiles) -> list[AuditFinding]:
    """own_findings() of check_tables(), with each file of the log checked separately."""
    parts = [check_range(files, part) for part in file_ranges(files)]
    return own_findings(name, check_tables(files, parts))
