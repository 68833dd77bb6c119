"""Loggers of modules that commands import: the first line that is logged imports structlog, 33 ms of a command's start."""

from collections.abc import Callable
from typing import Any

_configure: Callable[[], None] | None = None


class LateLogger:
    """Has the methods of structlog's logger of that name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import structlog

        global _configure
        if _configure is not None:
            configure, _configure = _configure, None
            configure()
        return getattr(structlog.get_logger(self._name), method)


def configure_before_first_line(configure: Callable[[], None]) -> None:
    """Call `configure` once, when a LateLogger is used for the first time."""
    global _configure
    _configure = configure
