"""Tickets: who is at the other end of an HA connection.

The classic stream carries no name. A twinlog slave that asks its master for its history on the remoting port, where it says who
it is, gets a ticket, and sends it as the first eight bytes of its HA connection: so the master knows the member whatever address
the connection comes from, behind address translation and proxies, too. A ticket is good for one connection, and for some seconds.
Where the group has a secret, the slave sends what only it and its master can make of the ticket, see
cluster/remoting/member_auth.py: whoever reads the answer to its question cannot take its place.
"""

import secrets
from collections.abc import Callable

import trio
from attrs import define, field, frozen

from twinlog.ha.wire.protocol import TICKET_MAX

TICKET_SECONDS = 20.0
TICKETS_MAX = 256


@frozen
class Holder:
    """The holder of a ticket: a member's id, and the id of the secret that it proved this with, if any."""

    member: str = ""
    proof: str = ""


NOBODY = Holder()


@define(eq=False)
class Tickets:
    """The tickets that were given and not used yet."""

    _given: dict[int, tuple[Holder, float]] = field(factory=dict, init=False)  # With the end of validity, oldest first.

    def give(self, holder: Holder, shown: Callable[[int], int] = lambda ticket: ticket) -> int:
        """A ticket for the next HA connection of a member. `shown`: what that member makes of it, and sends there."""
        ticket = TICKET_MAX - secrets.randbits(62)
        self._given[shown(ticket)] = holder, trio.current_time() + TICKET_SECONDS
        if len(self._given) > TICKETS_MAX:
            del self._given[next(iter(self._given))]
        return ticket

    def holder_of(self, ticket: int) -> Holder:
        """The member that has this ticket; NOBODY: not any more, or never."""
        holder, until = self._given.get(ticket, (NOBODY, 0.0))
        return holder if trio.current_time() < until else NOBODY

    def take(self, ticket: int) -> Holder:
        """The same, once."""
        holder = self.holder_of(ticket)
        self._given.pop(ticket, None)
        return holder
