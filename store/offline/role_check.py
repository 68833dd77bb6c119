"""Checks what a member of a group keeps of its role: epochs and promise. A start that cannot read them ends."""

from collections.abc import Callable, Iterator
from pathlib import Path

from twinlog.store.epoch_file import NAME as EPOCHS
from twinlog.store.epoch_file import EpochEntry, load_epochs
from twinlog.store.errors import StoreDirectoryError
from twinlog.store.offline.directory import StoreDirectory
from twinlog.store.offline.finding import Finding, Kind, Severity
from twinlog.store.role_file import NAME as ROLE
from twinlog.store.role_file import load_role


def check_role_files(directory: StoreDirectory, log_end: int | None) -> Iterator[Finding]:
    """Those that cannot be read, and what does not fit the log; `log_end`: None, it is not known."""
    side = directory.root / "twinlog"
    readers: tuple[tuple[str, Callable[[Path], object]], ...] = ((EPOCHS, load_epochs), (ROLE, load_role))
    for name, load in readers:
        try:
            load(side)
        except StoreDirectoryError as error:
            yield Finding(kind=Kind.ROLE_FILE, file=directory.relative(side / name), message=str(error))
        else:
            if name == EPOCHS and log_end is not None and not directory.is_running:
                yield from _behind_the_end(directory, load_epochs(side), log_end)


def _behind_the_end(directory: StoreDirectory, epochs: tuple[EpochEntry, ...], log_end: int) -> Iterator[Finding]:
    entry = next((entry for entry in epochs if entry.start_offset > log_end), None)
    if entry is not None:
        yield Finding(
            kind=Kind.ROLE_FILE,
            severity=Severity.WARNING,
            file=directory.relative(directory.root / "twinlog" / EPOCHS),
            phy_offset=entry.start_offset,
            message=f"epoch {entry.epoch} begins behind the end of the log: a cut was not finished, or the log lost its end. "
            "As a slave it is put right by its next start; a master does not go on before it has asked the others",
            expected=f"<= {log_end}",
            actual=entry.start_offset,
        )
