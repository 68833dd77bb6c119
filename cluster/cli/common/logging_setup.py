"""The log of a process: to stderr, one line for each event, for people or for machines.

A service writes JSON where nobody watches (stderr is no terminal): a log collector reads it then. TWINLOG_LOG=json or console
decides otherwise. Events are sentences that stay the same, values are fields. docs/operating/logs.md lists both.
"""

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from twinlog.cluster.cli.common.errors import USAGE, CliError

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40


def import_structlog() -> Any:
    """Import structlog without rich, which it would only use to paint tracebacks: a third of its start-up time."""
    if "structlog" not in sys.modules and "rich" not in sys.modules:
        sys.modules["rich"] = None  # type: ignore[assignment]  # makes `import rich` an ImportError
        try:
            import structlog
        finally:
            del sys.modules["rich"]
    import structlog

    return structlog


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
    """Log for people or for machines. Call it before importing what logs. Raises CliError for a TWINLOG_LOG that is neither.

    `for_good`: a service, and nothing changes this later, so that each logger is put together once. Commands talk to people.
    """
    from twinlog.cluster.config.redaction import redact_event

    structlog = import_structlog()
    as_json = is_json(os.environ.get("TWINLOG_LOG", ""), of_service=for_good, on_terminal=sys.stderr.isatty())
    colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            _add_about,
            redact_event,
            *(_json_end(structlog) if as_json else (_console_end(structlog, colours=colours),)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Stderr(),
        cache_logger_on_first_use=for_good,
    )


def is_json(chosen: str, *, of_service: bool, on_terminal: bool) -> bool:
    """What TWINLOG_LOG says, else what suits. Raises CliError, exit status 2."""
    if chosen not in ("", "json", "console"):
        raise CliError(f"TWINLOG_LOG={chosen} is no form of a log.", "Allowed are json and console.", exit_code=USAGE)
    return chosen == "json" or (not chosen and of_service and not on_terminal)


def _console_end(structlog: Any, *, colours: bool) -> Any:
    """Tracebacks without the values of variables: a broker's parts hold each other, and printing them takes minutes."""
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0, exception_formatter=plain)


def _json_end(structlog: Any) -> tuple[Any, ...]:
    return (structlog.processors.format_exc_info, _in_order, structlog.processors.JSONRenderer())
