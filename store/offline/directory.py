"""A store directory on disk: RocketMQ 4.9's, 5.3's or twinlog's, running or stopped; nothing in it is changed.

Opening lists names and reads a few bytes: it takes no lock and opens no file for writing, and faults become findings. No file
has the sizes that the files were made with; they follow from names and lengths, or come from the caller.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from struct import Struct

from attrs import define, evolve, field, frozen

from twinlog.store.config import CONSUME_QUEUE_UNIT, DEFAULT_DELAY_LEVELS, parse_delay_levels
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.log.checkpoint import Checkpoint
from twinlog.store.offline.file_series import (
    FileReader,
    FileSeries,
    StoreFile,
    check_series,
    guess_file_size,
    list_files,
)
from twinlog.store.offline.finding import Finding, FindingKind, stray_entry
from twinlog.store.truncation.divergent import Divergent, DivergentDirectory, read_note
from twinlog.store.truncation.intent import NAME, CutKind, load_intent

_FLOCK = Struct("hhqqi4x")  # struct flock of Linux: type, whence, start, length, process.
_SIDE_DIRECTORY = "twinlog"


class Writer(StrEnum):
    """The broker that wrote to the directory last, as far as the files show."""

    ROCKETMQ_4 = "rocketmq-4"
    ROCKETMQ_5 = "rocketmq-5"
    TWINLOG = "twinlog"


@frozen(kw_only=True)
class DirectoryOptions:
    """Facts that the caller knows better than the files show. None: find out.

    `commit_log_dirs` are the directories of the log, where it is not ROOT/commitlog. Sizes in bytes.
    """

    commit_log_dirs: tuple[Path, ...] = ()
    log_file_size: int | None = None
    queue_file_size: int | None = None
    index_slots: int | None = None
    message_delay_level: str = DEFAULT_DELAY_LEVELS

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """The delays of levels 1, 2, ... Raises ValueError."""
        return parse_delay_levels(self.message_delay_level)


@define(eq=False)
class StoreDirectory:
    """The content of a store directory. Close it, or use it in a `with` statement.

    `queues`, `ext_queues` by topic and queue id. `batch_topics` have queues of another kind (5.x), which are ignored.
    `lock_holder` is the process that has the store open now, None for none. `abort` is the content of that file; None: there
    is none, the last stop was clean. `findings` are those of opening; file names in them are relative to `root`.
    """

    root: Path
    options: DirectoryOptions
    log: FileSeries
    queues: dict[tuple[str, int], FileSeries]
    ext_queues: dict[tuple[str, int], FileSeries]
    index_files: tuple[StoreFile, ...]
    batch_topics: frozenset[str]
    config_files: tuple[Path, ...]
    side_files: tuple[Path, ...]
    checkpoint: Checkpoint | None
    abort: bytes | None
    lock_holder: int | None
    writer: Writer
    findings: tuple[Finding, ...]
    reader: FileReader
    divergent: tuple[Divergent, ...] = ()  # Kept cuts of the log.

    @classmethod
    def open(cls, path: Path, options: DirectoryOptions | None = None) -> "StoreDirectory":
        """Open a directory. Raises StoreDirectoryError when it is no store, OSError when it cannot be read."""
        return _open(path, options or DirectoryOptions())

    @property
    def is_running(self) -> bool:
        """True when a broker has the store open now."""
        return self.lock_holder is not None

    @property
    def stopped_cleanly(self) -> bool:
        """True when no broker has it open, and the last one closed it."""
        return not self.is_running and self.abort is None

    @property
    def has_crashed(self) -> bool:
        """True when no broker has it open, and the last one did not close it."""
        return not self.is_running and self.abort is not None

    def list_again(self, key: tuple[str, int]) -> None:
        """List the files of a queue again: a running broker adds and removes some. Raises OSError."""
        path = self.root / "consumequeue" / key[0] / str(key[1])
        if path.is_dir():
            file_size = next((series.file_size for series in self.queues.values()), CONSUME_QUEUE_UNIT)
            self.queues[key] = FileSeries(path, file_size, tuple(list_files(path)[0]), self.reader)

    def relative(self, path: Path) -> str:
        """A path as findings show it."""
        return str(path).removeprefix(f"{self.root}{os.sep}")

    def close(self) -> None:
        """Close the descriptors."""
        self.reader.close()

    def __enter__(self) -> "StoreDirectory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@define
class _Listing:
    """One kind of series: files and strays by topic and queue id."""

    files: dict[tuple[str, int], list[StoreFile]] = field(factory=dict)
    directories: dict[tuple[str, int], Path] = field(factory=dict)
    strays: dict[tuple[str, int], list[Path]] = field(factory=dict)
    findings: list[Finding] = field(factory=list)

    def series(self, file_size: int, reader: FileReader, size_key: str) -> dict[tuple[str, int], FileSeries]:
        serieses = {}
        for key, files in self.files.items():
            serieses[key] = series = FileSeries(self.directories[key], file_size, tuple(files), reader)
            self.findings += check_series(series, self.strays[key], size_key)
        return serieses


def _open(path: Path, options: DirectoryOptions) -> StoreDirectory:
    root = path.expanduser()
    if not root.is_dir():
        raise StoreDirectoryError(
            f"{path} is no directory. Name the store's root, which holds commitlog/ and consumequeue/."
        )
    log_directories = options.commit_log_dirs or (root / "commitlog",)
    if not any(place.is_dir() for place in (*log_directories, root / "consumequeue")):
        raise StoreDirectoryError(
            f"{path} holds no store: there is neither commitlog/ nor consumequeue/ in it. Name the store's root; "
            "where the log lies elsewhere, name its directory too."
        )
    options.delays_ms  # noqa: B018 - a wrong table is said before anything is read.
    reader = FileReader()
    findings: list[Finding] = []
    note = read_note(root)
    log = _open_log(log_directories, options, reader, findings, first=note.first if note is not None else 0)
    queue_files, ext_files = _list_queues(root / "consumequeue"), _list_queues(root / "consumequeue_ext")
    queue_size = options.queue_file_size or guess_file_size(queue_files.files.values())
    queues = queue_files.series(max(queue_size, CONSUME_QUEUE_UNIT), reader, "mappedFileSizeConsumeQueue")
    ext_size = guess_file_size(ext_files.files.values())
    ext_queues = ext_files.series(max(ext_size, 1), reader, "mappedFileSizeConsumeQueueExt")
    findings += (*queue_files.findings, *ext_files.findings, *_unfinished_cut(root / _SIDE_DIRECTORY))
    checkpoint = Checkpoint(root / "checkpoint") if (root / "checkpoint").is_file() else None
    if checkpoint is not None:
        checkpoint.load()
    abort = _content(root / "abort")
    side_files = _files_below(root / _SIDE_DIRECTORY)
    directory = StoreDirectory(
        root=root,
        options=options,
        log=log,
        queues=queues,
        ext_queues=ext_queues,
        index_files=_list_index(root / "index", findings),
        batch_topics=frozenset(_names(root / "batchconsumequeue")),
        config_files=_files_below(root / "config"),
        side_files=side_files,
        checkpoint=checkpoint,
        abort=abort,
        lock_holder=lock_holder(root / "lock"),
        writer=Writer.TWINLOG if note is not None else _writer(root, abort, checkpoint, side_files),
        divergent=DivergentDirectory(root / _SIDE_DIRECTORY / "divergent").list(),
        findings=(),
        reader=reader,
    )
    directory.findings = tuple(
        evolve(finding, file=directory.relative(Path(finding.file))) if finding.file else finding
        for finding in findings
    )
    return directory


def _unfinished_cut(side: Path) -> Iterator[Finding]:
    try:
        intent = load_intent(side)
    except StoreDirectoryError as error:
        yield Finding(kind=FindingKind.UNFINISHED_CUT, file=str(side / NAME), message=str(error))
        return
    if intent is not None:
        what = f"cut at {intent.offset}" if intent.kind is CutKind.CUT else "emptied, to begin anew"
        yield Finding(
            kind=FindingKind.UNFINISHED_CUT,
            file=str(side / NAME),
            phy_offset=intent.offset,
            message=f"the log is being {what} ({intent.why}): the next start of twinlog finishes it, RocketMQ would not",
        )


def _open_log(
    directories: Iterable[Path], options: DirectoryOptions, reader: FileReader, findings: list[Finding], *, first: int
) -> FileSeries:
    """The union of all directories of the log, as RocketMQ's MultiPathMappedFileQueue."""
    files: list[StoreFile] = []
    strays: list[Path] = []
    directories = tuple(directories)
    for directory in directories:
        if directory.is_dir():
            found, strange = list_files(directory)
            files += found
            strays += strange
    files.sort(key=lambda file: file.start)
    file_size = options.log_file_size or guess_file_size([files])
    series = FileSeries(directories[0], max(file_size, 1), tuple(files), reader, first)
    findings += check_series(series, strays, "mappedFileSizeCommitLog")
    return series


