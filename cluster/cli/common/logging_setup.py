"""The log of a process: to stderr, one line for each event, for people or for machines.

A service writes JSON where nobody watches (stderr is no terminal): a log collector reads it then. TWINLOG_LOG=json or console
decides otherwise. Events are sentences that stay the same, values are fields. docs/operating/logs.md lists both.
"""

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from twinlog.cluster.cli.common.errors import USAGE, CliError
from twinlog.cluster.config.redaction import redact_event
from twinlog.store.util.late_logger import configure_before_first_line

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40


class _Stderr:
    """Writes to what stderr is at that time."""

    def msg(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    log = debug = info = warn = warning = error = critical = exception = fatal = msg


Event = MutableMapping[str, Any]
FIRST_FIELDS = ("timestamp", "level", "event", "member", "role", "epoch", "peer")  # In this order, of a JSON line.
_about: Callable[[], Mapping[str, Any]] = dict


def speak_for(about: Callable[[], Mapping[str, Any]]) -> None:
    """Put what `about` returns on each line from now on. It is asked for each line: a role changes while its tasks run on.

    Any thread may ask; it must be cheap and raise nothing.
    """
    global _about
    _about = about


def _add_about(_logger: object, _method: str, event: Event) -> Event:
    for name, value in _about().items():
        event.setdefault(name, value)
    return event


def _in_order(_logger: object, _method: str, event: Event) -> Event:
    first = {name: event.pop(name) for name in FIRST_FIELDS if name in event}
    return {**first, **event}


def set_up_log(level: int = INFO, *, for_good: bool = False) -> None:
    """Log for people or for machines. Raises CliError for a TWINLOG_LOG that is neither.

    `for_good`: a service, and nothing changes this later, so that each logger is put together once. Commands talk to people:
    most of them never log, so they import structlog for the first line.
    """
    as_json = is_json(os.environ.get("TWINLOG_LOG", ""), of_service=for_good, on_terminal=sys.stderr.isatty())

    def configure() -> None:
        import structlog

        if as_json:
            end: list[Any] = [structlog.processors.format_exc_info, _in_order, structlog.processors.JSONRenderer()]
        else:
            # Tracebacks without the values of variables: a broker's parts refer to each other, printing them takes minutes.
            plain = structlog.dev.plain_traceback
            colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
            end = [structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0, exception_formatter=plain)]
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso"),
                _add_about,
                redact_event,
                *end,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            logger_factory=lambda *_: _Stderr(),
            cache_logger_on_first_use=for_good,
        )

    if for_good or "structlog" in sys.modules:
        configure()
    else:
        configure_before_first_line(configure)


def is_json(chosen: str, *, of_service: bool, on_terminal: bool) -> bool:
    """What TWINLOG_LOG says, else what suits. Raises CliError, exit status 2."""
    if chosen not in ("", "json", "console"):
        raise CliError(f"TWINLOG_LOG={chosen} is no form of a log.", "Allowed are json and console.", exit_code=USAGE)
    return chosen == "json" or (not chosen and of_service and not on_terminal)
