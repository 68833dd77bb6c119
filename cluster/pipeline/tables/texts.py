"""Texts of all data sources: options, as Spark passes them, and warnings."""

import sys
from collections.abc import Mapping

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError


def lowered(texts: Mapping[str, str]) -> dict[str, str]:
    """Options by their names in lower case: names are case-insensitive, as everywhere in Spark."""
    return {name.lower(): value for name, value in texts.items()}


def list_of(text: str) -> list[str]:
    """The parts of a text that commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]


def flag_of(options: Mapping[str, str], name: str, default: bool) -> bool:
    """A flag. Raises ReadRefusedError."""
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ReadRefusedError(f"option {name} is {text!r}: allowed are true and false")
    return text == "true"


def number_of(options: Mapping[str, str], name: str, default: int) -> int:
    """A number of at least 1. Raises ReadRefusedError."""
    text = options.get(name.lower(), str(default)).strip()
    if not (text.isascii() and text.isdecimal()) or not 1 <= int(text) < 1 << 63:
        raise ReadRefusedError(f"option {name} is {text!r}: allowed are numbers of at least 1")
    return int(text)


def warn(message: str) -> None:
    """Print a warning: a worker's stderr appears on that of the program, or in the executor's log."""
    print(f"twinlog: {message}", file=sys.stderr, flush=True)
