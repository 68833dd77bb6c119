"""Members whose roles change: the product's own role service over stores and replication, in one process and in virtual time.

A member can be isolated: nothing gets through to it or from it, and nobody is told.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import trio
from attrs import define, field

from tests.support.group.group import FILE_SIZE, Group, LocalPeer, Member, until
from tests.support.group.line import Line
from twinlog.cluster.broker.peers.role_messages import ChangeRequest, Op, PausedMaster, Plain
from twinlog.cluster.broker.roles.member import Member as OwnMember
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.ha.config import HAConfig
from twinlog.ha.election.voter import LeaseReply, LeaseRequest, VoteReply, VoteRequest
from twinlog.ha.errors import HAConnectionLostError, HAPeerError
from twinlog.ha.peer import PeerHistory
from twinlog.ha.service import HAService
from twinlog.ha.wire.transport import StreamTransport, Transport
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import GroupMember, RoleState, load_role

T = TypeVar("T")
TIMEOUT = 3.0


@define(eq=False, repr=False)
class RoleGroup(Group):
    """`streams`: which members each HA connection joins. `deaf`: who is cut off on the remoting ports only."""

    isolated: set[str] = field(factory=set)
    deaf: set[str] = field(factory=set)
    streams: list[tuple[str, str, Line]] = field(factory=list)

    def add(self, role: BrokerRole, **options: Any) -> "RoleMember":
        number = len(self.members)
        member = RoleMember(self, f"m{number}", f"10.0.0.{number + 1}", role, self.root / f"m{number}", options)
        self.members.append(member)
        return member

    def named(self, broker_address: str) -> "RoleMember | None":
        return next((each for each in self.members if each.broker_address == broker_address), None)

    def isolate(self, *names: str) -> None:
        """Cut these off from all others; nobody: everything gets through again."""
        self.isolated = set(names)
        for one, other, line in self.streams:
            line.hold(not self.is_open(one, other))

    def is_open(self, one: str, other: str) -> bool:
        return one == other or not {one, other} & self.isolated


@define(eq=False, repr=False)
class RoleMember(Member):
    """`answers`: of all that producers sent here."""

    roles: RoleService = field(init=False)
    answers: list[tuple[bytes, Any]] = field(factory=list)
    _counted: list[str] = field(factory=list)

    @property
    def broker_address(self) -> str:
        return f"{self.ip}:10911"

    @property
    def is_slave(self) -> bool:
        return self.store.config.broker_role is BrokerRole.SLAVE if self.up else self.role is BrokerRole.SLAVE

    @property
    def is_serving(self) -> bool:
        return self.up and self.roles.member.is_serving

    @property
    def me(self) -> GroupMember:
        number = self.group.members.index(self)
        return GroupMember(address=self.broker_address, ha_address=self.address, broker_id=number, name=self.name)

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.starts += 1
        self._ended, self._counted = trio.Event(), []
        state = load_role(self.root / "twinlog")
        self.store = MessageStore(
            StoreConfig(
                root=self.root,
                broker_role=self.role if state is None else BrokerRole.SLAVE,
                mapped_file_size_commit_log=FILE_SIZE,
                mapped_file_size_consume_queue=50 * 20,
                max_hash_slot_num=100,
                max_index_num=400,
            ),
            StoreHooks(disk_usage=lambda _: 0.5, clock=trio.current_time),
        )
        self.store.load()
        self.ha = HAService(
            self.store,
            HAConfig(**self.options),
            lambda: self._counted,
            lambda: None,
            peer_of=lambda address: RolePeer(self.group, address, self),
        )
        self.ha.client.connect = self._connect
        self.roles = RoleService(
            OwnMember(
                side=self.root / "twinlog",
                me=lambda: self.me,
                store=self.store,
                ha=self.ha,
                calls=ScenarioCalls(self),
                effects=ScenarioEffects(self),
                config=self.ha.config,
                now_ms=lambda: int(trio.current_time() * 1000),
                boot_id=lambda: "one boot",
                boot_ms=self.starts,
            )
        )
        self.roles.member.load()
        if state is not None:
            self.ha.fence("this member starts")
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.store.run)
                await nursery.start(self.ha.run)
                self.serving, self.up = nursery, True
                nursery.start_soon(self.roles.run)
                nursery.start_soon(self._count_task)
                if state is None and self.role is BrokerRole.SLAVE:
                    self.ha.set_master(self.group.members[0].address)
                task_status.started()
                await trio.sleep_forever()
        self._ended.set()

    async def _count_task(self) -> None:
        """The name server's part: all members are registered; with a record those count that it names."""
        while True:
            counted = self.roles.counted_members()
            others = [each for each in self.group.members if each is not self]
            ips = [each.ip for each in others if counted is None or each.broker_address in counted]
            ips = ips if self.is_serving else []
            if ips != self._counted:
                self._counted = ips
                self.ha.members_changed(ips)
            await trio.sleep(0.1)

    async def _connect(self, address: str) -> Transport:
        master = self.group.at(address)
        if master is not None and not self.group.is_open(self.name, master.name):
            await trio.sleep_forever()
        if master is None:
            raise HAConnectionLostError("cannot connect: connection refused")
        line = Line()
        self.group.streams.append((self.name, master.name, line))
        ours, theirs = line.connect()
        master.serving.start_soon(
            master.ha.serve, StreamTransport(theirs), f"{self.ip}:{40_000 + len(self.group.streams)}", self.ip
        )
        return StreamTransport(ours)

    # As a person and as a producer

    async def failover(self) -> None:
        """Make this member the master."""
        await self.roles.start(ChangeRequest(verb="failover", candidate=self.broker_address))
        await until(lambda: not self.roles.is_changing, f"the failover to {self.name} ends")
        assert self.is_serving, self.roles.state()

    def produce(self, body: bytes) -> None:
        """A message that its producer wants to be safe."""
        self.answers.append((body, self.send(body)))

    @property
    def acknowledged(self) -> list[bytes]:
        """What producers were told SEND_OK for."""
        return [body for body, answer in self.answers if answer.status is PutStatus.PUT_OK]


