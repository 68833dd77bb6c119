"""The broker's small tables as files, readable and writable by RocketMQ too.

A table lies in `<name>.json`; the text before the last change in `<name>.json.bak`. Whoever finds the first
missing or broken takes the second. Sources: ConfigManager.java, MixAll.string2File (RocketMQ 4.9.8).
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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

    def save_table(self, table: Mapping[str, Any]) -> None:
        """Replace the file by this table, as fastjson prints it. Raises OSError."""
        self.save(fastjson.pretty(table))

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
