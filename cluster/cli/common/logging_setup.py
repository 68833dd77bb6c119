"""Setup of a process: its log on stderr, one line for each event, for people or as JSON, and its limit of open files.

A service writes JSON when stderr is no terminal, for a log collector. TWINLOG_LOG=json or console overrides that. Events are
constant sentences, values are fields. docs/operating/logs.md lists both.
"""

import os
import resource
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from twinlog.cluster.cli.common.errors import USAGE, CliError
from twinlog.cluster.config.redaction import redact_event
from twinlog.store.util.late_logger import configure_before_first_line

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40


class _Stderr:
    """A logger that writes to the current stderr."""

    def msg(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    log = debug = info = warn = warning = error = critical = exception = fatal = msg


Event = MutableMapping[str, Any]
# The first fields of a JSON line, in this order.
FIRST_FIELDS = ("timestamp", "level", "event", "member", "role", "epoch", "peer")
_about: Callable[[], Mapping[str, Any]] = dict


def speak_for(about: Callable[[], Mapping[str, Any]]) -> None:
    """Add the fields that `about` returns to each line from now on. It is called for each line, because a role may change.

    It is called in any thread, must be cheap and must not raise.
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
    """Configure the log. Raises CliError for an unknown TWINLOG_LOG.

    `for_good`: for a service, which never changes it again, so that each logger is built once. Commands import structlog only
    for the first line that they log: most of them log nothing.
    """
    as_json = is_json(os.environ.get("TWINLOG_LOG", ""), of_service=for_good, on_terminal=sys.stderr.isatty())

    def configure() -> None:
        import structlog

        if as_json:
            end: list[Any] = [structlog.processors.format_exc_info, _in_order, structlog.processors.JSONRenderer()]
        else:
            # No values of variables in tracebacks: the parts of a broker refer to each other, and printing them takes minutes.
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
    """Follow TWINLOG_LOG, else write JSON for a service without a terminal. Raises CliError, exit status 2."""
    if chosen not in ("", "json", "console"):
        raise CliError(f"TWINLOG_LOG={chosen} is not a log format.", "Use json or console.", exit_code=USAGE)
    return chosen == "json" or (not chosen and of_service and not on_terminal)


def raise_file_limit() -> None:
    """Raise the limit of open files to the allowed maximum: each connection and each file of a store needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
