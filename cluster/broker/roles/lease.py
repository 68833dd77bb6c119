"""Lease rounds of a master: it asks its voters to renew its lease, and distributes the group's record with that.

each third of haLeaseMs, at a change, at the start of an epoch: 20004 to every voter, all at once
enough yes      the lease is held for haLeaseMs from when they were asked; without it no producer hears SEND_OK
newer votes     so many that a newer master may have been elected, or a voter that follows one: this master steps down
record          one change at a time; new members count once so many voters have the new version that the old one is harmless
"""

import math
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.group.group_view import counted_as
from twinlog.cluster.broker.roles.durable_state import RoleFileError
from twinlog.cluster.broker.roles.joining import JoinRequests
from twinlog.cluster.broker.roles.kept_record import EtcdRecord
from twinlog.cluster.broker.roles.member import Member
from twinlog.ha.config import AutoFailoverMode, HAConfig
from twinlog.ha.election.epochs import confirmed_in
from twinlog.ha.election.group_record import (
    counted,
    first_record,
    id_as_slave,
    in_force,
    is_committed,
    is_first,
    loss_free_below,
    moved,
    needed,
    remaining_pause,
    with_auto_failover,
    with_member,
    with_need,
    without,
)
from twinlog.ha.election.in_sync_set import Quorum, in_force_or_stricter, quorum_of, with_in_sync
from twinlog.ha.election.queue_locks import LockTable, confirmed_version, last_table
from twinlog.ha.election.voter import ALWAYS, LeaseReply, LeaseRequest, is_master
from twinlog.ha.errors import HAError
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochId
from twinlog.store.role_file import GroupMember, GroupRecord
from twinlog.store.util.wakeup import Wakeup

LOCKS_RECOVER_SECONDS_MAX = 1.0
PREPARE_SECONDS_MAX = 5.0  # For slaves to acknowledge what a new in-sync set has to hold. Then others may try.
log = structlog.get_logger(__name__)


def acks_needed(config: HAConfig, role: BrokerRole) -> int:
    """Number of members, the master included, that hold a message before its producer hears SEND_OK."""
    if role is BrokerRole.ASYNC_MASTER:
        return 1
    return max(config.min_in_sync_replicas if config.auto_in_sync_replicas else config.in_sync_replicas, 1)


def joined(record: GroupRecord | None, me: GroupMember, slave: GroupMember, need: int, role: BrokerRole) -> GroupRecord:
    """The record with a slave added, or as it is now; the same record if nothing changes.

    A new member is named by its address where a voter is of twinlog 0.2, which knows no other names.
    """
    me, slave = evolve(me, codes=me.codes[-1:]), evolve(slave, codes=slave.codes[-1:])
    if record is None:
        if not slave.codes:
            me = evolve(me, id=me.address)
        return first_record(evolve(me, broker_id=0), evolve(slave, broker_id=max(slave.broker_id, 1)), need, role)
    known = record.member(slave.id)
    if known is None and any(member.votes and not member.codes for member in record.members):
        slave = evolve(slave, id=slave.address)
        known = record.member(slave.id)
    taken = {member.broker_id for member in record.members if member.id != slave.id}
    if known is not None:
        slave = evolve(slave, broker_id=known.broker_id)  # A role change may have given it another than broker.conf.
    elif slave.broker_id < 1 or slave.broker_id in taken:
        slave = evolve(slave, broker_id=id_as_slave(record, slave.id))
    return with_member(record, slave)


