"""What a RoleService calls on: other members, over the simulated network, and the member around it instead of a broker."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from attrs import define, evolve, field

from tests.simulation import role_checks, role_offsets
from tests.simulation.determinism import enter
from tests.simulation.peer import SimPeer
from tests.support.group.stores import anybody
from twinlog.cluster.broker.peers.role_messages import Op, PausedMaster, Plain
from twinlog.ha.election.voter import LeaseReply, LeaseRequest, VoteReply, VoteRequest
from twinlog.ha.election.witness import WitnessReply, judge_report, silent
from twinlog.ha.errors import HAIdentityError, HAPeerError
from twinlog.ha.master.tickets import Holder
from twinlog.ha.peer import PeerHistory
from twinlog.store.config import BrokerRole
from twinlog.store.role_file import GroupMember, RoleState

if TYPE_CHECKING:
    from tests.simulation.role_world import RoleWorld
    from tests.simulation.roles import RoleMember

TIMEOUT, REFUSED_SECONDS, WITNESS_SECONDS = 3.0, 0.3, 1.0
T = TypeVar("T")


@define(eq=False)
class SimCalls:
    """Questions from an IP. What is asked runs on the machine that is asked, and dies with it."""

    world: "RoleWorld"
    ip: str

    async def promise(self, address: str, ask: VoteRequest) -> VoteReply:
        async def handle(member: "RoleMember") -> VoteReply:
            answer = await member.service.voter.vote(ask)
            self.world.guard(lambda: role_checks.promised(member, ask, answer))
            return answer

        return await self._ask(address, handle)

    async def lease(self, address: str, ask: LeaseRequest, *, timeout_ms: float) -> LeaseReply:
        async def handle(member: "RoleMember") -> LeaseReply:
            answer = await member.service.renew_lease(ask, anybody)
            self.world.elections.leased(member, ask, answer)
            self.world.guard(lambda: role_checks.leased(member, ask, answer))
            return answer

        return await self._ask(address, handle, timeout_ms / 1000)

    async def role_change(self, address: str, op: Op, body: Plain, *, timeout_ms: float = 3_000) -> Plain:
        async def handle(member: "RoleMember") -> Plain:
            return await member.service.role_change(op, body)

        return await self._ask(address, handle, timeout_ms / 1000)

    async def history(self, address: str, me: GroupMember | None = None) -> PeerHistory | None:
        async def handle(member: "RoleMember") -> PeerHistory:
            if me is None:
                return member.service.history()
            if why := await member.service.joining.why_not(me):
                raise HAIdentityError(why)
            return evolve(member.service.history(me), ticket=member.service.member.ha.ticket_for(Holder(me.id)))

        return await self._ask(address, handle)

    async def is_refused(self, address: str) -> bool:
        """Whether the machine is there, and nothing listens: a process that died. One without power says nothing."""
        target = address.rpartition(":")[0]
        with trio.move_on_after(REFUSED_SECONDS):
            await self.world.network.round_trip(self.ip, target)
            there = [each for each in self.world.processes if each.broker_address == address]
            if any(each.calls_nursery is not None for each in there):
                return False
            if there and all(each.power_is_cut for each in there):
                await trio.sleep_forever()
            return True
        return False

    async def witnesses(self) -> tuple[WitnessReply, ...]:
        """What the name server says."""
        report = None
        with trio.move_on_after(WITNESS_SECONDS):
            report = await self.world.names.report(self.ip)
        return (silent("n", "no answer") if report is None else judge_report("n", report),)

    async def offsets(self, address: str) -> tuple[dict[str, dict[int, int]], int]:
        """Consumers' offsets, and which life of the member tells them."""

        async def handle(member: "RoleMember") -> tuple[dict[str, dict[int, int]], int]:
            return member.offsets.copy(), member.starts

        return await self._ask(address, handle)

    async def _ask(self, address: str, handle: Callable[["RoleMember"], Awaitable[T]], seconds: float = TIMEOUT) -> T:
        """Raises HAPeerError; what the member raises reaches the one who asks."""
        target = address.rpartition(":")[0]
        with trio.move_on_after(seconds):
            await self.world.network.round_trip(self.ip, target)
            there = [each for each in self.world.processes if each.broker_address == address]
            member = next((each for each in there if each.calls_nursery is not None), None)
            if member is None or member.calls_nursery is None or member.is_old:
                raise HAPeerError(f"{address}: connection refused")
            call = _Call(member, handle)
            member.calls_nursery.start_soon(call.run)
            await call.done.wait()
            await self.world.network.round_trip(target, self.ip)
            if call.error is not None:
                raise call.error
            return call.answer  # type: ignore[no-any-return]
        raise HAPeerError(f"{address}: no answer within {seconds:g} s")


@define(eq=False)
class SimWitnesses:
    """See Witnesses of elector.py."""

    calls: SimCalls

    async def ask(self) -> tuple[WitnessReply, ...]:
        return await self.calls.witnesses()


