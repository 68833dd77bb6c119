"""Texts of all data sources: options, as Spark passes them, and warnings."""

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from twinlog.cluster.pipeline.sources.limits import ReadRefusedError

NEARLY = 0.85  # Share of equal letters, by which one letter too many or too few is found.


def lowered(texts: Mapping[str, str]) -> dict[str, str]:
    """Options by their names in lower case: names are case-insensitive, as everywhere in Spark."""
    return {name.lower(): value for name, value in texts.items()}


def check_spelling(texts: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse a name that is nearly that of an option, as it would be ignored. Spark may pass options of its own. Raises
    ReadRefusedError.
    """
    names = {name.lower(): name for name in known}
    for text in texts:
        near = get_close_matches(text.lower(), names, n=1, cutoff=NEARLY) if text.lower() not in names else ()
        if near:
            raise ReadRefusedError(f"option {text} is not known: did you mean {names[near[0]]}?")


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
