"""Detects at a start that a log lacks its last or first bytes.

All bytes below a recovery point are on the disk, and a deliberate cut lowers or drops the point. So a log that ends below it
lost bytes that may have been acknowledged. Its last durable end is noted in ROOT/twinlog/known-end, before the point goes,
until the log has grown as far again, is cut deliberately, or an operator accepts the loss.

A log that begins later than at its last stop lost its first files: nothing else deletes them while it is stopped. Its start is
noted in ROOT/twinlog/known-start, until the files are back or retention would have deleted them.
"""

from pathlib import Path
from typing import ClassVar

import structlog
from attrs import define, field

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.util.sync import remove_durably, save_durably

log = structlog.get_logger()

NAME, START_NAME = "known-end", "known-start"
_NEXT = (
    "put the missing files back while it is stopped; or fail over to a member that has them: this one follows it then; "
    "without any: restore a backup, or go on without these bytes"
)


@define
class _Note:
    """An offset in a file of `directory`, ROOT/twinlog; None: nothing is known to be missing."""

    name: ClassVar[str]
    directory: Path
    offset: int | None = field(default=None, init=False)

    def load(self) -> None:
        """Read the note of an earlier start; one that cannot be read is none."""
        path = self.directory / self.name
        try:
            self.offset = int(path.read_bytes())
        except FileNotFoundError:
            self.offset = None
        except (OSError, ValueError) as error:
            log.warning("a side file is not used", path=str(path), reason=str(error))

    def save(self, offset: int) -> None:
        """Note an offset, durably. Raises OSError."""
        if offset != self.offset:
            save_durably(self.directory / self.name, b"%d" % offset)
            self.offset = offset

    def forget(self) -> None:
        """Clear the note: nothing is missing any more, or the loss is accepted. Raises OSError."""
        self.offset = None
        remove_durably(self.directory / self.name)


@define
class DurableEnd(_Note):
    """Up to where the log is known to have been on the disk."""

    name: ClassVar[str] = NAME

    def compare(self, end: int, known: int) -> None:
        """Compare the log's end with its last durable one, and note missing bytes, durably. Raises OSError."""
        known = max(known, self.offset or 0)
        if known <= end:
            self.forget()
            return
        self.save(known)
        log.warning(
            "the commit log ends before its last durable end",
            log_end=end,
            last_durable_end=known,
            bytes=known - end,
            why="files of it are gone, or its end was damaged: messages that were on its disk are missing",
            next=_NEXT,
        )

    def truncated(self, _offset: int) -> None:
        """The log was cut on purpose. Raises OSError."""
        self.forget()


@define
class DurableStart(_Note):
    """Start of the log before its first files were gone."""

    name: ClassVar[str] = START_NAME
    log: CommitLog

    def compare(self, begin: int, began: int) -> None:
        """Compare the log's start with `began`, that of its last stop, and note missing bytes, durably. Raises OSError."""
        known = began if self.offset is None else min(began, self.offset)
        if begin <= known:
            self.forget()
            return
        self.save(known)
        log.warning(
            "the commit log lost its first files since the last stop",
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
