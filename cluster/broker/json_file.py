"""The broker's small tables as files, readable and writable by RocketMQ too.

A table lies in `<name>.json`; the text before the last change in `<name>.json.bak`. Whoever finds the first
missing or broken takes the second. Sources: ConfigManager.java, MixAll.string2File, fastjson's PrettyFormat.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import structlog
from attrs import frozen

from cluster.remoting import fastjson

log = structlog.get_logger(__name__)


@frozen
class JsonFile:
    path: Path

    @property
    def backup(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    def load(self) -> dict[str, Any]:
        """The table as plain objects; empty when there is no file yet.

        Raises ValueError when neither the file nor its backup can be read: the broker must not start with empty tables.
        """
        problem = None
        for path in (self.path, self.backup):
            try:
                value = fastjson.loads(path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                problem = f"{path}: {error}"
                log.warning("a table could not be read", file=str(path), error=str(error))
                continue
            if isinstance(value, dict):
                return value
            problem = f"{path}: holds no JSON object"
        if problem is not None:
            raise ValueError(problem)
        return {}

    def save(self, text: str, *, durable: bool = False) -> None:
        """Replace the file at once and keep the one before; `durable` survives power loss, too, and may block long.

        Raises OSError.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_name(self.path.name + ".tmp")
        with open(scratch, "wb") as file:
            file.write(text.encode())
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if self.path.exists():
            os.replace(self.path, self.backup)
        os.replace(scratch, self.path)


def pretty(value: Mapping[str, Any]) -> str:
    """The text that fastjson's PrettyFormat makes: tabs, no blanks, maps with integer keys on one line and unquoted."""
    parts: list[str] = []
    _write(value, "", parts)
    return "".join(parts)


def _write(value: Any, indent: str, parts: list[str]) -> None:
    if not isinstance(value, Mapping):
        parts.append(orjson.dumps(value).decode())
    elif not value:
        parts.append("{}")
    elif isinstance(next(iter(value)), int):
        parts.append("{" + ",".join(f"{key}:{orjson.dumps(item).decode()}" for key, item in value.items()))
        parts.append(f"\n{indent}}}")
    else:
        inner = indent + "\t"
        separator = "{\n"
        for key, item in value.items():
            parts.append(f"{separator}{inner}{orjson.dumps(key).decode()}:")
            _write(item, inner, parts)
            separator = ",\n"
        parts.append(f"\n{indent}}}")
