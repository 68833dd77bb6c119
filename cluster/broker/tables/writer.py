"""Writer of a table's file, in threads: several changes in one write, in order, always the newest state.

A table changes in memory at once; save() returns when all changes made before it are on disk. Responses that confirm a change
wait for that: a confirmed topic is there after kill -9. Source: ConfigManager.persist (RocketMQ 4.9.8), which writes on the
thread that made the change.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
import trio
from attrs import define, field

from twinlog.cluster.config.json_file import JsonFile
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

AGAIN_SECONDS = 1.0


@define(eq=False)
class TableWriter:
    """Writes a table to its file. `table` returns a copy of its present content."""

    file: JsonFile
    table: Callable[[], Mapping[str, Any]]
    is_saved: bool = field(default=True, init=False)  # The file holds the table as it is now.
    _changes: int = field(default=0, init=False)
    _saved: int = field(default=0, init=False)  # The number of the last change that the file holds.
    _unsaved: dict[str, int] = field(factory=dict, init=False)  # Entries, with the number of their last change.
    _waiting: list[tuple[int, Callable[[], None]]] = field(factory=list, init=False)
    _lock: trio.Lock = field(factory=trio.Lock, init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)
    _failing: bool = field(default=False, init=False)

    def changed(self, entry: str = "") -> None:
        """Note a change of the table, of `entry` if given; run() will write it."""
        self._changes += 1
        self.is_saved = False
        self._unsaved[entry] = self._changes
        self._wakeup.set()

    def holds(self, entries: Iterable[str]) -> bool:
        """True when the file has these entries as they are now."""
        return not self._unsaved or self._unsaved.keys().isdisjoint(entries)

    @property
    def waiting(self) -> int:
        """Number of callbacks that wait for the file."""
        return len(self._waiting)

    def when_saved(self, callback: Callable[[], None]) -> None:
        """Call back once all changes so far are in the file, or their write has failed."""
        self._waiting.append((self._changes, callback))
        self._wakeup.set()

    async def save(self) -> None:
        """Return when all changes so far are on disk. Raises OSError."""
        wanted = self._changes
        async with self._lock:
            if self._saved < wanted:
                await self._write()

    async def _write(self) -> None:
        number, table = self._changes, self.table()
        assert self._saved <= number, (self._saved, number)
        try:
            await trio.to_thread.run_sync(self.file.save_table, table)
        except OSError as error:
            if not self._failing:
                log.error("a table could not be written", file=str(self.file.path), error=str(error))
            self._failing = True
            self._call_back(number)
            raise
        self._failing = False
        self._saved, self.is_saved = number, number == self._changes
        self._unsaved = {entry: changed for entry, changed in self._unsaved.items() if changed > number}
        self._call_back(number)

    def _call_back(self, number: int) -> None:
        due = [callback for changed, callback in self._waiting if changed <= number]
        self._waiting = [(changed, callback) for changed, callback in self._waiting if changed > number]
        for callback in due:
            callback()

    async def run(self) -> None:
        """Write until cancelled; a failed write is tried again."""
        while True:
            await self._wakeup.wait()
            try:
                await self.save()
            except OSError:
                await trio.sleep(AGAIN_SECONDS)
                self._wakeup.set()
            else:
                self._call_back(self._saved)
