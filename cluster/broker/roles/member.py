"""A member of a group: who it is, what it uses, its durable role state, and its phase.

    phase       meaning                                                       next phases
    serving     master                                                        holding, fenced, waiting
    holding     master in a write pause of a switchover                       serving, fenced
    starting    was master, and asks whether it still is                      serving, fenced, following
    fenced      has promised an epoch whose master it does not know           serving, starting, following, waiting
    waiting     slave without a known master, or one that has to hear others  serving, starting, fenced, following
    following   slave of a known master                                       fenced

Every decision is saved in this order: streams of older epochs end, the decision is on the disk, the answer leaves. `lock` is held
meanwhile, so that decisions never overlap.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import structlog
import trio
from attrs import define, evolve, field

from twinlog.cluster.broker.peers.ha_peer import RemotingCalls
from twinlog.cluster.broker.roles.durable_state import DurableRoleState
from twinlog.cluster.broker.roles.effects import BrokerRoleEffects
from twinlog.cluster.broker.tables.queue_locks import RebalanceLockManager
from twinlog.cluster.remoting.names import ip_of
from twinlog.ha.config import HAConfig
from twinlog.ha.election.epochs import in_memory_end
from twinlog.ha.election.group_record import is_newer, remaining_pause
from twinlog.ha.election.hand_over import StoreHealth
from twinlog.ha.election.voter import followed, is_master
from twinlog.ha.errors import HAPeerError
from twinlog.ha.peer import PeerHistory
from twinlog.ha.service import HAService
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import EpochEntry, EpochId
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import GroupMember, GroupRecord, RoleState
from twinlog.store.util.wakeup import Wakeup

log = structlog.get_logger(__name__)

LOST = "lost"  # No machine's boot id: the next start, too, knows that a tail is gone.

Phase = Literal["serving", "starting", "holding", "fenced", "following", "waiting"]

TRANSITIONS: Mapping[Phase, frozenset[Phase]] = {
    "serving": frozenset({"holding", "fenced", "waiting"}),
    "holding": frozenset({"serving", "fenced"}),
    "starting": frozenset({"serving", "fenced", "following"}),
    "fenced": frozenset({"serving", "starting", "following", "waiting"}),
    "waiting": frozenset({"serving", "starting", "fenced", "following"}),
    "following": frozenset({"fenced"}),
}


def pause_text(group: GroupRecord | None, now_ms: int) -> str:
    """Reason why nothing may change in this group now; "" when it may."""
    pause = remaining_pause(group, now_ms)
    if pause is None:
        return ""
    ends = "until somebody resumes it"
    if pause.until_ms is not None:
        ends = f"for {(pause.until_ms - now_ms + 999) // 1000} s more"
    return f"the group is paused {ends}" + (f": {pause.reason}" if pause.reason else "")


def place_of(group: GroupRecord, newcomer: GroupMember) -> GroupMember | None:
    """The member whose place a directory without a role takes: at its address, and of its name where names are known."""
    at_its_address = (member for member in group.members if member.votes and member.address == newcomer.address)
    return next(
        (member for member in at_its_address if newcomer.name == member.name or member.id == member.address), None
    )


@define(eq=False, kw_only=True)
class Member:
    """Is the OwnRole of ha/peer.py. `described`: this member at its present address, with broker.conf's id, and without its own.
    `side`: ROOT/twinlog. `group_name`, `cluster`: brokerName and brokerClusterName.
    """

    side: Path
    described: Callable[[], GroupMember]
    store: MessageStore
    ha: HAService
    calls: RemotingCalls
    effects: BrokerRoleEffects
    config: HAConfig
    now_ms: Callable[[], int]
    boot_id: Callable[[], str]
    boot_ms: int = 0
    shown_offset: Callable[[], int] = lambda: 0  # Consumers were shown everything below.
    group_name: str = ""
    cluster: str = ""
    ip_of: Callable[[str], str] = ip_of  # Of HOST:PORT; the name, while its IP is not known.
    locks: RebalanceLockManager = field(factory=lambda: RebalanceLockManager(trio.current_time))
    durable: DurableRoleState = field(init=False)
    phase: Phase = field(default="serving", init=False)
    why: str = field(default="", init=False)
    lock: trio.Lock = field(factory=trio.Lock, init=False)
    changed: Wakeup = field(factory=Wakeup, init=False)  # Wakes the start rules.
    health: StoreHealth = field(factory=StoreHealth, init=False)  # Of its disk.
    master: PeerHistory | None = field(default=None, init=False)  # The master that is followed, as last reported.
    clock_ahead_ms: int = field(default=0, init=False)  # Our clock, of that of the master that reported a pause last.
    joins: bool = field(default=False, init=False)  # New to the group: a record without this member was seen.
    # A record that names this member, although its own files do not know of it: they were wiped.
    wiped_record: GroupRecord | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.durable = DurableRoleState(
            self.side, self.boot_id, self.described, self.now_ms, self.shown_offset, self.group_name, self.cluster
        )
        self.ha.use_role(self)

    def load(self) -> RoleState | None:
        """Load the durable state before the store is made; None: the role is broker.conf's. With a state, whatever its role, the
        member starts as a slave without a master, and `effects` change that later. Raises StoreDirectoryError.
        """
        durable = self.durable
        durable.load()
        state = durable.state
        if state is None:
            self.phase = "waiting" if self.store.config.broker_role is BrokerRole.SLAVE else "serving"
            return None
        self.ha.lease.give_up("this member starts")
        self.locks.forget()
        was_master = is_master(state, durable.entries)
        if not state.clean and state.boot_id != self.boot_id():
            durable.lacks_tail = was_master
            state = evolve(state, whole=state.whole and self._acknowledged_is_on_disk(state.role))
        if durable.has_moved:  # Or it is a copy of another member's directory, which may have acknowledged more since.
            log.warning("address changed", was=state.address, address=self.address, member_id=self.own)
            state = evolve(state, whole=state.whole and was_master)
        if self.store.lost_bytes:  # Whatever is synchronous: it was on the disk, and others may have it still.
            durable.lacks_tail = was_master
            state = evolve(state, whole=False)
        durable.begin(state)
        self.phase, self.why = ("starting", "asks the others") if was_master else ("waiting", "knows no master yet")
        if not was_master and state.promised.epoch > durable.last.epoch:
            self.phase = "fenced"
            promised = f"epoch {state.promised.epoch} to {self.address_of(state.promised.winner)}"
            self.why = f"it has promised {promised}, and knows no master of it"
        return state

    def _acknowledged_is_on_disk(self, role: BrokerRole) -> bool:
        """True if a machine that dies loses nothing that this member acknowledged, in this role or in the other one before."""
        end = in_memory_end(
            self.durable.entries,
            self.own,
            self.durable.promised,
            is_slave=role is BrokerRole.SLAVE,
            as_master=self.store.config.flush_disk_type.value == "SYNC_FLUSH",
            as_slave=self.config.ack_mode.value == "flushed",
        )
        return self.store.max_offset >= end

    # Identity and state

    def me(self) -> GroupMember:
        """This member, at its present address, with broker.conf's broker id."""
        identity = self.durable.identity
        return evolve(self.described(), id=identity.id, codes=identity.register_codes)

    @property
    def own(self) -> str:
        """This member's id."""
        return self.durable.identity.id

    @property
    def address(self) -> str:
        """Its remoting address now."""
        return self.described().address

    def address_of(self, id: str) -> str:
        """The address of a member, as far as it is known; an id that is an address is its own."""
        if self.master is not None and self.master.member == id:
            return self.master.address
        if id == self.own:
            return self.address
        return self.group.address_of(id) if self.group is not None else id

    @property
    def id(self) -> EpochId:
        """The epoch that it serves, as a master."""
        return self.durable.last.id

    @property
    def group(self) -> GroupRecord | None:
        """The group's record, as far as this member knows it."""
        return self.durable.state.group if self.durable.state is not None else None

    @property
    def is_serving(self) -> bool:
        """True while it is master."""
        return self.phase in ("serving", "holding") and self.store.config.broker_role is not BrokerRole.SLAVE

    def state_or_first(self) -> RoleState:
        """The durable state, or the one that a member begins with."""
        if self.durable.state is not None:
            return self.durable.state
        role, broker_id = self.store.config.broker_role, self.described().broker_id
        return RoleState(role=role, broker_id=broker_id, promised=self.id, group=None)

    def role_state(self) -> RoleState | None:
        """The durable state; None: it never was in a group whose roles change."""
        return self.durable.state

    def epochs(self) -> tuple[EpochEntry, ...]:
        """The history of its log."""
        return self.durable.entries

    def promised(self) -> EpochId:
        """The promised epoch: masters of older ones are neither served nor followed."""
        return self.durable.promised

    def status(self) -> tuple[str, str]:
        """Its phase, and the reason where one is needed."""
        if self.durable.state is None and self.wiped_record is None:
            return ("following" if self.store.config.broker_role is BrokerRole.SLAVE else "serving"), ""
        return self.phase, self.durable.failure or self.why

    def group_ms(self) -> int:
        """The wall clock of the master, by which a pause ends, as far as it was reported."""
        return self.now_ms() - (0 if self.is_serving else self.clock_ahead_ms)

    def paused(self) -> str:
        """Reason why nothing may change; "" when it may."""
        return pause_text(self.group, self.group_ms())

    def own_history(self) -> PeerHistory:
        """This log's history, as it is reported to others."""
        return PeerHistory(
            id=self.id,
            entries=self.durable.entries,
            promised=self.durable.promised,
            role=self.store.config.broker_role if self.is_serving else BrokerRole.SLAVE,
            group=self.group,
            min_offset=self.store.commit_log.min_offset,
            max_offset=self.store.max_offset,
            boot_ms=self.boot_ms,
            address=self.address,
            ha_address=self.described().ha_address,
            member_address=self.described().member_address,
            member=self.own,
            codes=self.durable.identity.register_codes,
            whole=self.durable.state is None or self.durable.state.whole,
            only_tls=self.config.tls,
        )

    @property
    def why_unable(self) -> str:
        """Reason why it could take no messages, as a master; "" when it could."""
        return self.store.why_not_writable or self._why_hanging

    @property
    def why_no_candidate(self) -> str:
        """Likewise, for a group without a master: there a disk above its warning level is better than none."""
        return self.store.flags.why_not_appendable or self._why_hanging

    @property
    def _why_hanging(self) -> str:
        return self.health.why_hanging(self.config.auto_failover_after_ms / 1000)

    # Phases

    def become(self, phase: Phase, why: str = "") -> None:
        """Enter a phase, and log it once."""
        if (phase, why) != (self.phase, self.why):
            assert phase == self.phase or phase in TRANSITIONS[self.phase], f"{self.phase} -> {phase}"
            log.info("role changed", state=phase, was=self.phase, why=why or None)
            self.phase, self.why = phase, why
            self.changed.set()

    async def fence(self, why: str) -> None:
        """Return once nothing of an older epoch is served, followed or acknowledged any more. Holding `lock`."""
        self.become("fenced", why)
        self.ha.lease.give_up(why)
        self.master = None
        await self.effects.fence(why)
        await self.ha.leave_master()

    async def fence_older(self, why: str) -> None:
        """Stop serving, as a newer master may exist. Nothing is promised by that."""
        async with self.lock:
            if self.is_serving:
                await self.fence(why)

    async def lose_tail(self, why: str) -> None:
        """Note that its disk lost what it wrote in its epoch, without a restart of its machine: as after one, it never writes
        there again. The start rules go on from here. Raises RoleFileError.
        """
        epoch_id, self.durable.lacks_tail = self.id, True
        async with self.lock:
            if self.id == epoch_id and self.durable.lacks_tail:  # Else it promised, or won, another epoch meanwhile.
                log.warning("log ends before its last durable end", max_offset=self.store.max_offset, why=why)
                await self.fence(f"its log lacks an end that others have: {why}")
                state = self.state_or_first()
                whole = state.whole and self._acknowledged_is_on_disk(state.role)
                await self.durable.save(evolve(state, boot_id=LOST, whole=whole))

    # The history that is followed

    async def adopt(self, master: PeerHistory) -> None:
        """Save a master's history as our own, after our log was cut to it and before it is followed. Raises HAPeerError: not this
        one, or not yet; RoleFileError.
        """
        async with self.lock:
            if master.group is None and self.durable.state is None:
                self.joins = True
                return
            if why := self.must_hear_others(master.group):
                raise HAPeerError(why)
            state = self.state_or_first()
            if master.id.epoch <= state.promised.epoch and master.id != state.promised:
                promised = f"epoch {state.promised.epoch} to {self.address_of(state.promised.winner) or 'nobody'}"
                raise HAPeerError(
                    f"this member has promised {promised}, and {master.address} is of epoch {master.id.epoch}"
                )
            await self.take_place(master.group)
            await self.durable.save(followed(state, master.id, master.group, self.own))
            if master.entries != self.durable.entries:
                await self.durable.save_entries(master.entries)
                self.ha.end_slaves("this log has another history now")  # Its own slaves have to adopt it, too.
            assert self.durable.last.id == self.durable.promised, "follows a master of another epoch than it promised"

    async def suspect_tail(self, why: str) -> None:
        """Note, before it happens, that bytes are cut which this member may have acknowledged. Raises RoleFileError."""
        async with self.lock:
            if self.durable.state is not None:
                log.warning("acknowledged bytes may be missing until this member has caught up", why=why)
                await self.durable.save(evolve(self.durable.state, whole=False))

    def heard(self, master: PeerHistory) -> None:
        """Note what a master reported. A member that is not in its record joins; one that is, without knowing, was wiped."""
        if self.durable.state is None and (master.group is None or self.named_in(master.group) is None):
            self.joins = True

    def named_in(self, group: GroupRecord) -> GroupMember | None:
        """This member in a record, which may know it by another id: its directory was wiped, and its address is the same; or a
        member of twinlog 0.2 added it under its address.
        """
        return group.member(self.own) or place_of(group, self.described())

    async def take_place(self, group: GroupRecord | None) -> None:
        """Take the id by which the group knows this member. Raises RoleFileError."""
        named = self.named_in(group) if self.durable.state is None and group is not None else None
        if named is not None:
            await self.durable.take_place(named)

    def must_hear_others(self, group: GroupRecord | None) -> str:
        """Reason why a wiped member may not follow yet: only the others may know what it promised. "" when it may."""
        if self.durable.state is not None or self.joins or group is None or self.named_in(group) is None:
            return ""
        why = "it is in the group's record, and its own files do not know: every other voter has to be heard first"
        if self.wiped_record is None:
            self.become("waiting", why)
        if is_newer(group, self.wiped_record):  # Somebody may have been removed, see haMembers.
            self.wiped_record = group
        return why