def _list_queues(directory: Path) -> _Listing:
    listing = _Listing()
    for topic in _names(directory):
        for name in _names(directory / topic):
            path = directory / topic / name
            if not name.isdecimal() or not path.is_dir():
                listing.findings.append(stray_entry(path, "is no queue: its name is no queue id; brokers skip it"))
                continue
            key = topic, int(name)
            listing.directories[key] = path
            listing.files[key], listing.strays[key] = list_files(path)
    return listing


def _list_index(directory: Path, findings: list[Finding]) -> tuple[StoreFile, ...]:
    """The index files, oldest first: their names are times."""
    files = []
    for name in _names(directory):
        path = directory / name
        if name.isdecimal() and path.is_file():
            files.append(StoreFile(path, int(name), path.stat().st_size))
        else:
            findings.append(stray_entry(path, "is no index file: its name is no time; brokers skip it"))
    return tuple(sorted(files, key=lambda file: file.start))


def _names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory)) if directory.is_dir() else []


def _files_below(directory: Path) -> tuple[Path, ...]:
    return tuple(directory / name for name in _names(directory) if (directory / name).is_file())


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _writer(root: Path, abort: bytes | None, checkpoint: Checkpoint | None, side_files: tuple[Path, ...]) -> Writer:
    """The last broker. 5.x writes its process id into `abort`, and numbers of its own into the checkpoint.

    A side file of twinlog counts when no file that every broker writes is younger: the checkpoint after a stop, else `abort`.
    """
    ours = max(_times(side_files), default=0.0)
    marks = (root / "checkpoint",) if abort is None else (root / "abort",)
    if ours and ours >= max(_times(marks), default=0.0) - 2:
        return Writer.TWINLOG
    if abort is not None:
        return Writer.ROCKETMQ_5 if abort.isdigit() else Writer.ROCKETMQ_4
    numbers = checkpoint is not None and (checkpoint.confirm_phy_offset or checkpoint.master_flushed_offset)
    return Writer.ROCKETMQ_5 if numbers or (root / "abort.bak").exists() else Writer.ROCKETMQ_4


def _times(paths: Iterable[Path]) -> Iterator[float]:
    for path in paths:
        try:
            yield path.stat().st_mtime
        except FileNotFoundError:
            continue


def lock_holder(path: Path) -> int | None:
    """The process that holds the store's lock; None for none. Takes no lock to find out.

    Closing the file would end this process's own locks on it, so it is opened only where this process has none.
    """
    if not path.is_file():
        return None
    if _is_locked_here(path):
        return os.getpid()
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    finally:
        os.close(fd)
    kind, _, _, _, process = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else process


def _is_locked_here(path: Path) -> bool:
    """True when this very process holds a lock on the file: F_GETLK reports other processes only."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    status = path.stat()
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(fields[4:6] == [str(os.getpid()), file] for fields in map(str.split, lines))
