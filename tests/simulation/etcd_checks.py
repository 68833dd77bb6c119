"""What must hold where etcd keeps the group's record. What is in force is what the model of etcd holds, and not what members say.

S1  what is acknowledged is held by n of the in-sync set, by each version that may be in force: the one in etcd, and each that is
    on its way there
S2  a version that comes into force is satisfied by all that was acknowledged before
S3  the record in etcd never falls
S4  nobody wins who is not in the in-sync set in etcd, or has not begun its epoch there
S5  nobody stops because etcd is away: a master that n of the set follow acknowledges
S6  where the own vote alone elects, nobody begins while the master's sign is in etcd
"""

from typing import TYPE_CHECKING

import trio
from attrs import define, field

from tests.simulation.ledger import Violation
from twinlog.ha.election.in_sync_set import floor_of, quorum_of
from twinlog.store.epoch_file import EpochEntry
from twinlog.store.role_file import GroupRecord

if TYPE_CHECKING:
    from tests.simulation.role_ledger import Line, RoleMessage
    from tests.simulation.role_world import RoleWorld
    from tests.simulation.roles import RoleMember

CLEAR_SECONDS = 4.0  # Who is well for so long follows without trouble,
GOOD_SECONDS = 5.0  # and after so long with enough of them a master acknowledges,
STALLED_SECONDS = 8.0  # and what was stored is confirmed.
SIGN_SECONDS = 8.0  # A master tells etcd each 1.25 s that it serves; a question takes 5 at most.


