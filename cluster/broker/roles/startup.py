"""Start rules, which a member follows by itself: a former master finds out whether it still is one, others find their master.

was master   asks its voters with its old epoch. A newer promised epoch: it steps down. Enough say yes: it serves. Too few
             answer: after haLeaseMs it serves nevertheless, without a lease, if no other id 0 is known
lost a tail  of an epoch that it wrote: it never writes there again, but asks to be elected again. A master that acknowledges
             alone begins a new epoch by itself: no other can have been elected. Unless the tail was on the disk: then files are
             gone, and slaves must not lose the same
slave        follows the master of the epoch that it promised, or of a newer one
wiped        an empty directory of a member that the record names: hears every other voter first
"""

from collections.abc import Awaitable, Callable, Iterable

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.roles.durable_state import RoleFileError
from twinlog.cluster.broker.roles.joining import JoinRequests
from twinlog.cluster.broker.roles.lease import LeaseRounds
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.voter import Voter
from twinlog.cluster.remoting.route import MASTER_ID
from twinlog.ha.election.epochs import with_entry
from twinlog.ha.election.group_record import with_ids_swapped, won_at
from twinlog.ha.election.voter import followed
from twinlog.ha.errors import HAIdentityError, HAPeerError
from twinlog.ha.peer import PeerHistory
from twinlog.store.config import BrokerRole, FlushDiskType
from twinlog.store.epoch_file import EpochEntry, EpochId
from twinlog.store.errors import StoreError
from twinlog.store.member_file import is_successor

log = structlog.get_logger(__name__)

CHECK_SECONDS, SEEK_SECONDS = 0.25, 1.0


