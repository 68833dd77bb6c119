"""Removal of secrets from output, logs, responses and errors."""

import re
from collections.abc import Mapping, MutableMapping
from typing import Any

HIDDEN = "******"

# Of the group secret: the path of its file, its ids, whether it is required. They have no secret themselves.
_PLAIN = r"(?:haSecret|haSecretFile|secret_?ids?|secret_?required)"
_WORD = r"(?:secret|passw|passphrase|credential|securitytoken|authtoken)"
_SECRET_NAME = re.compile(rf"^(?!{_PLAIN}$).*{_WORD}", re.IGNORECASE | re.DOTALL)
# `secretKey=...`, `"secretKey":"..."`, `secretKey: ...`: the name with the separator, and the value.
_IN_TEXT = re.compile(
    rf"""(?<![\w.])(?P<name>["']?(?!{_PLAIN}\b)[\w.]*{_WORD}[\w.]*["']?\s*[=:]\s*)"""
    r"""(?P<value>\{[^{}]*\}|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}\])]+)""",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Return whether an option or a field of this name has a secret."""
    return _SECRET_NAME.search(name) is not None


def shown(name: str, value: str) -> str:
    """Return the value of an option for output: hidden if it is a secret, unless it is empty."""
    return HIDDEN if value and is_secret(name) else value


def redact(value: Any) -> Any:
    """Return a plain object without secrets at any depth."""
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if inner not in (None, "") and isinstance(name, str) and is_secret(name) else redact(inner)
            for name, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact(inner) for inner in value]
    return value


def redact_text(text: str) -> str:
    """Return a text (configuration, JSON, YAML, an error) without the values of secrets."""
    return _IN_TEXT.sub(lambda match: match["name"] + HIDDEN, text)


def redact_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove secrets from the fields and texts of an event, as a processor of structlog."""
    for name, value in event.items():
        if is_secret(name):
            event[name] = HIDDEN
        elif isinstance(value, str) and is_secret(value):
            event[name] = redact_text(value)
    return event
