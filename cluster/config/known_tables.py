"""Which of the broker's tables were ever saved with something in them: ROOT/twinlog/tables.

A table that was never saved has no file, and so has one that somebody removed. By this note a start tells them apart. A store
of RocketMQ has none, nor has a restored backup: what such a store lacks was never there, as far as anybody knows.

The first line is `twinlog-tables 1` and a CRC, as in the files of roles; the rest is a JSON list of file names.
"""

from pathlib import Path
from threading import Lock

import structlog
from attrs import define, field

from twinlog.store.util.checked_file import decode_checked, encode_checked, save_checked

log = structlog.get_logger(__name__)

NAME, VERSION = "tables", 1


@define(eq=False)
class KnownTables:
    """`directory` is ROOT/twinlog. A note that cannot be read counts as none: it is made anew of the tables that are there."""

    directory: Path
    names: frozenset[str] = field(default=frozenset(), init=False)
    _lock: Lock = field(factory=Lock, init=False)  # Tables are saved in several threads.

    def load(self) -> None:
        """Read the note."""
        path = self.directory / NAME
        try:
            names = decode_checked(NAME, VERSION, path.read_bytes())
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ValueError("it holds no list of names")
            self.names = frozenset(names)
        except FileNotFoundError:
            self.names = frozenset()
        except (OSError, ValueError) as error:
            log.warning("a side file is not used", path=str(path), reason=str(error))
            self.names = frozenset()

    def note(self, *names: str) -> None:
        """These are there, with something in them. Blocks for the disk, the first time each. Where it refuses, the next start
        has another try.
        """
        if self.names.issuperset(names):
            return
        with self._lock:
            known = self.names.union(names)
            try:
                save_checked(self.directory / NAME, encode_checked(NAME, VERSION, sorted(known)))
            except OSError as error:
                log.warning("a side file could not be written", path=str(self.directory / NAME), error=str(error))
                return
            self.names = known
