"""JSON as twinlog gives it: one document, its schema number first. Command line and HTTP make it here, so they cannot differ.

An unknown value is null. Plain numbers: bytes, seconds, ms since 1970.
"""

from enum import Enum
from typing import Any

import orjson
from attrs import asdict

SCHEMA = 1  # Grows when a field of any JSON answer changes its meaning or goes away.


def document(answer: Any) -> dict[str, Any]:
    """An attrs object, or a mapping, as one document."""
    return {"schema": SCHEMA, **_plain(answer)}


def dumps(value: Any, *, indent: bool = False) -> bytes:
    """A document as JSON, attrs objects in it included."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2 if indent else None)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return value
    if isinstance(value, Enum):
        return value.name
    return asdict(value, recurse=False)
