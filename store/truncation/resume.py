"""Finishes, when a store is opened, a cut that a crash interrupted; see store/truncation/truncation.py."""

import os
import shutil
from pathlib import Path

import structlog
from attrs import define

from twinlog.store.errors import StoreDirectoryError
from twinlog.store.index.index_files import lower_note
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.walk import read_log
from twinlog.store.queue.consume_queue_table import ConsumeQueueTable
from twinlog.store.recovery.durable_end import DurableEnd
from twinlog.store.recovery.side_files import SideFiles
from twinlog.store.truncation.divergent import DivergentDirectory
from twinlog.store.truncation.intent import NAME, CutKind, TruncateIntent, load_intent
from twinlog.store.util.sync import sync_directory

log_lines = structlog.get_logger()

_COMPARED_BYTES = 4096


@define(eq=False)
class UnfinishedCut:
    """`cut_log()` runs before recovery reads the log, `finish()` once the queues are up to date."""

    intent: TruncateIntent
    side: Path  # ROOT/twinlog.

    @classmethod
    def find(cls, side: Path) -> "UnfinishedCut | None":
        """The unfinished cut, if any. Raises StoreDirectoryError when its intent cannot be read, OSError."""
        intent = load_intent(side)
        if intent is None:
            DivergentDirectory(side / "divergent").drop_unfinished()
        return cls(intent, side) if intent is not None else None

    def cut_log(self, log: CommitLog, checkpoint: Checkpoint, queue_directory: Path) -> None:
        """Cut the log. Raises StoreDirectoryError when the log was written to since the crash, OSError."""
        intent, files = self.intent, log.files
        old_file_end = -(-intent.old_end // log.file_size) * log.file_size
        if any(read_log(log, intent.old_end, _COMPARED_BYTES)) or log.max_offset > old_file_end:
            raise StoreDirectoryError(
                f"the log was to be cut at {intent.offset} ({intent.why}), but it was written to behind its old end "
                f"{intent.old_end} since. Remove {self.side / NAME} to keep all of it, or what lies behind {intent.old_end}"
            )
        if (written := self._written_since(log)) is not None:
            raise StoreDirectoryError(
                f"the log was to be cut at {intent.offset} ({intent.why}), but other bytes were written at {written} since. "
                f"Remove {self.side / NAME} to keep them"
            )
        log_lines.warning(
            "finishing an interrupted cut of the log",
            offset=intent.offset,
            bytes=intent.old_end - intent.offset,
            why=intent.why,
            kept_in=str(self.side / "divergent" / intent.kept_in),
        )
        DivergentDirectory(self.side / "divergent").settle(intent.kept_in)
        side = SideFiles(self.side)
        point = side.load_point()
        if point is None or point.offset > intent.offset or intent.kind is CutKind.BEGIN_ANEW:
            side.drop_point()
        side.cut_kept_damage(intent.offset if intent.kind is CutKind.CUT else 0)
        DurableEnd(self.side).forget()
        lower_note(self.side / "index-behind", intent.offset if intent.kind is CutKind.CUT else 0)
        if intent.kind is CutKind.CUT:
            files.cut(intent.offset)
        else:
            files.clear()
            files.sync()
            for topic in queue_directory.iterdir():
                shutil.rmtree(topic)
            sync_directory(queue_directory)
        lower_checkpoint(checkpoint, intent)
        checkpoint.save()

    def _written_since(self, log: CommitLog) -> int | None:
        """The start of bytes, at the cut or in a later file, that are neither the old ones nor zeros. Raises OSError."""
        intent, divergent = self.intent, DivergentDirectory(self.side / "divergent")
        begin = intent.offset if intent.kind is CutKind.CUT else 0
        for file in log.files.files:
            at = max(begin, file.start)
            kept = divergent.read(intent.kept_in, file.start, at - file.start, _COMPARED_BYTES)
            if at >= file.start + log.file_size or kept is None:
                continue
            found = os.pread(file.fd, _COMPARED_BYTES, at - file.start)
            if any(byte not in (0, old) for byte, old in zip(found, kept, strict=False)):
                return at
        return None

    def finish(self, queues: ConsumeQueueTable) -> None:
        """Discard queues without messages, and remove the intent. Raises OSError."""
        for queue in queues:
            if queue.max_phy_offset < 0 < queue.max_offset:
                queue.discard()  # Only blanks: its messages may come back with other numbers.
        remove_intent(self.side)


def remove_intent(side: Path) -> None:
    """Remove the intent: the cut is finished. Raises OSError."""
    (side / NAME).unlink(missing_ok=True)
    sync_directory(side)


def lower_checkpoint(checkpoint: Checkpoint, intent: TruncateIntent) -> None:
    """Lower the checkpoint, so that it does not cover cut bytes."""
    newest, end = intent.last_timestamp, intent.offset if intent.kind is CutKind.CUT else 0
    checkpoint.physic_msg_timestamp = min(checkpoint.physic_msg_timestamp, newest)
    checkpoint.logics_msg_timestamp = min(checkpoint.logics_msg_timestamp, newest)
    checkpoint.index_msg_timestamp = min(checkpoint.index_msg_timestamp, newest)
    checkpoint.master_flushed_offset = min(checkpoint.master_flushed_offset, end)
    checkpoint.confirm_phy_offset = min(checkpoint.confirm_phy_offset, end)
