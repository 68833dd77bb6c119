"""Members that want to join the group: they wait here until the master's next version of the record names them.

A twinlog slave asks by itself, when it asks the master for its history. A RocketMQ slave asks nothing: name servers name it. It
acknowledges as well as any, and cannot vote: it counts among the members, not among the voters.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog
from attrs import define, evolve, field

from twinlog.cluster.broker.roles.member import Member, place_of
from twinlog.cluster.remoting.names import HA_PORT_DISTANCE, shifted
from twinlog.cluster.remoting.route import MASTER_ID
from twinlog.ha.election.group_record import unproven_asker
from twinlog.ha.election.voter import LeaseRequest
from twinlog.ha.errors import HAPeerError
from twinlog.store.epoch_file import EpochId
from twinlog.store.member_file import is_successor
from twinlog.store.role_file import GroupMember
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

UNREGISTERED_MAX = 64


@define(eq=False)
class JoinRequests:
    """`recount`: one counts no more."""

    member: Member
    added: Wakeup  # Wakes the lease rounds.
    addresses: Mapping[int, str] | None = field(default=None, init=False)  # Registered, by id; None: not known yet.
    recount: Callable[[], None] = field(default=lambda: None, init=False)
    _epoch: EpochId | None = field(default=None, init=False)  # In which these were asked for:
    _pending: dict[str, GroupMember] = field(factory=dict, init=False)
    _asked: dict[str, GroupMember] = field(factory=dict, init=False)  # By id: how each member of the record asked last.
    _unregistered: dict[str, GroupMember] = field(factory=dict, init=False)
    _reported: set[tuple[str, str]] = field(factory=set, init=False)
    _wakeup: Wakeup = field(factory=Wakeup, init=False)

    @property
    def pending(self) -> dict[str, GroupMember]:
        """By id, those that the master has to add to the record, or to change in it. Who asked in an older epoch may be gone."""
        if self._epoch != self.member.id:
            self._epoch = self.member.id
            self._pending.clear()
            self._asked.clear()
        return self._pending

    def ask(self, asker: GroupMember) -> None:
        """A twinlog slave follows this member, and is registered."""
        group = self.member.group
        if asker.id == self.member.own or asker.address == self.member.address or not self.member.is_serving:
            return
        if group is not None and group.member(asker.id) is None and place_of(group, asker) is not None:
            return  # It asks again, as the member whose place it takes.
        known = group.member(asker.id) if group is not None else None
        if known is not None and not is_successor(asker.codes, known.code):
            return  # A later start was seen since it asked.
        self.pending[asker.id] = asker
        if known is not None:
            self._asked[asker.id] = asker
            if asker.id in self.unproven:  # Before it has a connection: what it acknowledges is not the member's yet.
                self.recount()
        self.added.set()

    @property
    def unproven(self) -> frozenset[str]:
        """Members that ask from where the record does not have them, and that others have to hear of before they count."""
        group = self.member.group
        asked = self._asked.items() if group is not None and self._epoch == self.member.id else ()
        return frozenset(id for id, asker in asked if group is not None and unproven_asker(group, asker))

    def address_of(self, id: str) -> str:
        """The address of a member: the one that it asks from, before the record has it."""
        asker = self.pending.get(id)
        return asker.address if asker is not None else self.member.address_of(id)

    def rival(self, ask: LeaseRequest) -> GroupMember | None:
        """The other master that asks for a lease, if the record has it at another address: whoever follows nobody tells its new
        address to nobody else.
        """
        group = self.member.group
        known = group.member(ask.member) if group is not None and self.member.is_serving else None
        if known is None or ask.member == self.member.own or ask.address == known.address:
            return None
        return evolve(
            known,
            address=ask.address,
            ha_address=ask.ha_address,
            member_address=ask.member_address,
            codes=ask.codes,
        )

    async def why_not(self, asker: GroupMember) -> str:
        """Reason why a directory may not take part under its id: another one does. "" when it may."""
        group, own = self.member.group, self.member.me()
        if asker.id == own.id:
            return _is_a_copy(asker, own)
        known = group.member(asker.id) if group is not None else None
        if known is None or not self.member.is_serving or known.code in ("", asker.code):
            return ""
        if not is_successor(asker.codes, known.code):
            return _is_a_copy(asker, known)
        if asker.address != known.address:
            with suppress(HAPeerError):
                found = await self.member.calls.history(known.address)
                if found is not None and found.member == asker.id and found.codes[-1:] != asker.codes[-1:]:
                    return _is_a_copy(asker, known)
        return ""

    def ask_unregistered(self, asker: GroupMember) -> None:
        """The same from a slave that is not known to be registered yet. It asks only once, as soon as it has registered: it joins
        when a name server names it, too.
        """
        self._unregistered.pop(asker.address, None)
        self._unregistered[asker.address] = asker
        if len(self._unregistered) > UNREGISTERED_MAX:  # Anybody may ask.
            del self._unregistered[next(iter(self._unregistered))]

    def ask_from_other_ip(self, asker: GroupMember, ip: str) -> None:
        """The same from an IP that the slave does not announce, so that it does not join: log it once. Anybody may ask."""
        if (asker.address, ip) not in self._reported and len(self._reported) < UNREGISTERED_MAX:
            self._reported.add((asker.address, ip))
            log.warning(
                "slave does not join the group: it comes from an IP that it does not announce",
                peer=asker.address,
                announced_ha=asker.ha_address,
                comes_from=ip,
            )

    def registered(self, addresses: Mapping[int, str]) -> None:
        """Take the remoting addresses, by id, that a name server knows under our name."""
        self.addresses = dict(addresses)
        for address in self._unregistered.keys() & set(addresses.values()):
            self.ask(self._unregistered.pop(address))
        if self._unknown:
            self._wakeup.set()

    @property
    def _unknown(self) -> dict[str, int]:
        """Registered slaves that the record does not name."""
        group = self.member.group
        if group is None or not self.member.is_serving or self.addresses is None:
            return {}
        known = {member.address for member in group.members} | {self.member.address}
        return {
            address: broker_id
            for broker_id, address in self.addresses.items()
            if broker_id != MASTER_ID and address not in known
        }

    async def run(self) -> None:
        """Find RocketMQ slaves among the registered ones, until cancelled."""
        while True:
            await self._wakeup.wait()
            for address, broker_id in self._unknown.items():
                await self._check(address, broker_id)

    async def _check(self, address: str, broker_id: int) -> None:
        ha_address = shifted(address, HA_PORT_DISTANCE)
        try:
            if not ha_address or await self.member.calls.history(address) is not None:
                return  # A twinlog member: it asks by itself.
        except HAPeerError:
            return  # The name server names it again.
        slave = GroupMember(address=address, ha_address=ha_address, broker_id=broker_id, name=address, votes=False)
        self.pending[slave.id] = slave
        self.added.set()


def _is_a_copy(asker: GroupMember, known: GroupMember) -> str:
    return (
        f"{asker.address} has the id {asker.id}, as {known.label}, which takes part: its directory is a copy of that one. "
        "Next: stop it; to let its directory take part as a new member: twinlog log new-member DIR"
    )
