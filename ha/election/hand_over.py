"""Decides whether a master that cannot store hands over. No I/O; times are monotonic seconds.

Its process lives, and its followers hear it, so they would never elect another one: a full or failing disk, or a sync that hangs,
would keep producers out until a person looks. It stops serving, by its own word, and they elect as after its death. Safety is not
decided here: whoever is elected wins votes as always.
"""

import math
from collections.abc import Sequence

from attrs import define, field, frozen

from twinlog.ha.election.election import AUTOMATIC
from twinlog.ha.election.hearing import look_seconds
from twinlog.store.role_file import AutoFailover

WAIT_SECONDS = 30.0  # For another master; then it serves what it can.
AGAIN_SECONDS = 300.0  # Between two attempts.
ABLE_SECONDS = 2.0  # A disk that takes a write now and then is not in order.


@define(eq=False)
class StoreHealth:
    """Since when a member could store nothing. `look` is called a few times a second; a look counts LOOK_SECONDS_MAX at most, so
    that a process that stood still does not take that for its disk.
    """

    why_refused: str = field(default="", init=False)  # By the last look.
    refused_seconds: float = field(default=0.0, init=False)
    sync_seconds: float = field(default=0.0, init=False)  # Of the present sync.
    able_seconds: float = field(default=math.inf, init=False)
    _sync_since: float | None = field(default=None, init=False)
    _looked_at: float | None = field(default=None, init=False)

    def look(self, now: float, refused: str, sync_since: float | None) -> None:
        """`refused`: why the store takes no messages, "" when it does. `sync_since`: start of the sync that is under way."""
        step = look_seconds(now, self._looked_at)
        self._looked_at = now
        is_same = sync_since is not None and sync_since == self._sync_since
        self.sync_seconds = self.sync_seconds + step if is_same else 0.0
        self._sync_since = sync_since
        if refused:
            self.refused_seconds += step if self.why_refused or self.refused_seconds else 0.0
            self.able_seconds = 0.0
        else:
            self.able_seconds = 0.0 if self.sync_seconds >= ABLE_SECONDS else self.able_seconds + step
            if self.able_seconds >= ABLE_SECONDS:
                self.refused_seconds = 0.0
        self.why_refused = refused

    def why_unable(self, seconds: float) -> str:
        """Reason why it has stored nothing for so long; "" where it has."""
        if self.why_refused and self.refused_seconds >= seconds:
            return self.why_refused
        return self.why_hanging(seconds)

    def why_hanging(self, seconds: float) -> str:
        """Likewise, if it is for a sync of its disk that does not return."""
        return f"a sync of its disk hangs for {self.sync_seconds:.0f} s" if self.sync_seconds >= seconds else ""

    @property
    def is_able(self) -> bool:
        """True once it could store for a while."""
        return self.able_seconds >= ABLE_SECONDS


@frozen(kw_only=True)
class Follower:
    """A voter that answers and follows this master, and lacks nothing that it ever acknowledged. `held`: what it acknowledged."""

    can_store: bool
    held: int


@frozen(kw_only=True)
class HandOverFacts:
    """`unable`: why the master could store nothing for autoFailoverAfterMs. `needed`: votes that elect."""

    mode: AutoFailover
    unable: str
    paused: str
    needed: int
    confirmed: int
    followers: Sequence[Follower]
    tried_seconds: float = math.inf  # Since it handed over last, and nobody took over.


def why_stays(facts: HandOverFacts) -> str:
    """Reason why a master that cannot store goes on as it is; "": it hands over."""
    if not facts.unable:
        return "it can store"
    if facts.mode not in AUTOMATIC:
        return f"autoFailover={facts.mode}: a person decides"
    if facts.paused:
        return facts.paused
    if facts.tried_seconds < AGAIN_SECONDS:
        return "nobody took over when it handed over last"
    able = [each.held for each in facts.followers if each.can_store]
    if len(able) < facts.needed:
        return f"only {len(able)} of its followers could store, and {facts.needed} have to vote"
    if max(able) < max(facts.confirmed, *(each.held for each in facts.followers)):
        return "no follower that could store holds all that is acknowledged"
    return ""