@define(eq=False)
class SilentVoters:
    """Reports voters that do not answer their master for `seconds`. Nothing is decided by it; times are monotonic."""

    seconds: float
    _heard_at: dict[str, float] = field(factory=dict, init=False)  # Or when it was asked first.
    _silent: set[str] = field(factory=set, init=False)

    def heard(self, address: str, now: float) -> None:
        """Note an answer of a voter, whatever it is."""
        self._heard_at[address] = now
        if address in self._silent:
            self._silent.discard(address)
            log.info("voter answers again", peer=address)

    def check(self, others: Iterable[str], now: float) -> None:
        """Log once that a voter is silent. `others`: the voters that are asked now; none while this member is no master."""
        self._heard_at = {address: self._heard_at.get(address, now) for address in others}
        self._silent &= self._heard_at.keys()
        for address, at in self._heard_at.items():
            if now - at > self.seconds and address not in self._silent:
                self._silent.add(address)
                log.warning("voter does not answer", peer=address, seconds=round(now - at, 1))

    def silent(self, now: float) -> dict[str, float]:
        """Seconds since the last answer of each silent voter."""
        return {address: now - self._heard_at[address] for address in sorted(self._silent)}


@define(eq=False)
class LeaseRounds:
    """`answers`: each voter's last answer in this epoch, by its id, and when it was asked."""

    member: Member
    joining: JoinRequests
    outside: EtcdRecord
    answers: dict[str, tuple[float, LeaseReply]] = field(factory=dict, init=False)
    silence: SilentVoters = field(init=False)
    # A higher number of acknowledgements applies once this byte is confirmed.
    raise_at: int | None = field(default=None, init=False)
    # Where etcd keeps the record: the version that is written next. All that is acknowledged satisfies it by now, too.
    proposal: GroupRecord | None = field(default=None, init=False)
    _proposed_at: float = field(default=-math.inf, init=False)
    _not_before: float = field(default=-math.inf, init=False)  # After a proposal that was given up.
    _epoch: EpochId | None = field(default=None, init=False)
    _asking: set[str] = field(factory=set, init=False)
    _mistaken: set[tuple[str, str]] = field(factory=set, init=False)  # Addresses that another member has, logged once.
    _answered: trio.Event = field(factory=trio.Event, init=False)
    locks_heard: Wakeup = field(factory=Wakeup, init=False)  # A voter has taken locks.
    _locks_at: dict[str, int] = field(factory=dict, init=False)  # Version of the locks that a voter has.
    _locks_of: dict[str, LockTable] = field(factory=dict, init=False)  # What voters know, after a restart.
    _locks_unknown_since: float | None = field(default=None, init=False)
    _kept: trio.Event = field(init=False)  # Set while no step of the record is under way.

    def __attrs_post_init__(self) -> None:
        self.silence = SilentVoters(self.member.config.lease_ms / 1000)
        self._kept = trio.Event()
        self._kept.set()
        self.joining.recount = self._recount
        self.outside.on_change = self.ask_soon
        self.outside.heard_at = self._accepted_at

    async def run(self) -> None:
        """Ask until cancelled; no voter is asked while this member is not the master of its epoch."""
        async with trio.open_nursery() as nursery:
            while True:
                if self.leads:
                    self.begin_epoch()
                    for id in self.others - self._asking:
                        nursery.start_soon(self._ask, id)
                asked = self.others if self.leads and self.member.is_serving else ()
                self.silence.check(map(self.joining.address_of, asked), trio.current_time())
                if self._kept.is_set():
                    self._kept = trio.Event()
                    nursery.start_soon(self._keep, self._kept)
                with trio.move_on_after(self.member.config.lease_ms / 3000):  # The disk may hang; the rounds go on.
                    await self._kept.wait()
                self._renew()
                if self.leads and self.member.is_serving and (why := self.outside.expelled()):
                    await self.member.fence_older(why)
                self._recover_locks()
                with trio.move_on_after(self.member.config.lease_ms / 3000):
                    await self.joining.added.wait()

    async def _keep(self, kept: trio.Event) -> None:
        try:
            await self._keep_record()
        except (
            RoleFileError
        ):  # It was logged. Without room the record stays as it is; else this member serves no longer.
            if why := self.member.durable.failure:
                await self.member.fence_older(why)
        finally:
            kept.set()

    def ask_soon(self) -> None:
        """Start the next round at once: something changed for the voters."""
        self.joining.added.set()

    @property
    def leads(self) -> bool:
        """True if this member is, or was when it stopped, the master of the newest epoch that it knows."""
        state = self.member.durable.state
        return state is not None and state.group is not None and is_master(state, self.member.durable.entries)

    @property
    def others(self) -> frozenset[str]:
        """The other voters."""
        group = self.member.group
        return (group.voters if group is not None else frozenset()) - {self.member.own}

    @property
    def need(self) -> int:
        """Number of members that must hold a message, the master included."""
        state = self.member.durable.state
        role = state.role if state is not None else self.member.store.config.broker_role
        return acks_needed(self.member.config, role)

    @property
    def acknowledges_alone(self) -> bool:
        """True if no other member has to hold a message, nor had to by a version of the record that may be in force still."""
        state = self.member.durable.state
        known = (state.group, state.before) if state is not None else ()
        return max([self.need, *(record.acks_needed for record in known if record is not None)]) <= 1

    @property
    def quorum(self) -> Quorum | None:
        """The members that have to hold a message where etcd keeps the record, by all versions that may be in force.

        None: elsewhere, and on a slave, which may have versions of its own time as a master beside those of its master.
        """
        state = self.member.durable.state
        known = (state.before, state.group) if state is not None and self.leads else ()
        if not any(record.is_in_etcd for record in known if record is not None):
            return None
        return in_force_or_stricter(*known, self.proposal)

    @property
    def followers(self) -> frozenset[str]:
        """Ids of the voters that follow this epoch."""
        return frozenset(id for id, (_, answer) in self.answers.items() if answer.accepted)

    def why_copy(self) -> str:
        """Reason why this directory may not serve: a voter knows another process as this member. "" while none says so."""
        refused = ((id, answer.why) for id, (_, answer) in sorted(self.answers.items()) if answer.is_copy)
        return next((f"{self.member.address_of(id)} refuses it: {why}" for id, why in refused), "")

    def newer_promise(self) -> str:
        """The voter that promised a newer epoch, as text; "" when none reported one."""
        return next((self._promise_text(*each) for each in sorted(self._newer.items())), "")

    def outpromised(self) -> str:
        """The voter that can follow this epoch no more, as text: it has promised a newer one, or another of this number."""
        epoch = self.member.id.epoch
        lost = (each for each in sorted(self.answers.items()) if not each[1][1].accepted)
        lost = (each for each in lost if each[1][1].promised != self.member.id and each[1][1].promised.epoch >= epoch)
        return next((self._promise_text(id, answer) for id, (_, answer) in lost), "") or self._overtaken()

    def _accepted_at(self, id: str) -> float:
        """Time at which a voter was asked that accepted this master last."""
        answer = self.answers.get(id)
        return answer[0] if answer is not None and answer[1].accepted else -math.inf

    def _overtaken(self) -> str:
        group = self.member.group
        return self.outside.overtaken() if group is not None and group.is_in_etcd else ""

    @property
    def _newer(self) -> dict[str, LeaseReply]:
        """Answers of voters that promised a newer epoch."""
        epoch = self.member.id.epoch
        return {id: each for id, (_, each) in self.answers.items() if each.promised.epoch > epoch}

    def _promise_text(self, id: str, answer: LeaseReply) -> str:
        """The promise of a voter, as text."""
        address_of, promised = self.member.address_of, answer.promised
        return f"{address_of(id)} has promised epoch {promised.epoch} to {address_of(promised.winner)}"

    def quorum_at(self) -> float:
        """The time at which enough members that said yes were asked, so that the lease counts from it; -inf: too few."""
        quorum = self.quorum
        need = self.need if quorum is None else quorum.acks
        if need <= 1 or not self.others:
            return ALWAYS
        counted = self.answers.keys() if quorum is None else quorum.ids
        yes = [asked_at for id, (asked_at, answer) in self.answers.items() if answer.accepted and id in counted]
        if quorum is None:
            yes += [trio.current_time()] * self._non_voters()
        yes.sort(reverse=True)
        return yes[need - 2] if len(yes) >= need - 1 else -math.inf

    def _non_voters(self) -> int:
        """RocketMQ slaves of the group whose acknowledgements count now."""
        group = self.member.group
        ip_of = self.member.ip_of
        ips = [ip_of(m.ha_address) for m in group.members if not m.votes] if group is not None else []
        if not ips:
            return 0
        connections = self.member.ha.statistics().connections
        there = [ip_of(each.address) for each in connections if each.counted and not each.member]
        return sum(min(there.count(ip), ips.count(ip)) for ip in set(ips))

    def _note_locks(self, id: str, ask: LeaseRequest, answer: LeaseReply) -> None:
        """Note which locks a voter knows now. One of an earlier version of twinlog never does, and is told once what there is."""
        if ask.locks is not None and answer.accepted:
            has_all = answer.locks_version in (None, ask.locks.version)
            self._locks_at[id] = ask.locks.version if has_all else 0
            self.locks_heard.set()
            if ask.locks.version < self.member.locks.version:  # Others were given meanwhile, and wait to be told.
                self.ask_soon()
        if answer.locks is not None:
            self._locks_of[id] = answer.locks

    def _recover_locks(self) -> None:
        """After a restart, go on with the locks that voters know; after a while with those that were told until then."""
        locks, group = self.member.locks, self.member.group
        if locks.is_known or not self.member.is_serving or not self.leads or group is None:
            self._locks_unknown_since = None
            return
        if self._locks_unknown_since is None:
            self._locks_unknown_since = trio.current_time()
        table, is_whole = last_table(None, self._locks_of.values(), needed(group))
        if is_whole or trio.current_time() >= self._locks_unknown_since + LOCKS_RECOVER_SECONDS_MAX:
            locks.take_over(self.member.id, table, 0.0)

    def locks_confirmed(self) -> float:
        """The version of the locks that as many members know as have to hold a message."""
        if not self.leads:
            return math.inf
        state, quorum = self.member.state_or_first(), self.quorum
        need = max([self.need, *(record.acks_needed for record in (state.group, state.before) if record is not None)])
        others = self.others
        if quorum is not None:
            need, others = quorum.acks, quorum.ids - {self.member.own}
        held = [
            self._locks_at.get(id, 0)
            for id, (_, answer) in self.answers.items()
            if id in others and answer.accepted and answer.locks_version is not None
        ]
        return confirmed_version(held, need if others else 1, others=self._non_voters() if quorum is None else 0)

    async def wait_for_answers(self, heard: Collection[str], seconds: float) -> None:
        """Wait until each of these voters answered in this epoch, at most `seconds`; `heard`: those that answered before."""
        with trio.move_on_after(seconds):
            while not self.others & set(heard) <= set(self.answers):
                await self._answered.wait()

    # One round

    def begin_epoch(self) -> None:
        """Forget the answers of an older epoch."""
        if self._epoch != self.member.id:
            self._epoch = self.member.id
            self.answers.clear()
            self._locks_at.clear()
            self._locks_of.clear()
            self._propose(None)
            self.outside.to_write.set()
            if self.member.locks.is_known:
                self.member.locks.epoch = self.member.id

    async def _ask(self, id: str) -> None:
        member, asked_at, address = self.member, trio.current_time(), self.joining.address_of(id)
        group, transfer = member.group, member.ha.group_transfer
        assert group is not None
        pause = remaining_pause(group, member.now_ms())
        until = pause.until_ms if pause is not None else None
        ask = LeaseRequest(
            id=member.id,
            address=member.address,
            ha_address=member.described().ha_address,
            member_address=member.described().member_address,
            member=member.own,
            codes=member.durable.identity.register_codes,
            entries=member.durable.entries,
            max_offset=member.store.max_offset,
            confirmed_offset=confirmed_in(member.durable.entries, transfer.confirmed_offset, member.store.max_offset),
            group=group,
            boot_ms=member.boot_ms,
            pause_remaining_ms=until - member.now_ms() if until is not None else None,
            serves=member.phase != "fenced" and not member.durable.lacks_tail,
            locks=member.locks.table(since=self._locks_at.get(id, 0)),
            wants_locks=not member.locks.is_known,
            why_not=member.why if member.phase == "fenced" else "",
        )
        self._asking.add(id)
        try:
            answer = await member.calls.lease(address, ask, timeout_ms=member.config.lease_ms)
        except HAError:
            return
        finally:
            self._asking.discard(id)
        if answer.member not in ("", id):
            if (address, answer.member) not in self._mistaken:
                self._mistaken.add((address, answer.member))
                log.info("another member answers at this address", peer=address, expected=id, found=answer.member)
            # Members that moved are not known here yet. What they refuse holds at any address; a yes could be that of a copy.
            if answer.accepted or answer.member not in self.others:
                return
            id = answer.member
        self.silence.heard(self.joining.address_of(id), trio.current_time())
        if ask.id == member.id and self.leads:
            self.answers[id] = asked_at, answer
            self._answered.set()
            self._answered = trio.Event()
            self._note_locks(id, ask, answer)
            if self._has_more(answer) and not member.durable.lacks_tail:
                with suppress(RoleFileError):  # It was logged, and the start rules look at that.
                    await member.lose_tail(f"{address} has this epoch up to {answer.max_offset}")
            self._renew()
            await self._step_down()
            member.changed.set()
            if member.is_serving and self._is_in_force_now():  # Others keep no record: the rounds would never end.
                self.ask_soon()

    def _renew(self) -> None:
        """Renew the lease if enough voters said yes. Fewer acknowledgements suffice only once the record is in force."""
        group = self.member.group
        if not self.leads or group is None or not self.member.is_serving:
            return
        state, lease = self.member.durable.state, self.member.ha.lease
        known = (state.before or group) if state is not None else group
        is_new = self._first_is_new  # Nobody else can be elected, unless somebody accepts a loss.
        at = ALWAYS if is_new else self.quorum_at()
        suffices = is_new or self.quorum is not None or known.acks_needed <= self.need
        if not (suffices and at == ALWAYS) and lease.remaining(trio.current_time()) == math.inf:
            lease.give_up("the group has new voters, which were not asked yet")
        if suffices and at > -math.inf:
            lease.grant(at)
        self.member.ha.group_transfer.gate_opened()  # Producers that only waited for the lease are answered now.

    def _has_more(self, answer: LeaseReply) -> bool:
        """True if a follower's log ends in this epoch, behind ours: only this member writes in it, so it has lost a tail."""
        member = self.member
        return answer.accepted and answer.last.id == member.id and answer.max_offset > member.store.max_offset

    async def _step_down(self) -> None:
        """Step down if a newer master was, or may have been, elected, or another process goes on as this member."""
        member, group = self.member, self.member.group
        if not member.is_serving or group is None:
            return
        if why := self.why_copy():
            await member.fence_older(why)
            return
        newer = self._newer
        for id, answer in newer.items():
            same = sum(other.promised == answer.promised for other in newer.values())
            if answer.last.epoch > member.id.epoch or same >= needed(group):
                await member.fence_older(self._promise_text(id, answer))
                return

    # The record

    def counted_members(self) -> frozenset[str] | None:
        """Ids of members whose acknowledgements count; None: there is no record, all registered slaves count."""
        state = self.member.durable.state
        if state is None or state.group is None or self._first_is_new:
            return None
        if (quorum := self.quorum) is not None:
            # Who moved may be a copy, until etcd has its new address: then the member itself votes no more.
            return quorum.ids - self.joining.unproven - (moved(state.before, state.group) - {self.member.own})
        return counted(state.before, state.group, committed=state.before is None) - self.joining.unproven

    @property
    def _first_is_new(self) -> bool:
        """True until the first record is known to have reached its other member."""
        group = self.member.group
        return group is not None and is_first(group)

    @property
    def is_settled(self) -> bool:
        """True if the record is in force, so that it may be changed."""
        return not self._first_is_new and self.member.state_or_first().before is None

    def _is_in_force_now(self) -> bool:
        """True if a new version of the record has come into force."""
        state = self.member.durable.state
        if state is None or state.group is None or not (self._first_is_new or state.before):
            return False
        if state.before is not None and state.before.is_in_etcd:
            return self.outside.is_kept(state.group)
        versions = {id: answer.group_version for id, (_, answer) in self.answers.items() if answer.accepted}
        versions[self.member.own] = state.group.version
        return is_committed(state.before, versions, state.group)

    async def _keep_record(self) -> None:
        """Advance the record by one step: a version comes into force, or the next one is written."""
        member = self.member
        async with member.lock:
            if not member.is_serving or (member.durable.state is not None and not self.leads):
                return
            state = member.state_or_first()
            holds, group = self._is_in_force_now(), state.group
            if group is not None and (holds or self.is_settled):
                if (holds or group.loss_free_from is None) and not group.is_in_etcd:
                    self._count(group, {each.id for each in group.members} - self.joining.unproven)
                held = in_force(group)
                if not group.is_in_etcd:
                    held = loss_free_below(held, member.store.max_offset)  # From here on only members count.
                if held != group or state.before is not None:
                    await member.durable.save(evolve(state, before=None, group=held))
                    self._recount()
                    self.ask_soon()
                if holds and state.before is not None and state.before.in_sync != held.in_sync:
                    self.outside.note_change()
                if holds:
                    in_sync = [held.label(id) for id in held.in_sync] or None
                    log.info("group record in force", version=held.version, in_sync=in_sync)
            record = self._smaller_record() or (self._next_record() if self.is_settled else None)
            if member.group is not None and member.group.is_in_etcd:
                record = self._prepared(member.group, record)
            if record is not None:
                await self.write_record(record)

    def _prepared(self, group: GroupRecord, record: GroupRecord | None) -> GroupRecord | None:
        """A version for etcd, once all that was acknowledged satisfies it; until then acknowledgements have to satisfy both."""
        now = trio.current_time()
        if record is None or not self.is_settled:
            self._propose(None)
            return None
        if in_force_or_stricter(group, record) == quorum_of(group):
            self._propose(None)
            return record
        if self.proposal is None or quorum_of(self.proposal) != quorum_of(record):
            if now < self._not_before:
                return None
            self._propose(record)
            self.raise_at, self._proposed_at = self.member.store.max_offset, now
        if self.raise_at is not None and self._is_held(record, self.raise_at):
            return record
        if now >= self._proposed_at + PREPARE_SECONDS_MAX:
            log.warning(
                "the in-sync set does not change: what is stored was not acknowledged by it in time",
                version=record.version,
            )
            self._not_before = now + PREPARE_SECONDS_MAX
            self._propose(None)
        return None

    def _is_held(self, record: GroupRecord, end: int) -> bool:
        """True if all that was acknowledged, below `end`, satisfies a proposed version: as messages do now, or as all members
        of it have it.
        """
        held = {each.member: each.ack_offset for each in self.member.ha.statistics().connections if each.member}
        others = record.electors - {self.member.own}
        by_all = all(held.get(id, 0) >= end for id in others)
        return by_all or self.member.ha.group_transfer.confirmed_offset >= end

    def _propose(self, record: GroupRecord | None) -> None:
        """Let acknowledgements satisfy this version, too; None: no more."""
        if record != self.proposal:
            self.proposal = record
            self._recount()

    def _smaller_record(self) -> GroupRecord | None:
        """The record without a member that haMembers does not name, even while another version waits, maybe for that member."""
        group = self.member.group
        if group is None or self._first_is_new or not self._listed:
            return None
        if group.is_in_etcd and not self.is_settled:
            return None
        for member in group.members:
            if not self._is_listed(member) and not (group.is_in_etcd and member.id in group.in_sync):
                log.warning("member removed from the group: haMembers does not name it", peer=member.address)
                return without(group, member.id)
        return None

    def _is_listed(self, member: GroupMember) -> bool:
        """True if haMembers names it, by its address or id."""
        return not self._listed.isdisjoint((member.address, member.id))

    @property
    def _listed(self) -> frozenset[str]:
        """The members that haMembers names; none: every follower becomes a member."""
        named = self.member.config.named_members
        return named | {self.member.own} if named else named

    def _count(self, record: GroupRecord, ids: AbstractSet[str]) -> None:
        """Count the acknowledgements of these members of a version, and of no other slave."""
        others = (each for each in record.members if each.id in ids - {self.member.own})
        self.member.ha.members_changed(sorted(counted_as(each, self.member.ip_of) for each in others))

    def _recount(self) -> None:
        """Count nobody any more whose acknowledgements must not."""
        ids, group, quorum = self.counted_members(), self.member.group, self.quorum
        transfer = self.member.ha.group_transfer
        with transfer.together():
            transfer.require(None if quorum is None else quorum.acks)
            if ids is None or group is None:
                self.member.ha.connection_admission.recount()
            else:
                self._count(group, ids)

    def _next_record(self) -> GroupRecord | None:
        member, group = self.member, self.member.group
        for id, slave in list(self.joining.pending.items()):
            if group is None and not slave.votes:  # A group begins with a voter.
                continue
            del self.joining.pending[id]
            if self._listed and not self._is_listed(slave):
                continue
            record = joined(group, member.me(), slave, self.need, member.store.config.broker_role)
            if record is not group:
                self._log_joined(group, slave)
                return record
        if group is None:
            return None
        me = member.me()
        own = joined(group, me, me, self.need, group.master_role)
        if (
            own is group
            and group.auto_failover is None
            and self.member.config.auto_failover is AutoFailoverMode.members
        ):
            return with_auto_failover(group, "members")
        if group.is_in_etcd:
            return self._in_etcd(group) or (own if own is not group else None)
        return self._with_other_need(group) or (own if own is not group else None)

    def _in_etcd(self, group: GroupRecord) -> GroupRecord | None:
        """The next version of a record that etcd keeps: another in-sync set, or another number of acknowledgements."""
        if self.need != group.acks_needed:
            return with_need(group, self.need)
        if self._overtaken():
            return None
        unlisted = frozenset(each.id for each in group.members if self._listed and not self._is_listed(each))
        change = self.outside.next_set(group, unlisted)
        if change.kind == "stay":
            return None
        if self.proposal is None and not self.outside.why:
            log.info("the in-sync set is to change", how=change.kind, why=change.why, version=group.version + 1)
        return with_in_sync(group, change.in_sync)

    def _log_joined(self, group: GroupRecord | None, slave: GroupMember) -> None:
        known = group.member(slave.id) if group is not None else None
        if known is None:
            log.info("member joins the group", peer=slave.address, member_id=slave.id, votes=slave.votes)
        elif (known.address, known.member_address) != (slave.address, slave.member_address):
            to = {"for_members": slave.member_address} if slave.member_address else {}
            log.info("member moved", peer=slave.address, was=known.address, member_id=slave.id, **to)

    def _with_other_need(self, group: GroupRecord) -> GroupRecord | None:
        """The record with another number of acknowledgements: a lower one at once, a higher one when all of the log has it."""
        need = self.need
        if need <= group.acks_needed:
            self.raise_at = None
            return with_need(group, need) if need < group.acks_needed else None
        self.raise_at = self.member.store.max_offset if self.raise_at is None else self.raise_at
        return with_need(group, need) if self.member.ha.group_transfer.confirmed_offset >= self.raise_at else None

    async def write_record(self, record: GroupRecord) -> None:
        """Save a new version, and send it to the voters. Holding `lock`. Raises RoleFileError."""
        state = self.member.state_or_first()
        assert state.group is None or record.version > state.group.version, "a version of the record falls"
        await self.member.take_place(record)
        await self.member.durable.save(evolve(state, group=record, before=state.group))
        self.proposal = None
        self._recount()  # With a record only its members count.
        self.outside.to_write.set()
        self.ask_soon()
