"""Table with a version that is saved and sent to other members: topics and subscription groups. Pure.

Each change increments the version. A slave takes its master's table when the version differs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from attrs import define, field

from twinlog.cluster.remoting.names import DataVersion


class _Entry(Protocol):
    def to_json(self) -> dict[str, Any]: ...


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
        """Read entries in the form of to_json(). Raises ValueError, TypeError."""

    def delete(self, name: str) -> bool:
        """Delete an entry; False if there was none."""
        if self.table.pop(name, None) is None:
            return False
        self.renew_version(name)
        return True

    def renew_version(self, name: str = "") -> None:
        """Increment the version, so that name servers and slaves take the table again."""
        before = self.version
        self.version = before.next(self.now_ms())
        assert self.version != before, "a slave would not take the change"
        for callback in self.on_change:
            callback(name)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file, which is also the body of the response to a slave."""
        return {
            "dataVersion": self.version.to_json(),
            self.KEY: {name: entry.to_json() for name, entry in self.table.items()},
        }

    def merge(self, value: Mapping[str, Any]) -> None:
        """Add saved entries to the built-in ones. Raises ValueError, TypeError."""
        entries, version = self.read(value), value.get("dataVersion")
        self.version = DataVersion.read(version) if version else self.version
        self.table.update(entries)

    def fill(self, value: Mapping[str, Any], built_in: Mapping[str, E]) -> None:
        """Take another member's entries after this table was lost, except those that were changed here since. `built_in` are the
        entries that this table started with. Raises ValueError, TypeError.
        """
        received, version = self.read(value), DataVersion.read(value.get("dataVersion") or {})
        self.table.update({name: each for name, each in received.items() if self.table.get(name) == built_in.get(name)})
        if not self.version.counter:
            self.version = version
        else:  # The result is neither of the two tables.
            newest = version if version.counter > self.version.counter else self.version
            self.version = newest.next(self.now_ms())

    def replace(self, value: Mapping[str, Any]) -> bool:
        """Take a master's table if its version differs; False if it does not. Raises ValueError, TypeError."""
        version = DataVersion.read(value.get("dataVersion") or {})
        if version == self.version:
            return False
        self.table = self.read(value)
        self.version = version
        return True
