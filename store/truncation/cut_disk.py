"""What a cut of the log does on the disk: in a thread, with descriptors of its own."""

from pathlib import Path

from attrs import define, field

from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.log.mapped_file_queue import MappedFileQueue
from twinlog.store.queue.consume_queue import ConsumeQueue
from twinlog.store.util.sync import sync_directory


@define(eq=False)
class CutFiles:
    """Files that go, in order, and files whose rest becomes zero; all of them end at the cut in memory already."""

    removed: list[MappedFile] = field(factory=list)  # Of the log.
    log_tail: MappedFile | None = None
    queue_tails: list[MappedFile] = field(factory=list)
    directories: set[Path] = field(factory=set)  # Of queues that lost files, maybe.

    def cut_log(self, files: MappedFileQueue, offset: int) -> None:
        """Let the log end at `offset`. Raises OSError."""
        self.removed = files.take_behind(offset)
        self.log_tail = files.files[-1].twin() if files.files else None

    def empty_log(self, files: MappedFileQueue) -> None:
        """Let the log be empty."""
        self.removed = list(files.files)
        files.files.clear()

    def cut_queue(self, queue: ConsumeQueue, phy_offset: int) -> None:
        """Let a queue end before the messages at or behind an offset of the log. Raises OSError."""
        had_messages, end = queue.max_phy_offset >= 0, queue.max_offset
        queue.rewind(phy_offset)
        if had_messages and queue.max_phy_offset < 0:
            self.empty_queue(queue)  # Nothing but blanks is left: its messages may come back with other numbers.
        elif queue.max_offset < end:
            self.directories.add(queue.files.directory)
            if queue.files.files:
                self.queue_tails.append(queue.files.files[-1].twin())

    def empty_queue(self, queue: ConsumeQueue) -> None:
        """Let a queue be as if nobody had written to it. Raises OSError."""
        if queue.files.files:
            self.directories.add(queue.files.directory)
        queue.clear()

    def close(self) -> None:
        """Give the descriptors back."""
        for file in (self.log_tail, *self.queue_tails):
            if file is not None:
                file.close()


def cut_on_disk(cut: CutFiles, log: MappedFileQueue) -> None:
    """Make the cut durable, the queues' first: a unit without its message is worse than the reverse. Raises OSError."""
    for file in cut.queue_tails:
        file.clear_from(file.wrote)
    for directory in cut.directories:
        sync_directory(directory)
    for file in reversed(cut.removed):
        file.path.unlink(missing_ok=True)
        if log.others:  # Each disk goes back to a moment of its own.
            sync_directory(file.path.parent)
    log.sync()
    if cut.log_tail is not None:
        cut.log_tail.clear_from(cut.log_tail.wrote)
