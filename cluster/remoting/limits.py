"""Limits on what peers can make this process keep or write: memory of all connections together, and log lines."""

from typing import Protocol

import structlog
import trio
from attrs import define, field

log = structlog.get_logger()


class Holder(Protocol):
    """A connection, as far as the budget knows it."""

    kept_bytes: int
    remote_address: str

    def close(self) -> None:
        """End it; what it made us keep is given back before."""


@define(eq=False)
class Budget:
    """`bytes_max`: of all together."""

    bytes_max: int
    kept_bytes: int = field(default=0, init=False)
    _holders: dict[Holder, None] = field(factory=dict, init=False)  # Those who make it keep anything.

    def change(self, holder: Holder, by: int) -> None:
        """This one makes us keep so much more, or less. Closes the greediest while it is too much, maybe this one."""
        holder.kept_bytes += by
        self.kept_bytes += by
        if holder.kept_bytes > 0:
            self._holders[holder] = None
        else:
            self._holders.pop(holder, None)
        while self.kept_bytes > self.bytes_max and self._holders:
            self._cut(max(self._holders, key=lambda each: each.kept_bytes))

    def has_room(self, size: int) -> bool:
        """Whether so much more may be kept."""
        return self.kept_bytes + size <= self.bytes_max

    def forget(self, holder: Holder) -> None:
        """It has gone, and nothing is kept for it any more."""
        self.kept_bytes -= holder.kept_bytes
        holder.kept_bytes = 0
        self._holders.pop(holder, None)

    def _cut(self, holder: Holder) -> None:
        log.warning(
            "connection closed: all connections together keep too much, and this one most",
            peer=holder.remote_address,
            bytes=holder.kept_bytes,
            all_bytes=self.kept_bytes,
            serverBytesMax=self.bytes_max,
        )
        holder.close()
        self.forget(holder)


@define
class LogLimit:
    """One line for each key in so many seconds. Of more than `keys_max` all are forgotten: a line too many is no harm."""

    seconds: float = 60.0
    keys_max: int = 1000
    _told: dict[str, tuple[float, int]] = field(factory=dict, init=False)  # When, and how many times not since then.

    def due(self, key: str = "") -> int | None:
        """How many were left out since the last line; None: it is too early for another."""
        now = trio.current_time()
        at, left_out = self._told.get(key, (float("-inf"), 0))
        if now < at + self.seconds:
            self._told[key] = at, left_out + 1
            return None
        if len(self._told) >= self.keys_max:
            self._told.clear()
        self._told[key] = now, 0
        return left_out
