"""A member of stores, replication and, in `Roles`, a RoleService: all that runs when nobody needs a broker."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import trio
from attrs import define, evolve, field

from tests.helpers import StorePeer
from tests.support.group.group import FILE_SIZE, SLAVE, SYNC, Group, Member
from twinlog.cluster.broker.peers.role_messages import Op, PausedMaster, Plain
from twinlog.cluster.broker.roles.durable_state import RoleFileError
from twinlog.cluster.broker.roles.member import Member as OwnMember
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.ha.election.voter import LeaseReply, LeaseRequest, VoteReply, VoteRequest
from twinlog.ha.errors import HAIdentityError, HAPeerError
from twinlog.ha.master.tickets import Holder
from twinlog.ha.peer import PeerHistory
from twinlog.ha.service import HAService
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import GroupMember, RoleState

T = TypeVar("T")
TIMEOUT = 3.0


def role_group(nursery: trio.Nursery, root: Path, *, size: int = 2, need: int = 2, **more: Any) -> Group:
    """A group with roles, which is not started yet. `need`: how many members have to hold a message."""
    config = {"in_sync_replicas": need, **more.pop("config", {})}
    return Group(nursery, root, Roles, size=size, config=config, **more)


class Stores:
    """A store and its replication, each with the role that it is configured for."""

    has_roles = False

    def __init__(self, member: Member) -> None:
        self.member = member
        self.store = self._make_store(member.role)
        self.ha = self._make_ha()

    def _make_store(self, role: BrokerRole) -> MessageStore:
        config = StoreConfig(
            root=self.member.root,
            broker_role=role,
            flush_disk_type=self.member.group.flush,
            mapped_file_size_commit_log=FILE_SIZE,
            mapped_file_size_consume_queue=50 * 20,
            max_hash_slot_num=100,
            max_index_num=400,
        )
        store = MessageStore(config, StoreHooks(disk_usage=lambda _: 0.5, clock=trio.current_time))
        store.load()
        return store

    def _make_ha(self) -> HAService:
        member, store = self.member, self.store
        ha = HAService(store, member.ha_config, self._slaves, lambda: None, peer_of=peers_of(member))
        ha.client.connect = member.follow
        store.hooks.retention_floor = ha.lowest_needed
        store.hooks.soft_retention_floor = ha.disconnected_slaves.floor
        store.retention.shortened.append(ha.disconnected_slaves.shortened)
        return ha

    def _slaves(self) -> list[str]:
        """As registered at the name server."""
        return [each.ip for each in self.member.group.members if each is not self.member]

    async def start(self, nursery: trio.Nursery) -> None:
        await nursery.start(self.store.run)
        await nursery.start(self.ha.run)
        if self.member.role is SLAVE:
            self.ha.set_master(self.member.group.first.ha_address)

    async def stop(self) -> None:
        await trio.lowlevel.checkpoint()


class Roles(Stores):
    """The same with a RoleService, which decides who is master."""

    has_roles = True

    def __init__(self, member: Member) -> None:
        self.member, self.state = member, member.state
        self.store = self._make_store(member.role if self.state is None else SLAVE)
        self.ha = self._make_ha()
        self.effects = Effects(member)
        self.roles = RoleService(
            OwnMember(
                side=member.side,
                described=lambda: GroupMember(
                    address=member.address, ha_address=member.ha_address, broker_id=member.number, name=member.name
                ),
                store=self.store,
                ha=self.ha,
                calls=Calls(member),
                effects=self.effects,
                config=self.ha.config,
                now_ms=lambda: int(trio.current_time() * 1000),
                boot_id=lambda: member.boot_id,
                boot_ms=member.starts,
                group_name=member.group.names[0],
                cluster=member.group.names[1],
            ),
            keeper=member.group.keeper_of(member),
        )

    async def start(self, nursery: trio.Nursery) -> None:
        self.roles.member.load()
        await self.roles.rules.hear_group(self.member.group.ask_name_server)
        if self.state is not None:
            self.ha.fence("it starts")
        elif self.member.role is SLAVE:
            self.ha.set_master(self.member.group.first.ha_address)
        for service in (self.store, self.ha, self.roles):
            await nursery.start(service.run)


async def anybody(_member: GroupMember) -> bool:
    """Here all speak from the address that they name."""
    return True


def peers_of(asker: Member) -> Callable[[str], "MemberPeer | None"]:
    """The remoting ports of other members, by their HA addresses."""

    def find(ha_address: str) -> MemberPeer | None:
        member = asker.group.at(ha_address)
        return MemberPeer(member.store, asker=asker, member=member) if member is not None else None

    return find


@define(eq=False)
class MemberPeer(StorePeer):
    """A member's remoting port, as its slave `asker` reaches it."""

    asker: Member = field(kw_only=True)
    member: Member = field(kw_only=True)

    async def _asked(self, question: str) -> None:
        if not self.member.up:
            raise HAPeerError(f"{self.member.address}: connection refused")
        if not self.asker.group.hears(self.asker, self.member):
            raise HAPeerError(f"{self.member.address}: no answer")
        self.store, self.boot_ms, self.is_master = self.member.store, self.member.starts, not self.member.is_slave
        await super()._asked(question)

    async def history(self, me: GroupMember | None) -> PeerHistory | None:
        if not self.member.parts.has_roles:
            return None
        told = await Calls(self.asker).history(self.member.address, me)
        if told is not None:
            self.asker.roles.member.heard(told)
        return told


