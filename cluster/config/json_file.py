"""The broker's small tables as files, readable and writable by RocketMQ too.

A table lies in `<name>.json`; the text before the last change in `<name>.json.bak`. Whoever finds the first missing or broken
takes the second. Sources: ConfigManager.java, MixAll.string2File (RocketMQ 4.9.8). Other than there, a save is on disk when it
returns, and at no moment is there no whole file under the name.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import structlog
from attrs import field, frozen

from twinlog.cluster.config.known_tables import KnownTables
from twinlog.cluster.remoting import fastjson
from twinlog.store.util.sync import sync_directory

log = structlog.get_logger(__name__)


@frozen
class JsonFile:
    path: Path
    known: KnownTables | None = field(default=None, eq=False, repr=False)  # Where it is noted that there is a table.
    _lock: Lock = field(factory=Lock, eq=False, repr=False)  # Saves may come from several threads.

    @property
    def backup(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    @property
    def is_missing(self) -> bool:
        """Whether there is none, nor the one before."""
        return not self.path.exists() and not self.backup.exists()

    def load(self) -> dict[str, Any]:
        """The table as plain objects; empty when there is no file yet. Raises as load_into."""
        table: dict[str, Any] = {}
        self.load_into(lambda value: table.update(value))
        return table

    def load_into(self, take: Callable[[Mapping[str, Any]], None]) -> bool:
        """Give the table to `take`, which raises ValueError and changes nothing when it makes no sense to it.

        Returns whether there was one. An empty file is what a crash leaves of the first save; it counts as none.
        Raises ValueError when there was something and neither the file nor its backup can be read: the broker must not start with
        empty tables. Raises OSError.
        """
        problems, missing = [], False
        for path in (self.path, self.backup):
            try:
                raw = path.read_bytes()
            except FileNotFoundError:
                missing = missing or path == self.path
                continue
            if missing:
                log.warning(
                    "a table is missing: the text before its last change is used",
                    file=str(self.path),
                    used=str(path),
                    why="somebody removed it",
                    next="see whether the last change is there; else make it again",
                )
                missing = False
            if not raw:
                log.warning("an empty table is passed over", file=str(path))
                continue
            try:
                take(_object(raw))
                return True
            except (ValueError, TypeError, AttributeError, OverflowError) as error:
                problems.append(f"{path}: {error}")
                log.warning("a table could not be read", file=str(path), error=str(error))
        if problems:
            raise ValueError("; ".join(problems))
        return False

    def save_table(self, table: Mapping[str, Any]) -> None:
        """Replace the file by this table, as fastjson prints it. Raises OSError."""
        self.save(fastjson.pretty(table), is_empty=is_empty(table))

    def save(self, text: str, *, is_empty: bool = False) -> None:
        """Replace the file at once, durably, and keep the one before. Blocks as long as the disk does: call it in a thread.

        Raises OSError; the file is the one before then.
        """
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            scratch = self.path.with_name(self.path.name + ".tmp")
            with open(scratch, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            self._keep_old()
            os.replace(scratch, self.path)
            sync_directory(self.path.parent)
        if self.known is not None and not is_empty:
            self.known.note(self.path.name)

    def _keep_old(self) -> None:
        """Let the backup be another name of the file, which never goes without its own."""
        scratch = self.backup.with_name(self.backup.name + ".tmp")
        scratch.unlink(missing_ok=True)
        if not self.path.exists():
            return
        try:
            os.link(self.path, scratch)
        except OSError:  # A file system without links.
            shutil.copyfile(self.path, scratch)
        os.replace(scratch, self.backup)


def is_empty(table: Mapping[str, Any]) -> bool:
    """Whether it has no entries: nobody would miss it."""
    return not any(value for name, value in table.items() if name != "dataVersion")


def _object(raw: bytes) -> Mapping[str, Any]:
    value = fastjson.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("holds no JSON object")
    return value