@define(eq=False)
class RolePeer(LocalPeer):
    """A member's remoting port, as `asker` reaches it."""

    asker: RoleMember

    def _store(self) -> MessageStore:
        member = self.group.at(self.address)
        if member is not None and not _hears(self.group, self.asker.name, member.name):
            raise HAPeerError(f"{self.address}: no answer")
        return super()._store()

    async def history(self, me: GroupMember | None) -> PeerHistory | None:
        await trio.lowlevel.checkpoint()
        self._store()
        told = self.group.at(self.address).roles.history(me)
        self.asker.roles.member.heard(told)
        return told


def _hears(group: RoleGroup, one: str, other: str) -> bool:
    return group.is_open(one, other) and (one == other or not {one, other} & group.deaf)


@define(eq=False)
class ScenarioCalls:
    """Questions of one member to others."""

    asker: RoleMember

    async def _ask(self, address: str, handle: Callable[[RoleMember], Awaitable[T]], seconds: float = TIMEOUT) -> T:
        await trio.sleep(0.001)
        member = self.asker.group.named(address)
        if member is None or not member.up:
            raise HAPeerError(f"{address}: connection refused")
        if not _hears(self.asker.group, self.asker.name, member.name):
            await trio.sleep(seconds)
            raise HAPeerError(f"{address}: no answer within {seconds:g} s")
        return await handle(member)

    async def promise(self, address: str, ask: VoteRequest) -> VoteReply:
        return await self._ask(address, lambda member: member.roles.voter.vote(ask))

    async def lease(self, address: str, ask: LeaseRequest, *, timeout_ms: float) -> LeaseReply:
        return await self._ask(address, lambda member: member.roles.voter.renew_lease(ask), timeout_ms / 1000)

    async def role_change(self, address: str, op: Op, body: Plain, *, timeout_ms: float = 3_000) -> Plain:
        return await self._ask(address, lambda member: member.roles.role_change(op, body), timeout_ms / 1000)

    async def history(self, address: str, me: GroupMember | None = None) -> PeerHistory | None:
        async def tell(member: RoleMember) -> PeerHistory:
            return member.roles.history(me)

        return await self._ask(address, tell)


@define(eq=False)
class ScenarioEffects:
    """A member's other parts: there are none but its store and replication."""

    member: RoleMember

    async def hold(self, deadline: float) -> PausedMaster:
        store, transfer = self.member.store, self.member.ha.group_transfer
        with trio.fail_at(deadline):
            while transfer.waiting or transfer.confirmed_offset < store.max_offset:
                await trio.sleep(0.001)
        return PausedMaster(
            end_offset=store.max_offset,
            min_offset=store.min_offset,
            offsets={},
            delay_offsets={},
            topics={},
            groups={},
        )

    def release(self) -> None:
        pass

    async def take_tables(self, held: PausedMaster | None) -> None:
        pass

    async def serve_as_master(self, state: RoleState) -> None:
        ha, store = self.member.ha, self.member.store
        await ha.leave_master()
        await store.become_master(BrokerRole.SYNC_MASTER)
        ha.unfence(synchronous=True)

    async def serve_as_slave(self, state: RoleState, master: PeerHistory | None) -> None:
        self.member.store.become_slave()
        self.member.ha.unfence(synchronous=False)
        self.member.ha.set_master(master.ha_address if master is not None else None)

    async def fence(self, why: str) -> None:
        self.member.ha.fence(why)
        await self.member.ha.leave_master()
        self.member.store.become_slave()

    async def pull_offsets(self, addresses: tuple[str, ...]) -> None:
        pass


async def started(nursery: trio.Nursery, root: Path, *, members: int, **options: Any) -> RoleGroup:
    """A master and slaves that are level, have a record of their group, and whose acknowledgements count."""
    group = RoleGroup(nursery, root)
    for number in range(members):
        group.add(BrokerRole.SLAVE if number else BrokerRole.SYNC_MASTER, **options)
    for member in group.members:
        await member.start()
    master = group.members[0]
    await until(
        lambda: (
            master.roles.member.group is not None
            and len(master.roles.member.group.members) == members
            and sum(each.counted for each in master.ha.statistics().connections) == members - 1
        ),
        "all are members",
    )
    return group
