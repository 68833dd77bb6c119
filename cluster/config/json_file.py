"""The broker's small tables as files, readable and writable by RocketMQ too.

A table is in `<name>.json`, its content before the last change in `<name>.json.bak`, which is read when the first is missing or
damaged. Sources: ConfigManager.java, MixAll.string2File (RocketMQ 4.9.8). Unlike there, a save is durable when it returns, and a
complete file exists under the name at any time.

ROOT/twinlog/tables lists the tables that were ever saved with entries: by it a start tells a table that was never saved from one
whose files were removed. A store of RocketMQ and a restored backup have no such list, so no table counts as removed there. Its
first line is `twinlog-tables 1` and a CRC, as in the role file; the rest is a JSON list of file names.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from attrs import define, field, frozen

from twinlog.cluster.remoting import fastjson
from twinlog.store.util.checked_file import decode_checked, encode_checked
from twinlog.store.util.late_logger import LateLogger
from twinlog.store.util.sync import save_durably, sync_directory

log = LateLogger(__name__)

NAME, VERSION = "tables", 1


@define(eq=False)
class KnownTables:
    """The list in `directory`, which is ROOT/twinlog. An unreadable list counts as none: it is rebuilt from the tables found."""

    directory: Path
    names: frozenset[str] = field(default=frozenset(), init=False)
    _lock: Lock = field(factory=Lock, init=False)  # Tables are saved in several threads.

    def load(self) -> None:
        """Read the list."""
        path = self.directory / NAME
        try:
            names = decode_checked(NAME, VERSION, path.read_bytes())
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ValueError("it has no list of names")
        except (OSError, ValueError) as error:
            if not isinstance(error, FileNotFoundError):
                log.warning("a side file is not used", path=str(path), reason=str(error))
            names = []
        self.names = frozenset(names)

    def note(self, *names: str) -> None:
        """Add names of tables with entries. Blocks for the disk once for each name; after an error the next start retries."""
        if self.names.issuperset(names):
            return
        with self._lock:
            known = self.names.union(names)
            try:
                save_durably(self.directory / NAME, encode_checked(NAME, VERSION, sorted(known)))
            except OSError as error:
                log.warning("a side file could not be written", path=str(self.directory / NAME), error=str(error))
                return
            self.names = known


@frozen
class JsonFile:
    """One table: its file and its backup."""

    path: Path
    # The list of tables that were saved with entries.
    known: KnownTables | None = field(default=None, eq=False, repr=False)
    _lock: Lock = field(factory=Lock, eq=False, repr=False)  # Saves may come from several threads.

    @property
    def backup(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    @property
    def is_missing(self) -> bool:
        """True if neither the file nor its backup exists."""
        return not self.path.exists() and not self.backup.exists()

    def load(self) -> dict[str, Any]:
        """Return the table; empty without a file. Raises as load_into()."""
        table: dict[str, Any] = {}
        self.load_into(lambda value: table.update(value))
        return table

    def load_into(self, take: Callable[[Mapping[str, Any]], None]) -> bool:
        """Pass the table to `take`, which raises ValueError and changes nothing if it is invalid. Returns whether there was one.

        An empty file is the result of a crash during the first save, and counts as none. Raises ValueError if neither the file
        nor its backup can be read, because the broker must not start with empty tables. Raises OSError.
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
        """Replace the file by this table, printed as fastjson does. Raises OSError."""
        self.save(fastjson.pretty(table), is_empty=is_empty(table))

    def save(self, text: str, *, is_empty: bool = False) -> None:
        """Replace the file atomically and durably, and keep the previous one. Blocks for the disk: call it in a thread.

        Raises OSError; the file is unchanged then.
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
        """Make the backup a second name of the file, which keeps its own name meanwhile."""
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
    """Return whether a table has no entries."""
    return not any(value for name, value in table.items() if name != "dataVersion")


def _object(raw: bytes) -> Mapping[str, Any]:
    value = fastjson.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("holds no JSON object")
    return value


def entries_of(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the entries under `key`. Raises ValueError."""
    table = value.get(key) or {}
    if not isinstance(table, dict):
        raise ValueError(f"{key} is not a table")
    return table