@define(eq=False)
class InEtcd:
    """All that a check needs to know of what was before."""

    world: "RoleWorld"
    was_in_force: bool = False  # The record was handed to etcd, and some member knows that.
    writes: int = 0
    _known: dict[str, set[str]] = field(factory=dict)  # Ids, by member.
    _good_since: dict[str, float] = field(factory=dict)
    _confirmed: dict[str, tuple[float, int]] = field(factory=dict)  # Since when this is so, of whom.

    @property
    def record(self) -> GroupRecord | None:
        """The version that is in force, if etcd keeps the record; None: the members do."""
        etcd = self.world.etcd
        if etcd is None or etcd.model.record is None or not etcd.model.record.is_in_etcd:
            return None
        record = etcd.model.record
        if not self.was_in_force:
            self.was_in_force = any(self._knows(member, record) for member in self.world.role_members)
        return record if self.was_in_force else None

    @staticmethod
    def _knows(member: "RoleMember", record: GroupRecord) -> bool:
        state = member.durable_role()
        if state is None or state.group is None or not state.group.is_in_etcd:
            return False
        floor = floor_of(state.before or state.group)
        return floor.is_in_etcd and floor.version <= record.version

    def governs(self, member: "RoleMember") -> bool:
        """Whether a master's acknowledgements have to be by the version in etcd; not if somebody accepted a loss without etcd."""
        record, state = self.record, member.durable_role()
        if record is None or state is None or state.group is None:
            return False
        return state.group.is_in_etcd or state.group.epoch <= record.epoch

    def versions_for(self, member: "RoleMember") -> list[GroupRecord]:
        """Each version that may be in force, for a master of its epoch."""
        etcd, epoch = self.world.etcd, member.durable_epochs()[-1].epoch
        assert etcd is not None
        known = [each for each in etcd.model.versions if each.epoch <= epoch]
        coming = [
            call.swap
            for call in etcd.under_way
            if call.swap is not None and call.before is not None and call.before.revision == etcd.model.revision
        ]
        return [*known[-1:], *(each for each in coming if each.epoch <= epoch)]

    def holders(self, record: GroupRecord, line: "Line", end: int, master: "RoleMember") -> list[str]:
        """Who of the members by which a version acknowledges held a line up to an offset."""
        found = []
        for member in self.world.role_members:
            table = member.log.durable if member.config.ack_flushed and member is not master else member.log.held
            if self._ids(member) & quorum_of(record).ids and table.get(line, 0) >= end:
                found.append(member.name)
        return found

    def _ids(self, member: "RoleMember") -> set[str]:
        """All that it had: a member that was wiped has another one for a while."""
        known = self._known.setdefault(member.name, set())
        known.add(member.identity)
        return known

    def names(self, record: GroupRecord) -> list[str]:
        """Of those in the in-sync set."""
        known = {member.identity: member.name for member in self.world.role_members}
        return [known.get(id, id) for id in sorted(quorum_of(record).ids)]

    # At each acknowledgement

    def acknowledged(self, member: "RoleMember", message: "RoleMessage") -> None:
        """Raises Violation (S1)."""
        for record in self.versions_for(member):
            held = self.holders(record, message.line, message.end, member)
            if len(held) < quorum_of(record).acks:
                raise Violation(
                    f"S1: message {message.number} up to {message.end} is acknowledged by {member.name}, and held by {held}: "
                    f"{quorum_of(record).acks} of {self.names(record)} have to, by version {record.version}"
                )

    def confirmed(self, member: "RoleMember", line: "Line", offset: int) -> None:
        """What a master calls confirmed. Raises Violation (S1)."""
        offset = min(offset, len(line.data))  # It calls everything confirmed where it acknowledges alone.
        for record in self.versions_for(member):
            held = self.holders(record, line, offset, member)
            if len(held) < quorum_of(record).acks:
                raise Violation(
                    f"S1: {member.name} calls {offset} of {line} confirmed, which {held} held: {quorum_of(record).acks} of "
                    f"{self.names(record)} have to, by version {record.version}"
                )

    # At each swap

    def written(self, record: GroupRecord) -> None:
        """A version is in etcd from now on."""
        self.writes += 1
        etcd = self.world.etcd
        assert etcd is not None
        self.world.trace(
            f"etcd has version {record.version} of epoch {record.epoch}: {record.auto_failover} {self.names(record)} "
            f"{record.candidate and 'begun'}"
        )
        before = etcd.model.versions[-2] if len(etcd.model.versions) > 1 else None
        if before is not None and (record.epoch, record.version) <= (before.epoch, before.version):
            self.world.violated(
                f"S3: the record in etcd falls from version {before.version} of epoch {before.epoch} to {record.version} of "
                f"{record.epoch}"
            )
        if not record.is_in_etcd:
            self.world.guard(lambda: self._satisfied(record))
            self.was_in_force = False
        elif self.record is not None:
            self.world.guard(lambda: self._satisfied(record))

    def _satisfied(self, record: GroupRecord) -> None:
        """Raises Violation (S2)."""
        if record.candidate and len(record.in_sync) == 1:
            return  # Somebody accepted a loss, maybe: S4, and what the winner has, tell.
        last: dict[Line, RoleMessage] = {}
        for message in self.world.book.waiting:
            if message.end <= (record.loss_free_from or 0):
                continue  # Others than members acknowledged it: nobody is elected who lacks that.
            if message.line not in last or last[message.line].end < message.end:
                last[message.line] = message
        now = self.world.book.lines.lines[-1]
        for line, message in last.items():
            by = self.world.member(message.by)
            held = set(self.holders(record, line, message.end, by))
            for other in self.world.book.lines.lines:
                if other is not line and message.is_in(other):
                    held |= set(self.holders(record, other, message.end, by))
            if len(held) < quorum_of(record).acks:
                raise Violation(
                    f"S2: version {record.version} comes into force with {self.names(record)}, and message {message.number} up "
                    f"to {message.end} of {line}, which was acknowledged, is held by {sorted(held)} (now {now})"
                )

    # When one has won

    def won(self, member: "RoleMember", entry: EpochEntry) -> None:
        """An epoch begins. Raises Violation (S4)."""
        etcd = self.world.etcd
        if etcd is None or not self.governs(member) or entry.kind == "forced":
            return
        begun = [
            each
            for each in etcd.model.versions
            if each.epoch == entry.epoch and each.candidate in ("", entry.winner) and each.is_in_etcd
        ]
        if not begun:
            raise Violation(f"S4: {member.name} has won epoch {entry.epoch}, and has not begun it in etcd")
        if entry.winner not in begun[0].in_sync:
            raise Violation(
                f"S4: {member.name} has won epoch {entry.epoch}, and the in-sync set is {self.names(begun[0])}"
            )

    def begins(self, member: "RoleMember", serving: dict[str, float]) -> None:
        """It begins by itself. Raises Violation (S6)."""
        record, etcd = self.record, self.world.etcd
        if record is None or etcd is None or len(record.electors) - record.acks_in_force + 1 > 1:
            return
        for name, since in serving.items():
            other, now = self.world.member(name), trio.current_time()
            tells = other.held is None and since < now - SIGN_SECONDS and other.stands_since < now - 2 * SIGN_SECONDS
            if other is not member and tells and etcd.is_clear(other, SIGN_SECONDS):
                raise Violation(f"S6: {member.name} elects, and {name} tells etcd that it serves")

    # Every half second

    def look(self) -> None:
        """Raises Violation (S5)."""
        now = trio.current_time()
        for member in self.world.role_members:
            if self.record is None or not self._is_good(member):
                self._good_since.pop(member.name, None)
                continue
            since = self._good_since.setdefault(member.name, now)
            transfer = member.ha.group_transfer if member.ha is not None else None
            if transfer is None or now < since + GOOD_SECONDS:
                self._confirmed.pop(member.name, None)
                continue
            if (why := transfer.gate(now)) is not None:
                raise Violation(
                    f"S5: {member.name}, which {self._followers(member)} follow, acknowledges nothing: {why}"
                )
            stalled = transfer.confirmed_offset if transfer.waiting else -1
            known = self._confirmed.get(member.name)
            if known is None or known[1] != stalled or stalled < 0:
                self._confirmed[member.name] = now, stalled
            elif now > known[0] + STALLED_SECONDS:
                raise Violation(
                    f"S5: {member.name}, which {self._followers(member)} follow, confirms nothing from {stalled}"
                )

    def fenced(self, member: "RoleMember", why: str) -> None:
        """It stops. Raises Violation (S5)."""
        since = self._good_since.get(member.name)
        is_long = since is not None and trio.current_time() >= since + GOOD_SECONDS
        if self.record is not None and is_long and self._is_good(member):
            raise Violation(f"S5: {member.name}, which {self._followers(member)} follow, stops: {why}")

    def _is_good(self, member: "RoleMember") -> bool:
        """Whether this master is well, and so many of each version that may be in force follow it that it can acknowledge."""
        state, world = member.durable_role(), self.world
        if not member.up or not member.writable or state is None or state.group is None or member.held is not None:
            return False
        own = member.durable_epochs()[-1].id
        states = [each.durable_role() for each in world.role_members]
        if any(each is not None and each.promised.epoch > own.epoch for each in states):
            return False
        followers = self._followers(member)
        known = [*self.versions_for(member), state.group, *([state.before] if state.before is not None else [])]
        return all(len(set(followers) & set(self.names(each))) >= quorum_of(each).acks for each in known)

    def _followers(self, master: "RoleMember") -> list[str]:
        """Itself, and who follows it with nothing in the way."""
        now, found = trio.current_time(), []
        for member in self.world.role_members:
            is_well = member.up and member.held is None and member.slow_until < now - CLEAR_SECONDS
            has_stood = member.stood_still > 0 and member.stands_since > now - 5 * CLEAR_SECONDS
            is_long = member.changed_at < now - CLEAR_SECONDS and not has_stood
            if not is_well or not is_long or member.ha is None:
                continue
            client = member.ha.client
            follows = client.state == "streaming" and client.master_address == master.address
            is_clear = self.world.network.clear_since(member.ip, master.ip) < now - CLEAR_SECONDS
            if member is master or (follows and is_clear and self._is_known(member, master)):
                found.append(member.name)
        return found

    @staticmethod
    def _is_known(member: "RoleMember", master: "RoleMember") -> bool:
        """Whether a master's record has it where it is: who moved may be a copy, until etcd has its new address."""
        state = master.durable_role()
        known = [each for each in (state.group, state.before) if each is not None] if state is not None else []
        return all(each.address_of(member.identity) == member.broker_address for each in known)

    # At the end

    def missing(self) -> list[str]:
        """Who is to come into the in-sync set yet."""
        record, masters = self.record, [each for each in self.world.role_members if each.up and each.writable]
        if record is None or not all(self.governs(each) for each in masters):
            return []
        return [member.name for member in self.world.role_members if member.identity not in record.in_sync]
