"""Secrets stay in the process: what is shown, logged, answered or put into an error goes through here."""

import re
from collections.abc import Mapping, MutableMapping
from typing import Any

HIDDEN = "******"

_SECRET_NAME = re.compile(r"secret|passw|passphrase|credential|securitytoken|authtoken", re.IGNORECASE)
# `secretKey=...`, `"secretKey":"..."`, `secretKey: ...`: the name, what stands between, and the value.
_IN_TEXT = re.compile(
    r"""(?P<name>["']?[\w.]*(?:secret|passw|passphrase|credential|securitytoken|authtoken)[\w.]*["']?\s*[=:]\s*)"""
    r"""(?P<value>\{[^{}]*\}|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}\])]+)""",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether an option or a field of this name holds one."""
    return _SECRET_NAME.search(name) is not None


def shown(name: str, value: str) -> str:
    """The value of an option, as others may see it. What is not set shows as not set."""
    return HIDDEN if value and is_secret(name) else value


def redact(value: Any) -> Any:
    """A plain object without its secrets: tables and lists, as deep as they go."""
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if inner not in (None, "") and isinstance(name, str) and is_secret(name) else redact(inner)
            for name, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact(inner) for inner in value]
    return value


def redact_text(text: str) -> str:
    """A text without the values of secrets that it names: of configuration, JSON, YAML or an error."""
    return _IN_TEXT.sub(lambda match: match["name"] + HIDDEN, text)


def redact_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A step of structlog: what an event names as a secret, or mentions in a text."""
    for name, value in event.items():
        if is_secret(name):
            event[name] = HIDDEN
        elif isinstance(value, str) and is_secret(value):
            event[name] = redact_text(value)
    return event
