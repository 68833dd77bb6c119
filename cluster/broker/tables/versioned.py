"""A table with a version, in its file and between members: topics and subscription groups. Pure.

Each change counts up the version. A slave takes its master's table when the version is another.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from attrs import define, field

from twinlog.cluster.remoting.names import DataVersion


class _Entry(Protocol):
    def plain(self) -> dict[str, Any]: ...


E = TypeVar("E", bound=_Entry)


@define(eq=False)
class VersionedTable(ABC, Generic[E]):
    """Entries by name. `on_change` is called after each change made here, with the entry's name."""

    KEY: ClassVar[str]  # Of the entries in JSON.

    now_ms: Callable[[], int]
    auto_create: bool = True
    on_change: list[Callable[[str], None]] = field(factory=list, repr=False)
    table: dict[str, E] = field(factory=dict, init=False)
    version: DataVersion = field(init=False)

    @version.default
    def _first_version(self) -> DataVersion:
        return DataVersion(self.now_ms())

    @staticmethod
    @abstractmethod
    def read(value: Mapping[str, Any]) -> dict[str, E]:
        """Entries in the form of plain(). Raises ValueError, TypeError."""

    def delete(self, name: str) -> bool:
        """Remove an entry; False when there was none."""
        if self.table.pop(name, None) is None:
            return False
        self.renew_version(name)
        return True

    def renew_version(self, name: str = "") -> None:
        """Count up the version: name servers and slaves take the table again."""
        self.version = self.version.next(self.now_ms())
        for callback in self.on_change:
            callback(name)

    def plain(self) -> dict[str, Any]:
        """The file, and the body of a slave's request."""
        return {
            "dataVersion": self.version.to_json(),
            self.KEY: {name: entry.plain() for name, entry in self.table.items()},
        }

    def merge(self, value: Mapping[str, Any]) -> None:
        """Put what was saved over the built-in entries. Raises ValueError, TypeError."""
        entries, version = self.read(value), value.get("dataVersion")
        self.version = DataVersion.read(version) if version else self.version
        self.table.update(entries)

    def fill(self, value: Mapping[str, Any], built_in: Mapping[str, E]) -> None:
        """Take another member's entries where this table was lost: all but what was changed here since. `built_in` is what this
        table began with. Raises ValueError, TypeError.
        """
        received, version = self.read(value), DataVersion.read(value.get("dataVersion") or {})
        self.table.update({name: each for name, each in received.items() if self.table.get(name) == built_in.get(name)})
        if not self.version.counter:
            self.version = version
        else:  # It is neither table any more.
            newest = version if version.counter > self.version.counter else self.version
            self.version = newest.next(self.now_ms())

    def replace(self, value: Mapping[str, Any]) -> bool:
        """Take a master's table when its version is another; False when it is not. Raises ValueError, TypeError."""
        version = DataVersion.read(value.get("dataVersion") or {})
        if version == self.version:
            return False
        self.table = self.read(value)
        self.version = version
        return True


def entries_of(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The entries under `key`. Raises ValueError."""
    table = value.get(key) or {}
    if not isinstance(table, dict):
        raise ValueError(f"{key} is no table")
    return table
