"""Files of recovery in ROOT/twinlog: the recovery point, queues being rebuilt, damage that was kept, bytes cut from the log."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog
from attrs import frozen

from twinlog.store.errors import SideFileError
from twinlog.store.log.commit_log import CommitLog
from twinlog.store.log.walk import read_log
from twinlog.store.queue.layout import QueueEnds
from twinlog.store.recovery.point import RecoveryPoint, decode_point, encode_point
from twinlog.store.util.sync import remove_durably, save_durably, sync_data, sync_directory

log_lines = structlog.get_logger()

CUT_BYTES_MAX = 64 << 20  # Of one cut.
_CUTS_BYTES_MAX = 256 << 20  # Of all of them: the oldest go first.
_PIECE = 1 << 20


@frozen
class SideFiles:
    """The directory; made when something is written."""

    directory: Path

    def load_point(self) -> RecoveryPoint | None:
        """The recovery point; None, with a line in the log, when it cannot be read."""
        try:
            return self._load("recovery-point")
        except OSError as error:  # A bad sector, for example. The next point is another file.
            log_lines.warning("a side file is not used", path=str(self.directory / "recovery-point"), reason=str(error))
            return None

    def save_point(self, point: RecoveryPoint) -> None:
        """Replace the recovery point, durably. Raises OSError."""
        save_durably(self.directory / "recovery-point", encode_point(point))

    def drop_point(self) -> None:
        """Remove the recovery point, durably, before it becomes wrong. Raises OSError."""
        remove_durably(self.directory / "recovery-point")

    def load_rebuild(self) -> set[tuple[str, int]]:
        """The queues whose rebuild was not finished. Raises OSError."""
        point = self._load("queues-to-rebuild")
        return {queue.key for queue in point.queues} if point is not None else set()

    def save_rebuild(self, keys: Iterable[tuple[str, int]]) -> None:
        """Note, durably, which queues are about to be rebuilt; none: all is done. Raises OSError."""
        queues = tuple(QueueEnds(*key, 0, 0, -1) for key in sorted(keys))
        if queues:
            point = RecoveryPoint(offset=0, log_start=0, log_file_size=0, queue_file_size=0, queues=queues)
            save_durably(self.directory / "queues-to-rebuild", encode_point(point))
        else:
            remove_durably(self.directory / "queues-to-rebuild")

    def load_kept_damage(self) -> tuple[tuple[int, int], ...]:
        """Damaged bytes of the log behind which a start kept messages. Raises OSError."""
        point = self._load("kept-damage")
        return point.damaged if point is not None else ()

    def save_kept_damage(self, damaged: Iterable[tuple[int, int]]) -> None:
        """Note, durably, all that is kept now. Raises OSError."""
        ranges = tuple(sorted(damaged))
        if ranges:
            point = RecoveryPoint(offset=0, log_start=0, log_file_size=0, queue_file_size=0, damaged=ranges)
            save_durably(self.directory / "kept-damage", encode_point(point))
        else:
            remove_durably(self.directory / "kept-damage")

    def cut_kept_damage(self, offset: int) -> None:
        """The log is cut at `offset`: what comes there later is not what was kept. Raises OSError."""
        if kept := self.load_kept_damage():
            self.save_kept_damage(damaged for damaged in kept if damaged[1] <= offset)

    def keep_cut(self, offset: int, size: int, read: Callable[[int, int], bytes]) -> tuple[Path, int]:
        """Copy bytes that are about to be cut, the first CUT_BYTES_MAX of them; where to, and how many. Raises OSError."""
        directory = self.directory / "cut"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{offset:020d}-{time.time_ns() // 1_000_000}"
        end = offset + min(size, CUT_BYTES_MAX)
        with path.open("wb") as file:
            at = offset
            while at < end and (piece := read(at, min(_PIECE, end - at))):
                file.write(piece)
                at += len(piece)
            file.flush()
            sync_data(file.fileno())
        sync_directory(directory)
        self._forget_old_cuts(directory)
        return path, at - offset

    def _forget_old_cuts(self, directory: Path) -> None:
        kept = 0
        for path in sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            kept += path.stat().st_size
            if kept > _CUTS_BYTES_MAX:
                path.unlink()

    def _load(self, name: str) -> RecoveryPoint | None:
        path = self.directory / name
        try:
            return decode_point(path.read_bytes())
        except FileNotFoundError:
            return None
        except SideFileError as error:
            log_lines.warning("a side file is not used", path=str(path), reason=str(error))
            return None


@frozen
class CutTail:
    """Bytes cut behind the end of the log: `size` of them, of which the first `kept` are also in `path`."""

    size: int = 0
    found: str = ""
    path: Path | None = None
    kept: int = 0


def keep_behind_end(log: CommitLog, end: int, side: SideFiles, *, zeros_max: int, error: str | None) -> CutTail:
    """Copy bytes behind the log's end that are not zero, with a line in the log. Raises OSError when the log cannot be read.

    After `zeros_max` zeros that are no hole, the rest of a file counts as zero. `error` describes the bytes at the end.
    """
    size = 0
    for file in log.files.files:
        position = max(0, end - file.start)
        if position < file.size and not file.is_clear_from(position, zeros_max):
            size = file.start + file.data_end(position) - end
    if not size:
        return CutTail()
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
    return CutTail(size, found, path, kept)
