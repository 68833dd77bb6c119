"""Runs one name server or broker as the whole of a process: its log, its limits, its signals.

SIGTERM, SIGINT, or the end of whoever started it stop the service cleanly; a second signal ends the process at once.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

CLEAN_STOP_SECONDS_MAX = 60  # After the parent's end nobody is left who could send a second signal.
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def import_structlog() -> None:
    """Import structlog without rich, which it would only use to paint tracebacks: a third of its start-up time."""
    if "structlog" in sys.modules or "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes `import rich` an ImportError
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]


import_structlog()

import structlog  # noqa: E402
import trio  # noqa: E402

from cluster.cli.errors import FAILED, CliError  # noqa: E402
from cluster.config_file import Configuration  # noqa: E402

Service = Callable[[Callable[[str], None]], Awaitable[None]]


def run_namesrv(configuration: Configuration, *, until_stdin_closes: bool = False) -> None:
    """Serve until stopped."""
    from cluster.namesrv.config import NamesrvConfig
    from cluster.namesrv.service import NameServer

    raise NotImplementedError(NamesrvConfig, NameServer)


def run_broker(configuration: Configuration, *, until_stdin_closes: bool = False) -> None:
    """Serve until stopped."""
    raise NotImplementedError


def run_service(service: Service, *, until_stdin_closes: bool) -> None:
    """Run `service` to its end; it gets a function that prints its ready line.

    Raises CliError for an error of the operating system, such as a port in use.
    """
    set_up_log()
    raise_file_limit()
    stop = _Stop()
    for number in _STOP_SIGNALS:
        signal.signal(number, stop.on_signal)

    async def main() -> None:
        stop.arm(trio.lowlevel.current_trio_token())
        with stop.scope:
            async with trio.open_nursery() as nursery:
                if until_stdin_closes:
                    nursery.start_soon(stop.when_stdin_closes)
                await service(_say_ready)
                nursery.cancel_scope.cancel()

    try:
        trio.run(main)
    except* OSError as group:
        raise _told(group) from group


def _told(group: BaseExceptionGroup[OSError]) -> CliError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return CliError(str(error), exit_code=FAILED)


def _say_ready(words: str) -> None:
    print(f"ready {words}", flush=True)


class _Stop:
    """Turns signals into a cancellation, and impatience into an end."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self._asked = False
        self._token: trio.lowlevel.TrioToken | None = None

    def arm(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        if self._asked:
            self.scope.cancel()

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._asked:
            os._exit(128 + number)
        self._asked = True
        if self._token is not None:
            self._token.run_sync_soon(self.scope.cancel)

    async def when_stdin_closes(self) -> None:
        async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream:
            while await stream.receive_some():
                pass
        signal.alarm(CLEAN_STOP_SECONDS_MAX)
        self._asked = True
        self.scope.cancel()


def raise_file_limit() -> None:
    """Let this process open as many files and connections as it may: every connection and every log file is one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def set_up_log() -> None:
    """Log to stderr, one line for each event: for people, or with TWINLOG_LOG=json for machines."""
    as_json = os.environ.get("TWINLOG_LOG") == "json"
    colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0)
    )
    errors: list[Any] = [structlog.processors.format_exc_info] if as_json else []
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            *errors,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