@define(eq=False)
class Calls:
    """Requests of one member to others: each runs where it is answered, and ends with that member."""

    asker: Member

    async def promise(self, address: str, ask: VoteRequest) -> VoteReply:
        return await self._ask(address, lambda roles: roles.voter.vote(ask))

    async def lease(self, address: str, ask: LeaseRequest, *, timeout_ms: float) -> LeaseReply:
        return await self._ask(address, lambda roles: roles.renew_lease(ask, anybody), timeout_ms / 1000)

    async def role_change(self, address: str, op: Op, body: Plain, *, timeout_ms: float = 3_000) -> Plain:
        return await self._ask(address, lambda roles: roles.role_change(op, body), timeout_ms / 1000)

    async def history(self, address: str, me: GroupMember | None = None) -> PeerHistory | None:
        async def tell(roles: RoleService) -> PeerHistory:
            await trio.lowlevel.checkpoint()
            if me is not None and (why := await roles.joining.why_not(me)):
                raise HAIdentityError(why)
            history = roles.history(me)
            return evolve(history, ticket=roles.member.ha.ticket_for(Holder(me.id))) if me is not None else history

        return await self._ask(address, tell)

    async def is_refused(self, address: str) -> bool:
        """A machine whose process has ended refuses, one that is cut off does not."""
        await trio.sleep(0.001)
        group = self.asker.group
        target = next((each for each in group.members if each.address == address), None)
        return target is None or (not target.up and group.hears(self.asker, target))

    async def _ask(self, address: str, handle: Callable[[RoleService], Awaitable[T]], seconds: float = TIMEOUT) -> T:
        target = next((each for each in self.asker.group.members if each.address == address and each.up), None)
        outcome: list[Any] = []
        done = trio.Event()

        async def carry() -> None:
            try:
                outcome.append(await handle(target.roles))
            except Exception as error:
                outcome.append(error)
            finally:
                done.set()

        with trio.move_on_after(seconds):
            await trio.sleep(0.001)
            if target is None or not target.up:
                raise HAPeerError(f"{address}: connection refused")
            if not self.asker.group.hears(self.asker, target):
                await trio.sleep_forever()
            target.serving.start_soon(carry)
            await done.wait()
            if not outcome:
                raise HAPeerError(f"{address}: connection lost")
            if isinstance(outcome[0], RoleFileError):  # As over the wire.
                raise HAPeerError(f"{address} answers: {outcome[0]}")
            if isinstance(outcome[0], Exception):
                raise outcome[0]
            return outcome[0]
        raise HAPeerError(f"{address}: no answer within {seconds:g} s")


@define(eq=False)
class Effects:
    """Effects of a role on a member without services: whether it takes messages, and whom it follows."""

    member: Member
    held_until: float | None = None
    done: list[str] = field(factory=list)

    async def hold(self, deadline: float) -> PausedMaster:
        store, transfer = self.member.store, self.member.ha.group_transfer
        self.done.append("hold")
        self.held_until = deadline
        with trio.move_on_at(deadline):
            while transfer.confirmed_offset < store.max_offset and self.member.group.role is SYNC:
                await trio.sleep(0.001)
            return PausedMaster(
                end_offset=store.max_offset,
                min_offset=store.min_offset,
                offsets=dict(self.member.offsets),
                delay_offsets={1: 7},
                topics={},
                groups={},
            )
        raise TimeoutError("slaves did not confirm in time")

    def release(self) -> None:
        self.done.append("release")
        self.held_until = None

    async def take_tables(self, held: PausedMaster) -> None:
        await trio.lowlevel.checkpoint()
        assert held.delay_offsets == {1: 7}
        self.member.offsets = dict(held.offsets)

    async def serve_as_master(self, state: RoleState) -> None:
        assert state.group is not None
        assert self.member.state == state, "durable before it is so"
        ha = self.member.ha
        await ha.leave_master()
        await self.member.store.become_master(state.group.master_role)
        ha.group_transfer.require(self.member.roles.acks_required())
        ha.unfence(synchronous=state.group.master_role is SYNC)
        self.held_until = None
        self.done.append("master")

    async def serve_as_slave(self, state: RoleState, master: PeerHistory | None) -> None:
        await trio.lowlevel.checkpoint()
        assert self.member.state == state, "durable before it is so"
        self.member.store.become_slave()
        self.member.ha.unfence(synchronous=False)
        self.member.ha.set_master(master.ha_address if master is not None else None)
        self.done.append("slave")

    async def fence(self, why: str) -> None:
        await trio.lowlevel.checkpoint()
        self.member.store.become_slave()
        self.member.ha.fence(why)
        self.done.append("fence")

    def stand_aside(self, why: str) -> None:
        self.member.ha.fence(why)
        self.done.append("aside")

    def serve_again(self) -> None:
        self.member.ha.unfence(synchronous=self.member.group.role is SYNC)
        self.done.append("again")

    async def withdraw(self) -> None:
        await trio.lowlevel.checkpoint()
        self.done.append("withdraw")

    async def pull_offsets(self, addresses: tuple[str, ...]) -> None:
        await trio.lowlevel.checkpoint()
        self.done.append(f"offsets of {len(addresses)}")
