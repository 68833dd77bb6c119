"""What all connections together make this process keep: answers that are not read, halves of frames, requests under way.

Each connection has limits of its own; this is for many that stay below them. Whoever makes it keep most is cut first.
"""

from typing import Protocol

import structlog
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
