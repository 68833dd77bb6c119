"""Small settings that administrators leave at a name server, by namespace. Each name server has its own.

The file is `{"configTable":{namespace:{key:value}}}`. Source: KVConfigManager.java (RocketMQ 4.9.8).
"""

import os
from collections.abc import Mapping
from pathlib import Path

from attrs import define, field

from cluster.remoting import fastjson

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"  # topic -> "broker-a:4;broker-b:4"


@define(eq=False)
class KVConfigManager:
    """The table, and its file unless `path` is None. What cannot be written is not changed."""

    path: Path | None = None
    _table: dict[str, dict[str, str]] = field(factory=dict, init=False)

    def load(self) -> None:
        """Read the file if there is one. Raises OSError, or ValueError that names the file."""
        if self.path is None or not self.path.exists():
            return
        try:
            table = fastjson.loads(self.path.read_bytes())["configTable"]
            self._table = {str(name): {str(k): str(v) for k, v in inner.items()} for name, inner in table.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{self.path} is no KV configuration: {error}") from None

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All of one namespace; None when nothing was ever put there."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Raises OSError."""
        self._change({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    def delete(self, namespace: str, key: str) -> None:
        """No error when it is not there. Raises OSError."""
        if key in self._table.get(namespace, {}):
            left = {other: value for other, value in self._table[namespace].items() if other != key}
            self._change({**self._table, namespace: left})

    def _change(self, table: dict[str, dict[str, str]]) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            scratch = self.path.with_name(self.path.name + ".tmp")
            scratch.write_text(fastjson.pretty({"configTable": table}))
            os.replace(scratch, self.path)
        self._table = table
