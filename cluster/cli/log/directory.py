"""Shared parts of the commands on store directories: options, opening, errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from twinlog.cluster.cli.common.errors import FAILED, REFUSED, USAGE, CliError, sentence
from twinlog.cluster.cli.common.logging_setup import ERROR, raise_file_limit, set_up_log
from twinlog.cluster.cli.common.options import together
from twinlog.store.config import DEFAULT_DELAY_LEVELS
from twinlog.store.errors import SideFileError, StoreDirectoryError, StoreLockedError
from twinlog.store.offline.copy.manifest import BackupError, BackupRefusedError
from twinlog.store.offline.copy.rebuild import NothingToRebuildError
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory

directory_argument = click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))


# For what the files of a store do not say, or not when they are damaged.
directory_options = together(
    click.option(
        "--commit-log",
        "commit_log_dirs",
        multiple=True,
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Directory of the log, if not DIR/commitlog; repeatable.",
    ),
    click.option(
        "--log-file-size",
        type=click.IntRange(4096),
        metavar="BYTES",
        help="The broker's mappedFileSizeCommitLog.  [default: the size of the files]",
    ),
    click.option(
        "--queue-file-size",
        type=click.IntRange(20),
        metavar="BYTES",
        help="The broker's mappedFileSizeConsumeQueue.  [default: the size of the files]",
    ),
    click.option("--index-slots", type=click.IntRange(1), metavar="N", help="The broker's maxHashSlotNum."),
    click.option(
        "--delay-levels",
        "message_delay_level",
        metavar="LEVELS",
        help="The broker's messageDelayLevel, if it is not RocketMQ's default: \"1s 5s 10s ...\".",
    ),
)


def options_of(*, message_delay_level: str | None = None, **given: Any) -> DirectoryOptions:
    """Convert the values of directory_options. Raises click.UsageError."""
    options = DirectoryOptions(message_delay_level=message_delay_level or DEFAULT_DELAY_LEVELS, **given)
    try:
        options.delays_ms  # noqa: B018
    except ValueError as error:
        raise click.UsageError(f"--delay-levels: {error}") from error
    return options


@contextmanager
def opened(directory: Path, **options: Any) -> Iterator[StoreDirectory]:
    """Open the directory for reading. Raises CliError."""
    with user_errors(), StoreDirectory.open(directory, options_of(**options)) as found:
        yield found


# Error -> what failed, what to do, exit status.
_EXPLAINED: dict[type[Exception], tuple[str, str, int]] = {
    StoreLockedError: (
        "The store is in use.",
        "Stop the broker and try again. `log info`, `verify`, `dump`, `diff` and `backup` work while it runs.",
        REFUSED,
    ),
    BackupRefusedError: ("Nothing was changed.", "Choose a directory that is new or empty.", REFUSED),
    NothingToRebuildError: ("Nothing was changed.", "Inspect the store with: twinlog log info DIR", REFUSED),
    StoreDirectoryError: ("This is not a store directory.", "", USAGE),
    SideFileError: ("A file in the twinlog directory of the store cannot be used.", "", FAILED),
    OSError: ("The files cannot be read or written.", "", FAILED),
}


@contextmanager
def user_errors(
    what: str = "The backup was not finished.", step: str = "Run it again; it continues with the missing files."
) -> Iterator[None]:
    """Convert errors that the user can solve to CliError. `what`, `step`: the text for a backup that fails."""
    set_up_log(ERROR)
    raise_file_limit()
    explained: dict[type[Exception], tuple[str, str, int]] = {**_EXPLAINED, BackupError: (what, step, FAILED)}
    try:
        yield
    except BrokenPipeError:
        raise  # For main.py.
    except tuple(explained) as error:
        what, step, status = next(explained[kind] for kind in type(error).__mro__ if kind in explained)
        raise CliError(what, sentence(error), step, exit_code=status) from error


def say(text: str, fmt: str) -> None:
    """Print a message besides the data: on stdout with a table, on stderr if stdout is for a program."""
    click.echo(text, err=fmt in ("json", "tsv"))
