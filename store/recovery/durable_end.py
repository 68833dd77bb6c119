"""Notices at a start that a log lacks its last or first bytes: files of it are gone, or what was on its disk.

All below a recovery point is on the disk, and who cuts the log on purpose lowers or drops the point. So a log that ends below it
lost something that may have been acknowledged. How far it went is noted in ROOT/twinlog/known-end, before the point goes, until
the log has grown as far again, is cut on purpose, or whoever knows the group says that nothing is missing any more.

A log that begins later than when it was stopped lost its first files: nobody else deletes them while it stands. Where it began is
noted in ROOT/twinlog/known-start, until the files are back or retention would have deleted them by now.
"""

from pathlib import Path

import structlog
from attrs import define, field

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.util.sync import make_directory, sync_directory, write_durably

log = structlog.get_logger()

NAME, START_NAME = "known-end", "known-start"
_NEXT = (
    "put the missing files back while it is stopped; or fail over to a member that has them: this one follows it then; "
    "without any: restore a backup, or go on without these bytes"
)


@define
class DurableEnd:
    """`directory` is ROOT/twinlog. `offset` is 0 where nothing is known to be missing."""

    directory: Path
    offset: int = field(default=0, init=False)

    def load(self) -> None:
        """What an earlier start noted."""
        self.offset = _read(self.directory / NAME) or 0

    def compare(self, end: int, known: int) -> None:
        """The log ends at `end`, and was known to reach up to `known`: note what is missing, durably. Raises OSError."""
        known = max(known, self.offset)
        if known <= end:
            self.forget()
            return
        if known != self.offset:
            _write(self.directory / NAME, known)
            self.offset = known
        log.warning(
            "the commit log ends before where it is known to have ended",
            log_end=end,
            known_end=known,
            bytes=known - end,
            why="files of it are gone, or its end was damaged: messages that were on its disk are missing",
            next=_NEXT,
        )

    def truncated(self, _offset: int) -> None:
        """The log was cut on purpose. Raises OSError."""
        self.forget()

    def forget(self) -> None:
        """Nothing is missing any more, or it is known. Raises OSError."""
        self.offset = 0
        _remove(self.directory / NAME)


@define
class DurableStart:
    """`directory` is ROOT/twinlog. `offset`: where the log began before its first files were gone; None: none are missing."""

    directory: Path
    log: CommitLog
    offset: int | None = field(default=None, init=False)

    def load(self) -> None:
        """What an earlier start noted."""
        self.offset = _read(self.directory / START_NAME)

    def compare(self, begin: int, began: int) -> None:
        """The log begins at `begin`, and began at `began` when it was stopped: note what is missing, durably. Raises OSError."""
        known = began if self.offset is None else min(began, self.offset)
        if begin <= known:
            self.forget()
            return
        if known != self.offset:
            _write(self.directory / START_NAME, known)
            self.offset = known
        log.warning(
            "the commit log begins later than when it was stopped",
            log_start=begin,
            was=known,
            bytes=begin - known,
            why="its first files were removed meanwhile: their messages are missing here",
            next="put them back while it is stopped, where they are needed; other members have them, or a backup",
        )

    def truncated(self, offset: int) -> None:
        """The log was cut on purpose. When nothing is left of it, it may begin anywhere. Raises OSError."""
        if offset <= self.log.min_offset:
            self.forget()

    def shortened(self, _min_offset: int) -> None:
        """Retention deleted the first files. Raises OSError."""
        self.forget()

    def forget(self) -> None:
        """The files are back, or would have been deleted by now. Raises OSError."""
        self.offset = None
        _remove(self.directory / START_NAME)


def _read(path: Path) -> int | None:
    """An offset that was noted. A note that cannot be read is none."""
    try:
        return int(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("a side file is not used", path=str(path), reason=str(error))
        return None


def _write(path: Path, offset: int) -> None:
    make_directory(path.parent)
    write_durably(path, b"%d" % offset)


def _remove(path: Path) -> None:
    if path.exists():
        path.unlink()
        sync_directory(path.parent)