@define(eq=False)
class StartRules:
    """`elect_again` starts a role change of kind restart; `is_changing`: a role change runs here, and goes first. `hands_over`:
    this member waits for another master, and must not serve itself.
    """

    member: Member
    voter: Voter
    leases: LeaseRounds
    joining: JoinRequests
    has_name_servers: bool
    elect_again: Callable[[], Awaitable[None]] = field(default=trio.lowlevel.checkpoint, init=False)
    is_changing: bool = field(default=False, init=False)
    hands_over: Callable[[], bool] = field(default=lambda: False, init=False)
    is_refused: bool = field(default=False, init=False)  # Another process takes part under this member's id.
    gone: set[str] = field(factory=set, init=False)  # Ids of voters that an operator has declared gone for good.
    _starting_since: float | None = field(default=None, init=False)
    _heard: dict[str, EpochId] = field(factory=dict, init=False)  # Promised epochs of the others, for a wiped member.
    _sought_at: float = field(default=float("-inf"), init=False)
    _asked_registered_at: float = field(default=float("-inf"), init=False)
    _registered: PeerHistory | None = field(default=None, init=False)  # Answer of the registered master then.
    _has_withdrawn: bool = field(default=False, init=False)  # For that, from name servers.

    async def run(self) -> None:
        """Apply the rules until cancelled."""
        while True:
            if not self.is_changing:
                try:
                    await self._step()
                    if self.is_refused and not self._has_withdrawn:
                        await self.member.effects.withdraw()
                    self._has_withdrawn = self.is_refused
                except (RoleFileError, StoreError, OSError, HAPeerError) as error:
                    log.warning("role not assumed yet; retrying", why=str(error))
                    await trio.sleep(SEEK_SECONDS)
            master = self.member.master if self.member.phase == "following" else None
            self.voter.silence.check(master.address if master is not None else None, trio.current_time())
            with trio.move_on_after(CHECK_SECONDS):
                await self.member.changed.wait()

    async def hear_group(self, registered: Callable[[], Awaitable[str | None]]) -> None:
        """Before a master without files serves: its directory may have been wiped, and another member, whose id it would take,
        have been chosen since. `registered` asks name servers for the group's master. If that one has this member in its record,
        this is no master. Else, or without an answer, broker.conf holds, as with RocketMQ.
        """
        member = self.member
        if member.durable.state is not None or not member.is_serving:
            return
        address = await registered()
        if address is None or address == member.address:
            return
        try:
            found = await member.calls.history(address)
        except HAPeerError as error:
            log.warning("another member is registered as master, and does not answer", peer=address, why=str(error))
            return
        async with member.lock:
            if found is not None and (why := member.must_hear_others(found.group)):
                await member.fence(why)

    async def _step(self) -> None:
        member = self.member
        if member.durable.failure:
            if member.phase != "fenced":
                async with member.lock:
                    await member.fence(member.durable.failure)
            return
        if member.phase in ("serving", "holding"):
            return
        if member.master is None and self.hands_over():
            return
        if member.master is not None:
            if member.phase != "following":
                await self.follow(member.master)
            elif member.ha.client.state != "streaming":
                await self._seek()  # It may have stepped down, and its successor need not know of this member.
        elif member.durable.state is None:
            if member.wiped_record is not None:
                await self._hear_others()
        elif self.leases.leads and (why := self.leases.why_copy()):
            self._refused(why)
            await self._seek()
        elif self.leases.leads and not self.is_refused:
            if not await self._follows_where_others_moved():
                await self._try_to_serve()
        else:
            await self._seek()

    async def follow(self, master: PeerHistory) -> None:
        """Become its slave, durably, then in memory. Raises RoleFileError, StoreError."""
        member = self.member
        async with member.lock:
            state = member.state_or_first()
            if master.id != state.promised and master.id.epoch <= state.promised.epoch:
                return
            if member.is_serving or not member.store.config.is_slave:
                await member.fence(f"{master.address} is master of epoch {master.id.epoch}")
            if state.role is not BrokerRole.SLAVE or master.id != state.promised:
                await member.take_place(master.group)
                state = followed(state, master.id, master.group, member.own)
                await member.durable.save(state)
            if self.voter.has_resigned_for(master):
                member.ha.client.hand_over(master)
            await member.effects.serve_as_slave(state, master)
            member.master = master
            member.become("following", f"{master.address} is master of epoch {master.id.epoch}")

    async def _seek(self) -> None:
        """Ask the members of the group which of them is master. A request for a lease may arrive first."""
        member = self.member
        if member.group is None or not self._begin_search():
            return
        before, self.is_refused = member.master, self.leases.leads and self.leases.why_copy() != ""
        for address in self._and_registered(map(member.address_of, self.leases.others)):
            found = await self._unless_a_master_speaks(address)
            if member.master is not before:
                return
            if found is None or found.role is BrokerRole.SLAVE or member.phase in ("serving", "holding"):
                continue
            if (found.id == member.promised() and before is None) or found.id.epoch > member.promised().epoch:
                await self.follow(found)
                return

    def _and_registered(self, known: Iterable[str]) -> list[str]:
        """Addresses of others: these, and those that are registered, where a member that has moved is found."""
        return sorted({*known, *(self.joining.addresses or {}).values()} - {self.member.address})

    async def _unless_a_master_speaks(self, address: str) -> PeerHistory | None:
        """A member's history; None as soon as a master asks for its lease: a dead machine takes long not to answer, and a newly
        elected master cannot wait for that.
        """
        member = self.member
        found, before = None, member.master

        async def ask() -> None:
            nonlocal found
            try:
                found = await member.calls.history(address, member.me())
            except HAIdentityError as error:
                self._refused(str(error))
            except HAPeerError as error:
                log.debug("member does not answer", peer=address, why=str(error))
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while member.master is before:
                await member.changed.wait()
            nursery.cancel_scope.cancel()
        member.changed.set()  # This waited for it, and run() has to check it.
        return found

    def _refused(self, why: str) -> None:
        """Another process takes part as this member: it is said once, in the words of the first that says so."""
        member = self.member
        if not self.is_refused:
            self.is_refused = True
            member.become("fenced" if member.phase == "starting" else member.phase, member.durable.starts_lost or why)

    # A master that starts

    async def _follows_where_others_moved(self) -> bool:
        """Ask the registered master, if it is at an address that the record does not have: it cannot ask this member if that has
        moved, too. True if it is followed now.
        """
        member, now = self.member, trio.current_time()
        address = (self.joining.addresses or {}).get(MASTER_ID)
        known = {member.address, *map(member.address_of, self.leases.others)}
        if address is None or address in known or now < self._asked_registered_at + SEEK_SECONDS:
            return False
        self._asked_registered_at = now
        self._registered = found = await self._unless_a_master_speaks(address)
        is_master = member.master is None and found is not None and found.role is not BrokerRole.SLAVE
        if is_master and found is not None and found.id.epoch > member.promised().epoch:
            await self.follow(found)
        return member.master is not None or self.is_refused

    async def _try_to_serve(self) -> None:
        member, leases, now = self.member, self.leases, trio.current_time()
        self._starting_since = now if self._starting_since is None else self._starting_since
        waited = now >= self._starting_since + member.config.lease_ms / 1000
        if newer := leases.newer_promise() or leases.outside.expelled():
            member.become("fenced", newer)
            await self._seek()
            return
        if member.durable.lacks_tail and (not leases.acknowledges_alone or (member.store.lost_bytes and leases.others)):
            await self._want_election(waited)
            return
        quorum = leases.quorum
        need = leases.need if quorum is None else quorum.acks
        asked = need > 1 and leases.quorum_at() > float("-inf") and leases.others
        if not asked and not (leases.others <= leases.followers or waited):
            member.become("starting", "asks the others whether another master was elected")
            return
        if not asked and (why := await self._why_not_alone()):
            member.become("starting", why)
            return
        await self._serve()

    async def _want_election(self, waited: bool) -> None:
        """It may lack what it sent: it may not write there again, but in a new epoch behind it, if it wins one."""
        if paused := self.member.paused():
            self.member.become("fenced", f"its log may lack bytes that others have, and {paused}")
        elif (waited or self.leases.others <= self.leases.followers) and self._begin_search():
            await self.elect_again()

    def _begin_search(self) -> bool:
        """Note that a search begins now; False: the last one began less than SEEK_SECONDS ago."""
        now = trio.current_time()
        if now < self._sought_at + SEEK_SECONDS:
            return False
        self._sought_at = now
        return True

    async def _why_not_alone(self) -> str:
        """Reason why a master without a lease does not serve yet; "" when no other member can be master."""
        if self.joining.addresses is None:
            return "no name server has said yet who is id 0" if self.has_name_servers else ""
        address = self.joining.addresses.get(MASTER_ID)
        if address is None or address == self.member.address:
            return ""
        found = self._registered  # It was asked in this round, or a moment ago.
        if found is None or found.address != address or trio.current_time() >= self._asked_registered_at + SEEK_SECONDS:
            try:
                found = await self.member.calls.history(address)
            except HAPeerError as error:
                return f"{address} is registered as id 0 and does not answer: {error}"
        if found is None:
            return f"{address} is registered as id 0, a RocketMQ broker"
        return "" if found.role is BrokerRole.SLAVE else f"{address} serves as id 0"

    async def _serve(self) -> None:
        member, group = self.member, self.member.group
        known = (each.address for each in (group.members if group is not None else ()))
        await member.effects.pull_offsets(tuple(self._and_registered(known)))
        async with member.lock:
            newer = self.leases.newer_promise() or self.leases.outside.expelled()
            if not self.leases.leads or newer or member.phase in ("serving", "holding"):
                return
            state = member.state_or_first()
            alone = self.leases.acknowledges_alone  # No other member had to hold what it lost: its log is the group's.
            if member.durable.lacks_tail and not alone:  # Its lease reported that meanwhile.
                return
            if member.durable.lacks_tail and self.leases.others:
                await _begin_epoch(member)
                state = member.state_or_first()
            await member.durable.save(evolve(state, broker_id=MASTER_ID, whole=state.whole or alone))
            if member.store.lost_bytes and not self.leases.others:  # No other member can have them.
                member.store.accept_end()
            await member.effects.serve_as_master(member.state_or_first())
            self._starting_since = None
            member.become("serving")
            self.leases.ask_soon()

    # A member whose directory was wiped

    async def _hear_others(self) -> None:
        """Its promised epoch is lost: the greatest of all others becomes its own, once all have answered."""
        member, record = self.member, self.member.wiped_record
        assert record is not None
        if not self._begin_search():
            return
        named = member.named_in(record)
        assert named is not None
        voters = record.voters - {named.id} - self.gone
        anew: set[str] = set()  # Addresses where a directory answers that the record does not name.
        for address in self._and_registered(map(record.address_of, voters)):
            try:
                found = await member.calls.history(address)
            except HAPeerError as error:
                log.debug("member does not answer", peer=address, why=str(error))
                continue
            voter = record.member(found.member) if found is not None else None
            if found is None or voter is None or voter.id not in voters:
                if found is not None and voter is None:
                    anew.add(address)
                continue
            if is_successor(found.codes, voter.code):
                self._heard[voter.id] = max(found.promised, found.id)
        silent = [record.address_of(id) for id in sorted(voters - self._heard.keys())]
        if silent:
            why = f"its files were wiped, and it has to hear {', '.join(silent)} before it follows"
            if new := sorted(anew.intersection(silent)):
                name = member.me().name or member.address
                why += f"; at {', '.join(new)} other files are now. If those are gone, too, next: twinlog reinit {name}"
            member.become("waiting", why)
            return
        async with member.lock:
            state = member.state_or_first()
            promised = max([state.promised, *self._heard.values()])
            await member.take_place(record)
            await member.durable.save(
                evolve(state, promised=promised, role=BrokerRole.SLAVE, group=record, whole=False)
            )
            member.wiped_record = None
            member.become("waiting", "knows no master yet")


