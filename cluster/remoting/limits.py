"""Limits on what peers can make this process keep or write: memory of all connections together, and log lines.

Each connection has limits of its own. The budget is for many connections that stay below them: the one that uses most memory
(unread responses, partial frames, requests under way) is closed first.
"""

from typing import Protocol

import structlog
import trio
from attrs import define, field

log = structlog.get_logger()


class Holder(Protocol):
    """A connection, as the budget sees it."""

    kept_bytes: int
    remote_address: str

    def close(self) -> None:
        """End the connection. The budget forgets it afterwards."""


@define(eq=False)
class Budget:
    """Memory that all connections together may use: `bytes_max`."""

    bytes_max: int
    kept_bytes: int = field(default=0, init=False)
    _holders: dict[Holder, None] = field(factory=dict, init=False)  # Connections that use any; a set in order.

    def change(self, holder: Holder, by: int) -> None:
        """Add to the memory that a connection uses. Closes the largest users while it is too much, perhaps this one."""
        holder.kept_bytes += by
        self.kept_bytes += by
        assert 0 <= holder.kept_bytes <= self.kept_bytes, (holder.kept_bytes, self.kept_bytes)
        if holder.kept_bytes > 0:
            self._holders[holder] = None
        else:
            self._holders.pop(holder, None)
        while self.kept_bytes > self.bytes_max and self._holders:
            self._cut(max(self._holders, key=lambda each: each.kept_bytes))

    def forget(self, holder: Holder) -> None:
        """Release all memory of a connection that has ended."""
        self.kept_bytes -= holder.kept_bytes
        assert self.kept_bytes >= 0, self.kept_bytes
        holder.kept_bytes = 0
        self._holders.pop(holder, None)

    def _cut(self, holder: Holder) -> None:
        log.warning(
            "connection closed: all connections together use too much memory, and this one uses most",
            peer=holder.remote_address,
            bytes=holder.kept_bytes,
            all_bytes=self.kept_bytes,
            serverBytesMax=self.bytes_max,
        )
        holder.close()
        self.forget(holder)


@define
class LogLimit:
    """One log line for each key in `seconds`, so that peers cannot fill the log.

    At `keys_max` keys all are forgotten: a line too many does no harm.
    """

    seconds: float = 60.0
    keys_max: int = 1000
    _lines: dict[str, tuple[float, int]] = field(
        factory=dict, init=False
    )  # Time of the last, and number left out since.

    def due(self, key: str = "") -> int | None:
        """Number of lines that were left out since the last one; None: it is too early for another."""
        now = trio.current_time()
        at, left_out = self._lines.get(key, (float("-inf"), 0))
        if now < at + self.seconds:
            self._lines[key] = at, left_out + 1
            return None
        if len(self._lines) >= self.keys_max:
            self._lines.clear()
        self._lines[key] = now, 0
        return left_out
