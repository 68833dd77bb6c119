"""A group of members in one process and virtual time: real stores, replication and RoleService; no sockets between them."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio
from attrs import define, field
from trio.testing import memory_stream_pair

from tests.helpers import StorePeer, log_bytes, open_store, put
from twinlog.cluster.broker.peers.role_messages import ChangeRequest, ChangeState, Op, PausedMaster, Plain
from twinlog.cluster.broker.roles.member import Member
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.ha.config import HAConfig
from twinlog.ha.election.voter import LeaseReply, LeaseRequest, VoteReply, VoteRequest
from twinlog.ha.errors import HAConnectionLostError, HAPeerError
from twinlog.ha.peer import PeerHistory
from twinlog.ha.service import HAService
from twinlog.ha.wire.transport import StreamTransport, Transport
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import load_epochs
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import GroupMember, RoleState, load_role

T = TypeVar("T")
SYNC, ASYNC, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE


@define(eq=False)
class Node:
    """A member: its disk, and what runs while it is up."""

    group: "Group"
    name: str
    number: int
    root: Path
    store: MessageStore = field(init=False)
    ha: HAService = field(init=False)
    roles: RoleService = field(init=False)
    effects: "NodeEffects" = field(init=False)
    nursery: trio.Nursery | None = field(default=None, init=False)
    boot_id: str = "boot 1"
    cut_off: bool = False  # Nobody reaches it, and it reaches nobody.
    offsets: dict[str, int] = field(factory=dict)
    _ended: trio.Event = field(factory=trio.Event, init=False)

    @property
    def ip(self) -> str:
        return f"127.0.0.{self.number + 1}"

    @property
    def address(self) -> str:
        return f"{self.ip}:10911"

    @property
    def ha_address(self) -> str:
        return f"{self.ip}:10912"

    @property
    def is_up(self) -> bool:
        return self.nursery is not None

    def me(self) -> GroupMember:
        return GroupMember(address=self.address, ha_address=self.ha_address, broker_id=self.number, name=self.name)

    @property
    def side(self) -> Path:
        return self.root / "twinlog"

    @property
    def state(self) -> RoleState | None:
        """On its disk."""
        return load_role(self.side)

    @property
    def epochs(self) -> list[tuple[int, str, str]]:
        """On its disk: number, winner, kind."""
        names = {node.address: node.name for node in self.group.nodes}
        return [(entry.epoch, names.get(entry.winner, ""), entry.kind) for entry in load_epochs(self.side)]

    @property
    def word(self) -> str:
        return self.roles.member.status()[0]

    async def start(self) -> None:
        """As a broker does."""
        await self.group.nursery.start(self._run)

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self._ended = trio.Event()
        state = load_role(self.side)
        role = (self.group.role if self.number == 0 else SLAVE) if state is None else SLAVE
        self.store = open_store(self.root, role=role)
        self.store.appended.append(self.store.dispatch_pending)
        config = HAConfig(listen_host="127.0.0.1", **self.group.config)
        self.ha = HAService(self.store, config, self._slaves, lambda: None, peer_of=self.group.peer_of(self))
        self.ha.client.connect = self._connect
        self.effects = NodeEffects(self)
        self.roles = roles = RoleService(
            Member(
                side=self.side,
                me=self.me,
                store=self.store,
                ha=self.ha,
                calls=NodeCalls(self),
                effects=self.effects,
                config=config,
                now_ms=lambda: int(trio.current_time() * 1000),
                boot_id=lambda: self.boot_id,
            )
        )
        try:
            roles.member.load()
            await roles.rules.hear_group(self.group.ask_name_server)
            if state is not None:
                self.ha.fence("it starts")
            elif role is SLAVE:
                self.ha.set_master(self.group.nodes[0].ha_address)
            async with trio.open_nursery() as nursery:
                await nursery.start(self.ha.run)
                await nursery.start(roles.run)
                self.nursery = nursery
                task_status.started()
                await trio.sleep_forever()
        finally:
            self.nursery = None
            with trio.CancelScope(shield=True):
                await self.store.close()
            self._ended.set()

    def _slaves(self) -> tuple[str, ...]:
        return tuple(node.ip for node in self.group.nodes if node is not self)

    def kill(self) -> None:
        """At once; what it had written stays in the page cache."""
        if self.nursery is not None:
            self.nursery.cancel_scope.cancel()
            self.nursery = None

    async def stop(self, *, cleanly: bool = False) -> None:
        roles = self.roles
        self.kill()
        with trio.CancelScope(shield=True):
            await self._ended.wait()
        if cleanly:
            roles.member.durable.note_clean_stop()

    async def _connect(self, ha_address: str) -> Transport:
        await trio.lowlevel.checkpoint()
        other = next((node for node in self.group.nodes if node.ha_address == ha_address), None)
        if other is None or other.nursery is None or self.cut_off or other.cut_off:
            raise HAConnectionLostError("cannot connect: refused")
        ours, theirs = memory_stream_pair()
        other.nursery.start_soon(other.ha.serve, StreamTransport(theirs), f"{self.ip}:1", self.ip)
        self.group.streams.append((self, other, ours))
        return StreamTransport(ours)

    def put(self, count: int = 1) -> int:
        return put(self.store, *[b"x" * 100] * count)

    async def is_acknowledged(self) -> bool:
        """Whether all that it holds is safe enough for its producers."""
        with trio.move_on_after(5):
            while self.ha.group_transfer.confirmed_offset < self.store.max_offset or not self.ha.lease.held(
                trio.current_time()
            ):
                await trio.sleep(0.01)
            return True
        return False


@define(eq=False)
class NodePeer(StorePeer):
    """A member as its slave asks it."""

    asker: Any = None
    node: Any = None

    async def history(self, me: GroupMember | None) -> PeerHistory | None:
        told = await NodeCalls(self.asker).history(self.node.address, me)
        if told is not None:
            self.asker.roles.member.heard(told)
        return told


@define(eq=False)
class NodeCalls:
    """What is asked runs where it is asked, and dies with that member."""

    node: Node

    async def promise(self, address: str, ask: VoteRequest) -> VoteReply:
        return await self._ask(address, lambda roles: roles.voter.vote(ask))

    async def lease(self, address: str, ask: LeaseRequest, *, timeout_ms: float) -> LeaseReply:
        return await self._ask(address, lambda roles: roles.voter.renew_lease(ask), timeout_ms / 1000)

    async def role_change(self, address: str, op: Op, body: Plain, *, timeout_ms: float = 3_000) -> Plain:
        return await self._ask(address, lambda roles: roles.role_change(op, body), timeout_ms / 1000)

    async def history(self, address: str, me: GroupMember | None = None) -> PeerHistory | None:
        async def tell(roles: RoleService) -> PeerHistory:
            await trio.lowlevel.checkpoint()
            return roles.history(me)

        return await self._ask(address, tell)

    async def _ask(self, address: str, handle: Callable[[RoleService], Awaitable[T]], seconds: float = 3.0) -> T:
        target = next(node for node in self.node.group.nodes if node.address == address)
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
            if target.nursery is None:
                raise HAPeerError(f"{address}: connection refused")
            if self.node.cut_off or target.cut_off:
                await trio.sleep_forever()
            if target.nursery is None:
                raise HAPeerError(f"{address}: connection lost")
            target.nursery.start_soon(carry)
            await done.wait()
            if not outcome:
                raise HAPeerError(f"{address}: connection lost")
            if isinstance(outcome[0], Exception):
                raise outcome[0]
            return outcome[0]
        raise HAPeerError(f"{address}: no answer")


@define(eq=False)
class NodeEffects:
    """What a role means for a member without services: who takes messages, whom it follows."""

    node: Node
    held_until: float | None = None
    done: list[str] = field(factory=list)

    async def hold(self, deadline: float) -> PausedMaster:
        node = self.node
        self.done.append("hold")
        self.held_until = deadline
        with trio.move_on_at(deadline):
            while node.ha.group_transfer.confirmed_offset < node.store.max_offset and node.group.role is SYNC:
                await trio.sleep(0.001)
            return PausedMaster(
                end_offset=node.store.max_offset,
                min_offset=node.store.min_offset,
                offsets=dict(node.offsets),
                delay_offsets={1: 7},
                topics={},
                groups={},
            )
        raise TimeoutError("slaves did not confirm in time")

    def release(self) -> None:
        self.done.append("release")
        self.held_until = None

    async def take_tables(self, held: PausedMaster | None) -> None:
        await trio.lowlevel.checkpoint()
        assert held is not None
        assert held.delay_offsets == {1: 7}
        self.node.offsets = dict(held.offsets)

    async def serve_as_master(self, state: RoleState) -> None:
        node = self.node
        assert state.group is not None
        assert node.state == state, "durable before it is so"
        await node.ha.leave_master()
        await node.store.become_master(state.group.master_role)
        node.ha.unfence(synchronous=state.group.master_role is SYNC)
        self.held_until = None
        self.done.append("master")

    async def serve_as_slave(self, state: RoleState, master: PeerHistory | None) -> None:
        await trio.lowlevel.checkpoint()
        assert self.node.state == state, "durable before it is so"
        self.node.store.become_slave()
        self.node.ha.unfence(synchronous=False)
        self.node.ha.set_master(master.ha_address if master is not None else None)
        self.done.append("slave")

    async def fence(self, why: str) -> None:
        await trio.lowlevel.checkpoint()
        self.node.store.become_slave()
        self.node.ha.fence(why)
        self.done.append("fence")

    async def pull_offsets(self, addresses: tuple[str, ...]) -> None:
        await trio.lowlevel.checkpoint()
        self.done.append(f"offsets of {len(addresses)}")


@define(eq=False)
class Group:
    """The first node is configured as a master."""

    nursery: trio.Nursery
    root: Path
    size: int = 2
    role: BrokerRole = SYNC
    need: int = 2
    config: dict[str, Any] = field(factory=dict)
    nodes: list[Node] = field(init=False)
    streams: list[Any] = field(factory=list)
    registered_master: str | None = None  # What a name server says when it is asked first.

    def __attrs_post_init__(self) -> None:
        self.config = {"in_sync_replicas": self.need, **self.config}
        self.nodes = [Node(self, "abcd"[n], n, self.root / "abcd"[n]) for n in range(self.size)]

    async def ask_name_server(self) -> str | None:
        await trio.lowlevel.checkpoint()
        return self.registered_master

    async def start(self) -> None:
        """Until all follow, and the record says who they are."""
        for node in self.nodes:
            await node.start()
        await self.settled()

    async def settled(self, seconds: float = 60) -> Node:
        """Until one serves, all others that are up follow it, and the record is in force. Returns the master."""
        with trio.fail_after(seconds):
            while not self._is_settled():
                await trio.sleep(0.05)
        return self.master

    def _is_settled(self) -> bool:
        up = [node for node in self.nodes if node.is_up]
        masters = [node for node in up if node.roles.member.is_serving and node.word == "serving"]
        if len(masters) != 1:
            return False
        (master,), group = masters, masters[0].roles.member.group
        ends = {node.store.max_offset for node in up}
        return (
            group is not None
            and len(group.members) == self.size
            and master.roles.leases.is_settled
            and all(node.roles.member.group == group for node in up)
            and len(ends) == 1
            and all(node is master or self._follows(node, master) for node in up)
        )

    @staticmethod
    def _follows(node: Node, master: Node) -> bool:
        client = node.ha.client
        return client.state == "streaming" and client.master_address == master.ha_address and node.word == "following"

    @property
    def master(self) -> Node:
        return next(node for node in self.nodes if node.is_up and node.roles.member.is_serving)

    def peer_of(self, asker: Node) -> Callable[[str], NodePeer | None]:
        def find(ha_address: str) -> NodePeer | None:
            node = next(node for node in self.nodes if node.ha_address == ha_address)
            return NodePeer(node.store, asker=asker, node=node) if node.is_up else None

        return find

    def are_equal(self) -> bool:
        return len({log_bytes(node.store) for node in self.nodes if node.is_up}) == 1

    async def isolate(self, node: Node) -> None:
        """The network is cut between it and the others."""
        node.cut_off = True
        for one, other, stream in self.streams:
            if node in (one, other):
                await stream.aclose()

    async def change(self, verb: str, node: Node, **more: Any) -> ChangeState:
        """Ask, and wait for the end."""
        await node.roles.start(ChangeRequest(verb=verb, candidate=node.address, **more))  # type: ignore[arg-type]
        with trio.fail_after(60):
            while node.roles.state().running and node.is_up:
                await trio.sleep(0.01)
        return node.roles.state()


def step_states(state: ChangeState) -> dict[str, str]:
    """Step and how far it is."""
    return {step.name: step.state for step in state.steps}


__all__ = ["ASYNC", "SLAVE", "SYNC", "Group", "Node", "attrs", "step_states"]
