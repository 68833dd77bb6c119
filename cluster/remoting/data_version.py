"""The version of a table: name servers and slaves compare it to see whether they have the table already.

Source: DataVersion.java (RocketMQ 4.9.8). Equal means: same timestamp and same counter.
"""

from collections.abc import Mapping
from typing import Any, Self

from attrs import frozen


@frozen
class DataVersion:
    timestamp: int  # ms
    counter: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        return DataVersion(now_ms, self.counter + 1)

    def plain(self) -> dict[str, int]:
        return {"counter": self.counter, "timestamp": self.timestamp}

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        """Raises ValueError, TypeError when the numbers are none."""
        return cls(timestamp=int(value.get("timestamp", 0)), counter=int(value.get("counter", 0)))