async def _begin_epoch(member: Member) -> None:
    """A new epoch of the master that had the last one, where its log ends now: its machine died, and slaves may hold a tail that
    it lost. Holding `lock`. Raises RoleFileError.

    Only where nobody else had to hold what was acknowledged: then nobody is elected without this member's promise, but by force,
    and such a winner leaves numbers free (RoleChange). A crash between the two saves leaves the entry, which is a promise itself.
    """
    state, durable, end = member.state_or_first(), member.durable, member.store.max_offset
    assert state.group is not None
    entry = EpochEntry(
        epoch=max(state.promised.epoch, durable.last.epoch) + 1,
        winner=member.own,
        winner_label=member.me().label,
        start_offset=end,
        at_ms=member.now_ms(),
        kind="restart",
        reason="its machine died, or its disk failed",
        old=member.own,
        lost_bytes=0 if member.store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH else None,
    )
    await durable.save_entries(with_entry(durable.entries, entry))
    durable.lacks_tail = False
    record = won_at(with_ids_swapped(state.group, member.own, entry.epoch), end)
    await durable.save(evolve(state, promised=entry.id, group=record, before=state.group, whole=True))
    log.warning(
        "what slaves have behind the end of this log is given up, and kept in twinlog/divergent: its machine or disk failed",
        epoch=entry.epoch,
        max_offset=end,
    )
