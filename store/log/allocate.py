"""Makes the commit log's next file before it is needed. Source: AllocateMappedFileService, RocketMQ 4.9.8."""

from collections.abc import Callable
from pathlib import Path

import structlog
import trio
from attrs import define, field

from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.mapped_file import MappedFile
from twinlog.store.util.sync import is_no_space
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger()


@define(eq=False)
class AllocateMappedFileService:
    """Keeps `log.spare` filled. It lies beside the log's directory: RocketMQ 4.9 does not start over a file it does not know."""

    log: CommitLog
    path: Path
    make_room: Callable[[], None]  # Told when there was no space.
    _roll: Wakeup = field(factory=Wakeup, init=False)
    _lock: trio.Lock = field(factory=trio.Lock, init=False)

    @property
    def takes_spares(self) -> bool:
        """Whether a file can be made ahead: with several directories the next one may be on another disk."""
        return self.log.takes_spares and not self.log.files.others

    def appended(self) -> None:
        """Begin, once the last file is half full."""
        if self.log.spare is None and self._wants_spare():
            self._roll.set()

    def _wants_spare(self) -> bool:
        files = self.log.files.files
        return self.takes_spares and not self.log.ahead and bool(files) and files[-1].wrote * 2 > files[-1].size

    async def run(self) -> None:
        """Make files until cancelled."""
        while True:
            await self._roll.wait()
            try:
                if self._wants_spare():
                    await self.make()
            except OSError as error:
                log.warning("the next commit log file cannot be made ahead", error=str(error))
                if is_no_space(error):
                    self.make_room()
                await trio.sleep(1)

    async def make(self) -> None:
        """Have the log's next file ready. Raises OSError."""
        async with self._lock:
            if self.log.spare is None:
                self.log.spare = await trio.to_thread.run_sync(_make_file, self.path, self.log.file_size)


def _make_file(path: Path, size: int) -> MappedFile:
    path.parent.mkdir(exist_ok=True)
    return MappedFile.create(path, 0, size, preallocate=True)
