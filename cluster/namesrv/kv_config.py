"""Small settings that administrators leave at a name server, by namespace. Each name server has its own.

The file is `{"configTable":{namespace:{key:value}}}`, as with RocketMQ. Source: KVConfigManager.java (RocketMQ 4.9.8).
"""

from collections.abc import Mapping
from pathlib import Path

import trio
from attrs import define, field

from cluster.broker.json_file import JsonFile
from cluster.remoting.codes import ResponseCode
from cluster.remoting.errors import RequestError

NAME_LENGTH_MAX, VALUE_LENGTH_MAX, ENTRIES_MAX = 1_024, 65_536, 10_000  # Ours; RocketMQ has no bounds.

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"  # topic -> "broker-a:4;broker-b:4"

Table = dict[str, dict[str, str]]


@define(eq=False)
class KVConfigManager:
    """The table, and its file unless `path` is None. A change is on the disk before anybody sees it; what cannot be
    written is not changed.
    """

    path: Path | None = None
    _table: Table = field(factory=dict, init=False)
    _lock: trio.Lock = field(factory=trio.Lock, init=False)  # One change after the other: each builds on the last.

    def load(self) -> None:
        """Read the file, or where that is broken the one before, if there is one. Raises OSError, or ValueError that names it."""
        if self.path is None:
            return
        try:
            JsonFile(self.path).load_into(self._take)
        except ValueError as error:
            raise ValueError(f"{self.path} is no KV configuration: {error}") from None

    def _take(self, value: Mapping[str, object]) -> None:
        table = value.get("configTable")
        if not isinstance(table, dict) or not all(isinstance(inner, dict) for inner in table.values()):
            raise ValueError("configTable is no object of objects")
        self._table = {str(name): {str(k): str(v) for k, v in inner.items()} for name, inner in table.items()}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All of one namespace; None when nothing was ever put there."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Raises RequestError for what is too long, or one too many; OSError."""
        self._check_size(namespace, key, value)
        async with self._lock:
            await self._change({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    def _check_size(self, namespace: str, key: str, value: str) -> None:
        for what, size, most in (
            ("namespace", len(namespace), NAME_LENGTH_MAX),
            ("key", len(key), NAME_LENGTH_MAX),
            ("value", len(value), VALUE_LENGTH_MAX),
        ):
            if size > most:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR, f"a {what} of {size} characters, at most {most} are taken"
                )
        if self.get(namespace, key) is None and sum(map(len, self._table.values())) >= ENTRIES_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"there are {ENTRIES_MAX} entries, no more are taken: delete some"
            )

    async def delete(self, namespace: str, key: str) -> None:
        """No error when it is not there. Raises OSError."""
        async with self._lock:
            if key in self._table.get(namespace, {}):
                left = {other: value for other, value in self._table[namespace].items() if other != key}
                await self._change({**self._table, namespace: left})

    async def _change(self, table: Table) -> None:
        if self.path is not None:
            await trio.to_thread.run_sync(JsonFile(self.path).save_table, {"configTable": table})
        self._table = table
