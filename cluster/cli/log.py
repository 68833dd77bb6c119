"""The log of a process: to stderr, one line for each event."""

import os
import sys
from typing import Any

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


def set_up_log(level: int = INFO, *, for_good: bool = False) -> None:
    """Log for people or, with TWINLOG_LOG=json, for machines. Call it before importing what logs.

    `for_good`: nothing changes this later, so that each logger is put together once.
    """
    from cluster.redaction import redact_event

    structlog = import_structlog()
    as_json = os.environ.get("TWINLOG_LOG") == "json"
    colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            redact_event,
            *(_json_end(structlog) if as_json else (_console_end(structlog, colours=colours),)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Stderr(),
        cache_logger_on_first_use=for_good,
    )


def _console_end(structlog: Any, *, colours: bool) -> Any:
    """Tracebacks without the values of variables: a broker's parts hold each other, and printing them takes minutes."""
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0, exception_formatter=plain)


def _json_end(structlog: Any) -> tuple[Any, ...]:
    return (structlog.processors.format_exc_info, structlog.processors.JSONRenderer())
