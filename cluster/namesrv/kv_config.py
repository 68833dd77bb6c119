"""KV configuration: settings by namespace and key that administrators store at a name server. Each server has its own.

The file is `{"configTable":{namespace:{key:value}}}`, as in RocketMQ. Source: KVConfigManager.java (RocketMQ 4.9.8).
"""

from collections.abc import Mapping
from pathlib import Path

import trio
from attrs import define, field

from twinlog.cluster.config.json_file import JsonFile
from twinlog.cluster.remoting.codes import ResponseCode
from twinlog.cluster.remoting.errors import RequestError

NAME_LENGTH_MAX, VALUE_LENGTH_MAX, ENTRIES_MAX = 1_024, 65_536, 10_000  # RocketMQ has no limits.
BYTES_MAX = 16 << 20  # Of all names and values: each change writes the whole file.

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"  # topic -> "broker-a:4;broker-b:4"

Table = dict[str, dict[str, str]]


def _entries(table: Table) -> int:
    """Number of entries; an empty namespace, which RocketMQ shows as such, counts as one."""
    return sum(max(1, len(inner)) for inner in table.values())


def _bytes(table: Table) -> int:
    """Size of all names and values in UTF-8."""
    pairs = (text for inner in table.values() for pair in inner.items() for text in pair)
    return sum(len(text.encode("utf-8", "replace")) for text in (*table, *pairs))


@define(eq=False)
class KVConfigManager:
    """The table, and its file unless `path` is None. A change is durable before it is visible, or fails and is dropped."""

    path: Path | None = None
    _table: Table = field(factory=dict, init=False)
    _lock: trio.Lock = field(factory=trio.Lock, init=False)  # Serializes changes: each is based on the one before.

    def load(self) -> None:
        """Read the file or, if that is damaged, its backup. Raises OSError, or ValueError that names the file."""
        if self.path is None:
            return
        try:
            JsonFile(self.path).load_into(self._take)
        except ValueError as error:
            raise ValueError(f"{self.path} is not a KV configuration: {error}") from None

    def _take(self, value: Mapping[str, object]) -> None:
        table = value.get("configTable")
        if not isinstance(table, dict) or not all(isinstance(inner, dict) for inner in table.values()):
            raise ValueError("configTable is not an object of objects")
        self._table = {str(name): {str(k): str(v) for k, v in inner.items()} for name, inner in table.items()}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All entries of a namespace; None for one that does not exist."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set an entry. Raises RequestError when it is too long or there are too many; OSError when it cannot be written."""
        async with self._lock:
            await self._change(self._with(namespace, key, value))

    def _with(self, namespace: str, key: str, value: str) -> Table:
        """The table with this entry; empty namespaces are dropped if the limits require it. Raises RequestError."""
        for what, size, most in (
            ("namespace", len(namespace), NAME_LENGTH_MAX),
            ("key", len(key), NAME_LENGTH_MAX),
            ("value", len(value), VALUE_LENGTH_MAX),
        ):
            if size > most:
                remark = f"a {what} of {size} characters, at most {most} are allowed"
                raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        table = {**self._table, namespace: {**self._table.get(namespace, {}), key: value}}
        if _entries(table) > ENTRIES_MAX or _bytes(table) > BYTES_MAX:
            table = {name: inner for name, inner in table.items() if inner}
        if _entries(table) > ENTRIES_MAX:
            remark = f"there are {ENTRIES_MAX} entries, no more are allowed: delete some"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        if (size := _bytes(table)) > BYTES_MAX:
            remark = f"with this one the entries have {size} bytes, at most {BYTES_MAX} are allowed: delete some"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        return table

    async def delete(self, namespace: str, key: str) -> None:
        """Delete an entry if it exists. Raises OSError when that cannot be written."""
        async with self._lock:
            if key in self._table.get(namespace, {}):
                left = {other: value for other, value in self._table[namespace].items() if other != key}
                await self._change({**self._table, namespace: left})

    async def _change(self, table: Table) -> None:
        if self.path is not None:
            await trio.to_thread.run_sync(JsonFile(self.path).save_table, {"configTable": table})
        self._table = table