@define(eq=False)
class RolePeer(SimPeer):
    """Answers 1007, too; `member` asks."""

    member: "RoleMember"

    async def history(self, me: GroupMember | None) -> PeerHistory | None:
        world = self.member.group
        if self.member.is_old:
            return None
        address = next((each.broker_address for each in world.processes if each.address == self.address), "")
        told = await SimCalls(world, self.ip).history(address, me)
        if told is not None:
            self.member.service.member.heard(told)
        return told


@define(eq=False)
class _Call:
    """A question on the machine that is asked."""

    member: "RoleMember"
    handle: Callable[[Any], Awaitable[Any]]
    answer: Any = None
    error: Exception | None = None
    done: trio.Event = field(factory=trio.Event)

    async def run(self) -> None:
        await enter(self.member)
        self.error = HAPeerError(f"{self.member.broker_address}: the connection was lost")
        try:
            self.answer = await self.handle(self.member)
            self.error = None
        except Exception as error:
            self.error = error
        finally:  # Whoever died, or was stopped, answers nothing.
            self.done.set()


@define(eq=False)
class SimEffects:
    """What a role means for a member of the simulation: who takes messages, whom it follows, what the name server is told."""

    member: "RoleMember"
    _holds_until: float | None = None

    async def hold(self, deadline: float) -> PausedMaster:
        member = self.member
        assert member.store is not None
        assert member.ha is not None
        member.writable, self._holds_until = False, deadline
        try:
            with trio.fail_at(deadline):
                while not self._is_safe():
                    await trio.sleep(0.001)
        except trio.TooSlowError:
            self.release()
            raise TimeoutError("the slaves did not confirm in time") from None
        assert member.calls_nursery is not None
        member.calls_nursery.start_soon(self._end_hold, deadline)
        return PausedMaster(
            end_offset=member.store.max_offset,
            min_offset=member.store.min_offset,
            offsets=member.offsets.table.to_json(),
            delay_offsets={},
            topics={},
            groups={},
        )

    def _is_safe(self) -> bool:
        store, ha = self.member.store, self.member.ha
        assert store is not None
        assert ha is not None
        store.dispatch_pending()
        is_flushed = not store.flusher.is_synchronous or store.flushed_offset >= store.max_offset
        waits = store.config.broker_role is BrokerRole.SYNC_MASTER
        is_confirmed = not waits or ha.group_transfer.confirmed_offset >= store.max_offset
        return is_flushed and is_confirmed and not ha.group_transfer.waiting

    async def _end_hold(self, deadline: float) -> None:
        await trio.sleep_until(deadline)
        if self._holds_until == deadline:
            self.release()

    def release(self) -> None:
        if self._holds_until is not None:
            self._holds_until = None
            self.member.writable = True

    async def take_tables(self, held: PausedMaster) -> None:
        await trio.lowlevel.checkpoint()
        role_offsets.handed_over(self.member, held.offsets)

    async def serve_as_master(self, state: RoleState) -> None:
        member = self.member
        store, ha = member.store, member.ha
        assert store is not None
        assert ha is not None
        role = state.group.master_role if state.group is not None else state.role
        ha.set_master(None)
        await store.become_master(role)
        member.group.took_over(member)
        self._holds_until, member.is_fenced = None, False
        ha.group_transfer.require(member.service.acks_required())
        ha.unfence(synchronous=role is BrokerRole.SYNC_MASTER)
        member.is_master = member.writable = True
        member.serves_since = trio.current_time()
        member.is_withdrawn = False
        member.group.trace(f"{member.name} serves as master")
        member.register_now.set()

    async def serve_as_slave(self, state: RoleState, master: PeerHistory | None) -> None:
        member = self.member
        assert member.store is not None
        assert member.ha is not None
        self._holds_until = None
        member.is_master = member.writable = member.is_fenced = member.is_withdrawn = False
        member.store.become_slave()
        member.ha.unfence(synchronous=False)
        address = master.ha_address if master is not None else None
        if address != member.ha.client.master_address:
            member.group.trace(f"{member.name} is to follow {address}")
        member.ha.set_master(address)
        member.register_now.set()

    async def fence(self, why: str) -> None:
        member = self.member
        assert member.ha is not None
        self._holds_until = None
        if member.writable:
            member.group.trace(f"{member.name} is fenced")
            member.world.guard(lambda: member.group.in_etcd.fenced(member, why))
        member.writable, member.is_fenced = False, True
        member.ha.fence(why)
        await trio.lowlevel.checkpoint()

    def stand_aside(self, why: str) -> None:
        assert self.member.ha is not None
        self.member.group.trace(f"{self.member.name} stands aside")
        self.member.writable = False
        self.member.ha.fence(why)

    def serve_again(self) -> None:
        member = self.member
        assert member.ha is not None
        assert member.store is not None
        member.group.trace(f"{member.name} serves again")
        member.ha.group_transfer.require(member.service.acks_required())
        member.ha.unfence(synchronous=member.store.config.broker_role is BrokerRole.SYNC_MASTER)
        member.writable = True

    async def withdraw(self) -> None:
        self.member.is_withdrawn = True
        self.member.group.name_server.lost(self.member)
        await trio.lowlevel.checkpoint()

    async def pull_offsets(self, addresses: tuple[str, ...]) -> None:
        await role_offsets.pull(self.member, addresses)
