"""A member whose role changes: the product's own RoleService, and what it calls on and is called by in the simulation."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from attrs import define, field

from tests.simulation import role_checks, role_offsets
from tests.simulation.determinism import wall
from tests.simulation.etcd import SimKeeper
from tests.simulation.member import Member
from tests.simulation.network import SimStream
from tests.simulation.parts import make_ha, make_store
from tests.simulation.producer import Producer
from tests.simulation.role_ledger import Log
from tests.simulation.role_name_server import RoleNameServer
from tests.simulation.role_offsets import Offsets
from tests.simulation.role_seams import RolePeer, SimCalls, SimEffects, SimWitnesses
from twinlog.cluster.broker.group.group_view import counted_as
from twinlog.cluster.broker.peers.role_messages import ChangeRequest
from twinlog.cluster.broker.roles.change import RoleChange
from twinlog.cluster.broker.roles.member import Member as OwnMember
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.cluster.broker.tables.offsets import ConsumerOffsetManager, MasterOffsets
from twinlog.ha.election.epochs import key_of
from twinlog.ha.peer import PeerHistory
from twinlog.store.epoch_file import FIRST, EpochEntry, decode_epochs
from twinlog.store.member_file import decode_member
from twinlog.store.role_file import GroupMember, RoleState, decode_role, load_role

if TYPE_CHECKING:
    from tests.simulation.role_world import RoleWorld
    from twinlog.ha.service import HAService
    from twinlog.store.message_store import MessageStore

T = TypeVar("T")


@define(eq=False)
class RoleMember(Member):
    """Configured as a master or a slave; what it is, its role file says once there is one."""

    roles: RoleService | None = None
    log: Log = field(init=False)
    offsets: Offsets = field(init=False)
    writable: bool = False  # Producers are let in.
    is_fenced: bool = False
    serves_since: float = 0.0
    streams: list[tuple[SimStream, str]] = field(factory=list)  # From masters, the last ones, and whose they are.
    is_withdrawn: bool = False  # Its group takes it for a copy: it does not register.
    is_old: bool = False  # Its version knows of no records: it asks nobody, and answers nothing.
    boots: int = 0  # The machine's, not the process's.
    calls_nursery: trio.Nursery | None = None
    register_now: trio.Event = field(factory=trio.Event)
    _registered: list[str] = field(factory=list)  # IPs of slaves.
    _counted: list[str] = field(factory=list)
    asked: int = 0  # How often an operator has helped it since all is well.
    _decoded: dict[str, tuple[bytes | None, Any]] = field(factory=dict)

    @property
    def group(self) -> "RoleWorld":
        """The world, by its type."""
        return self.world  # type: ignore[return-value]

    @property
    def service(self) -> RoleService:
        """While it lives."""
        assert self.roles is not None
        return self.roles

    @property
    def calls(self) -> SimCalls:
        """Its questions to others."""
        return SimCalls(self.group, self.ip)

    @property
    def key(self) -> Any:
        """By which an operator chooses: whose log is the best."""
        return (self.up, *key_of(self.durable_epochs(), self.log.end))

    def says(self) -> str:
        """What it says of itself."""
        roles, ha = self.roles, self.ha
        if roles is None or ha is None:
            return "is down"
        client, change = ha.client.statistics(), roles.state()
        return f"at {self.log.end}: {roles.member.status()}, {client.state} {client.last_error}, {change.error}"

    def has_what_its_master_lost(self) -> bool:
        """True if it says that its master's log is damaged where its own is not."""
        found = self.ha.client.finding if self.ha is not None else None
        return found is not None and found.is_lost_there

    @property
    def identity(self) -> str:
        """Its id, by which members know it: on its disk."""
        return self._durable("member", lambda raw: decode_member(raw).id) or ""

    @property
    def broker_address(self) -> str:
        """Of its remoting port."""
        return f"{self.ip}:{self.port - 1}"

    @property
    def broker_id(self) -> int:
        """As configured."""
        return ("m", "s1", "s2").index(self.name)

    def peer(self, address: str) -> RolePeer:
        return RolePeer(self.world, self.ip, address, self)

    # What is on its disk for good

    def durable_role(self) -> RoleState | None:
        """What a power cut would leave of its promise and its role."""
        return self._durable("role", decode_role)

    def durable_epochs(self) -> tuple[EpochEntry, ...]:
        """The same of its history."""
        return self._durable("epochs", decode_epochs) or (FIRST,)

    def _durable(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        raw = self.disk.durable_content(f"{self.name}/twinlog/{name}")
        known = self._decoded.get(name)
        if known is None or known[0] != raw:
            self._decoded[name] = known = (raw, decode(raw) if raw else None)
        return known[1]  # type: ignore[no-any-return]

    # Its lives

    async def _lie_dead(self) -> None:
        self.roles, self.calls_nursery, self.writable = None, None, False
        if self.power_is_cut:
            self.boots += 1
        if self.wipe:
            self.group.trace(f"{self.name} is wiped")
            self.offsets.table = ConsumerOffsetManager()
        await super()._lie_dead()

    async def _serve(self) -> None:
        self.writable = self.is_fenced = self.is_withdrawn = False
        self._registered, self._counted = [], []
        self.offsets.master = MasterOffsets()
        state = load_role(Path(self.name) / "twinlog")
        self.is_master = state is None and self.name == "m"  # With a state it is a slave of nobody at first.
        self.store = store = make_store(self)
        self.ha = ha = make_ha(self, store)
        self.roles = roles = self._make_service(store, ha)
        roles.member.load()
        self._load(store)
        self._came_back(store)
        if state is not None:
            ha.fence("this member starts")
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            await nursery.start(ha.run)
            self.calls_nursery = nursery
            self.world.network.listen(self.address, nursery, self._serve_connection)
            self.up, self.changed_at = True, trio.current_time()
            self.world.trace(f"{self.name} is up: {store.min_offset}..{store.max_offset}")
            if self.is_master:
                self.group.took_over(self)
                self.writable, self.serves_since = True, trio.current_time()
            nursery.start_soon(self._keep_registered)
            nursery.start_soon(self._watch_members)
            nursery.start_soon(self._watch_record)
            nursery.start_soon(roles.run)
            nursery.start_soon(role_offsets.consume, self)
            nursery.start_soon(role_offsets.synchronize, self)
            nursery.start_soon(RoleProducer(self.world, self, store, ha).run)
            await self._stop.wait()
            self.world.network.listeners.pop(self.address, None)
            nursery.cancel_scope.cancel()
        self.up, self.calls_nursery = False, None
        self.written_claim = store.max_offset
        await store.close()
        roles.member.durable.note_clean_stop()
        if self.disk.failed_syncs > self._failed_syncs:
            self._doubt()
        self.world.trace(f"{self.name} stopped")

    def _make_service(self, store: "MessageStore", ha: "HAService") -> RoleService:
        roles = RoleService(
            OwnMember(
                side=Path(self.name) / "twinlog",
                described=lambda: GroupMember(
                    address=self.broker_address, ha_address=self.address, broker_id=self.broker_id, name=self.name
                ),
                store=store,
                ha=ha,
                calls=self.calls,
                effects=SimEffects(self),
                config=ha.config,
                now_ms=lambda: int(wall() * 1000),
                boot_id=lambda: f"boot {self.boots}",
                boot_ms=self.starts,
                group_name="broker-a",
                cluster="DefaultCluster",
            ),
            keeper=SimKeeper(self.group.etcd, self) if self.group.etcd is not None else None,
        )
        ha.use_role(CheckedRole(roles, self))
        elector, book = roles.elector, self.group.elections
        begin = elector.begin

        async def begin_checked(ask: ChangeRequest) -> RoleChange:
            self.world.guard(lambda: book.begins(self, ask))
            change = await begin(ask)
            book.ended(self, change)
            return change

        elector.begin, elector.witnesses = begin_checked, SimWitnesses(self.calls)
        return roles

    async def connect(self, address: str) -> Any:
        transport = await super().connect(address)
        of = next((each.name for each in self.group.processes if each.address == address), "")
        self.streams = [*self.streams[-1:], (transport.stream, of)]
        return transport

    def _flushed(self, store: "MessageStore") -> None:
        super()._flushed(store)
        self.log.flushed(self.durable_end)

    # The name server

    @property
    def registers_as(self) -> int | None:
        """The id that it tells the name server; None: it does not register now."""
        state = self.roles.member.role_state() if self.roles is not None else None
        if self.is_master and self.writable:
            return 0
        if self.is_fenced or self.is_withdrawn or (state is None and self.name == "m"):
            return None
        return state.broker_id if state is not None and state.broker_id else self.broker_id or None

    async def _keep_registered(self) -> None:
        while True:
            self.register_now = trio.Event()
            answer, broker_id = None, self.registers_as
            registered = False
            with trio.move_on_after(3):
                if broker_id is not None:
                    answer = await self._names.register_as(self, broker_id)
                    registered = True
            if registered:
                self._was_told(answer)
            waits = self.config.period if registered and (self.is_master or answer) else 1.0
            with trio.move_on_after(waits):
                await self.register_now.wait()

    def _was_told(self, master: str | None) -> None:
        """Whom to follow, as long as there is no group record."""
        if self.ha is not None and not self.is_master and self.service.member.role_state() is None:
            self.ha.set_master(master)

    @property
    def _names(self) -> RoleNameServer:
        names = self.world.name_server
        assert isinstance(names, RoleNameServer)
        return names

    async def _watch_members(self) -> None:
        while True:
            slaves = addresses = None
            with trio.move_on_after(3):
                slaves, addresses = await self._names.slaves(self), await self._names.addresses(self)
            if slaves is not None and addresses is not None and self.ha is not None:
                self.service.joining.registered(addresses)
                self._registered = self.slaves.answered(slaves, trio.current_time())
                self._count_members()
            with trio.move_on_after(5):
                await self.ask.wait()
                await trio.sleep(0.05)
            self.ask = trio.Event()

    async def _watch_record(self) -> None:
        while True:
            await trio.sleep(0.25)
            self._count_members()

    def _count_members(self) -> None:
        """Tell replication whose acknowledgements count: with a record those whom it names."""
        counted = self.service.counted_members()
        names = self._registered
        if counted is not None and (group := self.service.member.group) is not None:
            others = counted - {self.service.member.own}
            names = sorted(counted_as(each) for each in group.members if each.id in others)
        if self.ha is not None and self.is_master and names != self._counted:
            self._counted = names
            self.ha.members_changed(names)


@define(eq=False)
class Copy(RoleMember):
    """One more process, on a copy of a member's disk, of which the group knows a later start: it has no part. `follows`:
    only the master has heard of it, so that it may follow, and counts for nothing.
    """

    of: RoleMember = field(kw_only=True)
    follows: bool = field(kw_only=True)

    @property
    def broker_id(self) -> int:
        return self.of.broker_id


@define(eq=False)
class RoleProducer(Producer):
    """Its producers come to each member that takes messages."""

    def _put(self, rng: Any) -> None:
        member = self.member
        assert isinstance(member, RoleMember)
        if member.writable and trio.current_time() >= member.group.quiet_until:
            super()._put(rng)


@define(eq=False)
class CheckedRole:
    """The role service, as replication asks it; what it adopts is checked on the disk before the stream is opened."""

    service: RoleService
    member: RoleMember

    def __getattr__(self, name: str) -> Any:
        return getattr(self.service.member, name)

    async def adopt(self, master: PeerHistory) -> None:
        member = self.member
        await self.service.member.adopt(master)
        if member.durable_role() is not None:
            member.world.guard(lambda: role_checks.adopted(member, master.entries))
