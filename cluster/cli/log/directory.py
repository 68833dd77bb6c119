"""What the commands that look into a store directory share: its options, its errors, how it is opened."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from twinlog.cluster.cli.common.errors import FAILED, REFUSED, USAGE, CliError, sentence
from twinlog.cluster.cli.common.logging_setup import ERROR, set_up_log
from twinlog.store.config import DEFAULT_DELAY_LEVELS
from twinlog.store.errors import SideFileError, StoreDirectoryError, StoreLockedError
from twinlog.store.offline.copy.backup_target import BackupRefusedError
from twinlog.store.offline.copy.manifest import BackupError
from twinlog.store.offline.copy.rebuild import NothingToRebuildError
from twinlog.store.offline.directory import DirectoryOptions, StoreDirectory

F = TypeVar("F", bound=Callable[..., Any])

directory_argument = click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))


def directory_options(function: F) -> F:
    """What the files of a store directory do not tell, or not where they are damaged."""
    for option in (
        click.option(
            "--delay-levels",
            metavar="LEVELS",
            help="The broker's messageDelayLevel, where it is not RocketMQ's: \"1s 5s 10s ...\".",
        ),
        click.option("--index-slots", type=click.IntRange(1), metavar="N", help="The broker's maxHashSlotNum."),
        click.option(
            "--queue-file-size",
            type=click.IntRange(20),
            metavar="BYTES",
            help="The broker's mappedFileSizeConsumeQueue.  [default: as the files are]",
        ),
        click.option(
            "--log-file-size",
            type=click.IntRange(4096),
            metavar="BYTES",
            help="The broker's mappedFileSizeCommitLog.  [default: as the files are]",
        ),
        click.option(
            "--commit-log",
            "commit_log",
            multiple=True,
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Where the log lies, if not in DIR/commitlog; repeatable.",
        ),
    ):
        function = option(function)
    return function


def options_of(
    commit_log: tuple[Path, ...] = (),
    log_file_size: int | None = None,
    queue_file_size: int | None = None,
    index_slots: int | None = None,
    delay_levels: str | None = None,
) -> DirectoryOptions:
    """What directory_options() gathered. Raises click.UsageError."""
    options = DirectoryOptions(
        commit_log_dirs=commit_log,
        log_file_size=log_file_size,
        queue_file_size=queue_file_size,
        index_slots=index_slots,
        message_delay_level=delay_levels or DEFAULT_DELAY_LEVELS,
    )
    try:
        options.delays_ms  # noqa: B018
    except ValueError as error:
        raise click.UsageError(f"--delay-levels: {error}") from error
    return options


@contextmanager
def opened(directory: Path, **options: Any) -> Iterator[StoreDirectory]:
    """The directory, for reading. Raises CliError."""
    with told(), StoreDirectory.open(directory, options_of(**options)) as found:
        yield found


@contextmanager
def told(
    what: str = "The backup was not finished.", step: str = "Run it again; what is whole already stays."
) -> Iterator[None]:
    """Tell what is not ours to mend as a CliError; `what` and `step` of a backup that fails."""
    set_up_log(ERROR)
    allow_many_files()

    try:
        yield
    except StoreLockedError as error:
        raise CliError(
            "The store is in use.",
            sentence(error),
            "Stop the broker and try again; a look (log info, verify, dump, diff) and a backup need no stop.",
            exit_code=REFUSED,
        ) from error
    except BackupRefusedError as error:
        raise CliError(
            "Nothing was changed.",
            sentence(error),
            "Name a directory that is new or empty.",
            exit_code=REFUSED,
        ) from error
    except NothingToRebuildError as error:
        raise CliError(
            "Nothing was changed.",
            sentence(error),
            "See what is there with: twinlog log info DIR",
            exit_code=REFUSED,
        ) from error
    except BackupError as error:
        raise CliError(what, sentence(error), step, exit_code=FAILED) from error
    except StoreDirectoryError as error:
        raise CliError("That is no store directory.", sentence(error), exit_code=USAGE) from error
    except SideFileError as error:
        raise CliError("A file of twinlog's cannot be used.", sentence(error), exit_code=FAILED) from error
    except BrokenPipeError:
        raise  # For main.py.
    except OSError as error:
        raise CliError("The files cannot be read or written.", sentence(error), exit_code=FAILED) from error


def allow_many_files() -> None:
    """A log and its queues are many files; some systems let a process open 256 unless it asks."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def say(text: str, fmt: str) -> None:
    """A word besides the data: below a table, and on stderr where a program reads stdout."""
    click.echo(text, err=fmt in ("json", "tsv"))
