"""Who of the group was not heard for as long as a lease lasts, told once: of voters by their master, of a master by its slaves.

Nothing is decided by that. One slave of several that is cut off costs nobody anything, and its stream ends only when the network
says so, or after haHousekeepingInterval; people would rather know at once.
"""

from collections.abc import Iterable

import structlog
from attrs import define, field

log = structlog.get_logger(__name__)


@define(eq=False)
class SilentVoters:
    """Of a master. Told of each answer, and asked with every round; times in seconds, monotonic."""

    seconds: float
    _heard_at: dict[str, float] = field(factory=dict, init=False)  # Or when it was asked first.
    _silent: set[str] = field(factory=set, init=False)

    def heard(self, address: str, now: float) -> None:
        """It answered what it was asked, whatever it said."""
        self._heard_at[address] = now
        if address in self._silent:
            self._silent.discard(address)
            log.info("a member answers again", peer=address)

    def look(self, others: Iterable[str], now: float) -> None:
        """`others`: who is asked now; nobody while this member is no master."""
        self._heard_at = {address: self._heard_at.get(address, now) for address in others}
        self._silent &= self._heard_at.keys()
        for address, at in self._heard_at.items():
            if now - at > self.seconds and address not in self._silent:
                self._silent.add(address)
                log.warning("a member does not answer its master", peer=address, seconds=round(now - at, 1))

    def silent(self, now: float) -> dict[str, float]:
        """Seconds since each of them was heard."""
        return {address: now - self._heard_at[address] for address in sorted(self._silent)}


@define(eq=False)
class SilentMaster:
    """Of a slave that is in the group's record, and so is asked again and again."""

    seconds: float
    _heard_at: float | None = field(default=None, init=False)
    is_silent: bool = field(default=False, init=False)

    def heard(self, address: str, now: float) -> None:
        """A master that is followed asked for the lease."""
        if self.is_silent:
            log.info("the master is heard again", peer=address)
        self._heard_at, self.is_silent = now, False

    def look(self, address: str | None, now: float) -> None:
        """`address`: of the master that is followed; None: nobody is."""
        if address is None or self._heard_at is None:
            self._heard_at, self.is_silent = None, False
        elif now - self._heard_at > self.seconds and not self.is_silent:
            self.is_silent = True
            log.warning("the master is not heard", peer=address, seconds=round(now - self._heard_at, 1))
