"""Where a log ends after a start: what lies behind is kept elsewhere, and removed."""

from pathlib import Path

import structlog
from attrs import frozen

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.walk import read_log
from twinlog.store.recovery.side_files import SideFiles

log_lines = structlog.get_logger()


@frozen
class Cut:
    """Bytes behind the end of the log that were none of it: `size` of them, of which the first `kept` are in `path`, too."""

    size: int = 0
    found: str = ""
    path: Path | None = None
    kept: int = 0


def keep_behind_end(log: CommitLog, end: int, side: SideFiles, *, zeros_max: int, error: str | None) -> Cut:
    """Copy what lies behind the log's end and is not zero, and say so. Raises OSError when the log cannot be read.

    `zeros_max` zeros that are no hole stand for all the rest of a file. `error` says what was found at the end.
    """
    size = 0
    for file in log.files.files:
        position = max(0, end - file.start)
        if position < file.size and not file.is_clear_from(position, zeros_max):
            size = file.start + file.data_end(position) - end
    if not size:
        return Cut()
    found = error or "an unfinished record"
    path, kept = None, 0
    try:
        path, kept = side.keep_cut(end, size, lambda at, count: read_log(log, at, count))
    except OSError as refusal:  # A full disk must not keep the store from starting.
        found = f"{found}; not kept: {refusal}"
    log_lines.warning(
        "bytes behind the last whole record were cut",
        offset=end,
        bytes=size,
        found=found,
        kept_in=str(path),
        bytes_kept=kept,
    )
    return Cut(size, found, path, kept)
