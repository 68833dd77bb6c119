"""A group of members in one process and in virtual time: the product's own parts, without sockets between them.

The `parts` of a group say what a member is made of: store and replication (`stores.Stores`), these with a RoleService
(`stores.Roles`), or a whole broker (`brokers.Brokers`). Everything else is the same for all: members are killed (what they wrote
stays, as after kill -9), stopped, started again, isolated, and change their roles; lines between them have a delay and can break.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import trio
from attrs import define, field

from tests.helpers import log_bytes, put
from tests.support.group.kept import EtcdModel, ModelKeeper
from tests.support.group.line import Line
from tests.support.stream_transport import StreamTransport
from twinlog.cluster.broker.peers.role_messages import ChangeRequest, ChangeState
from twinlog.cluster.broker.roles.service import RoleService
from twinlog.cluster.broker.send.acks import wait_until_safe
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HAConnectionLostError
from twinlog.ha.service import HAService
from twinlog.ha.statistics import HAClientStatistics
from twinlog.ha.wire.transport import Transport
from twinlog.store.config import BrokerRole, FlushDiskType
from twinlog.store.epoch_file import load_epochs
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.member_file import load_member
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import RoleState, load_role

HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
FILE_SIZE = 16_384
PORT = 10911
SYNC, ASYNC, SLAVE = BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE


class Parts(Protocol):
    """Services of a member between a start and its end. `roles` exists where `has_roles`."""

    store: MessageStore
    ha: HAService
    roles: RoleService
    has_roles: bool

    def __init__(self, member: "Member") -> None: ...

    async def start(self, nursery: trio.Nursery) -> None:
        """Load the directory, and serve."""

    async def stop(self) -> None:
        """Do what a broker does on SIGTERM before its tasks end."""


@define
class Answer:
    """The answer to a producer, and its time."""

    sent_at: float
    end_offset: int
    status: PutStatus | None = None  # None: not yet.
    answered_at: float = 0.0
    reason: str = ""
    heard: trio.Event = field(factory=trio.Event)

    @property
    def seconds(self) -> float:
        return self.answered_at - self.sent_at

    def answer(self, frames: list[bytes]) -> None:
        self._hear(PutStatus.PUT_OK, "")

    def refuse(self, frames: list[bytes], status: PutStatus, reason: str) -> None:
        self._hear(status, reason)

    def _hear(self, status: PutStatus, reason: str) -> None:
        self.status, self.reason, self.answered_at = status, reason, trio.current_time()
        self.heard.set()


@define(eq=False, repr=False)  # A test that fails shows what it compares, and not a store inside out.
class Member:
    """A member of a group: its directory, and the parts of its last start."""

    group: "Group"
    number: int
    role: BrokerRole  # As configured.
    options: Mapping[str, Any]
    parts: Parts = field(init=False)
    lines: defaultdict["Member", Line] = field(factory=lambda: defaultdict(Line))  # To each that it has followed.
    up: bool = False
    starts: int = 0
    boot_id: str = "boot 1"  # Another one: its machine died.
    disk_refuses: int = 0  # An errno.
    offsets: dict[str, int] = field(factory=dict)  # Of consumer groups.
    network: int = 0  # Another one: it has another IP.
    host: int = field(init=False)  # In its network.
    answers: list[tuple[bytes, Answer]] = field(factory=list)  # Of all that was produced here.
    serving: trio.Nursery = field(init=False)
    _closes: bool = False
    _scope: trio.CancelScope = field(init=False)
    _ended: trio.Event = field(factory=trio.Event)

    @host.default
    def _first_host(self) -> int:
        return self.number + 1

    @property
    def name(self) -> str:
        return "abcde"[self.number]

    @property
    def ip(self) -> str:
        return f"10.0.{self.network}.{self.host}"

    @property
    def address(self) -> str:
        return f"{self.ip}:{PORT}"

    @property
    def ha_address(self) -> str:
        return f"{self.ip}:{PORT + 1}"

    @property
    def root(self) -> Path:
        return self.group.root / self.name

    @property
    def side(self) -> Path:
        return self.root / "twinlog"

    @property
    def store(self) -> MessageStore:
        return self.parts.store

    @property
    def ha(self) -> HAService:
        return self.parts.ha

    @property
    def roles(self) -> RoleService:
        return self.parts.roles

    @property
    def min_offset(self) -> int:
        return self.store.min_offset

    @property
    def max_offset(self) -> int:
        return self.store.max_offset

    @property
    def is_slave(self) -> bool:
        return (self.store.config.broker_role if self.up else self.role) is SLAVE

    @property
    def is_serving(self) -> bool:
        return self.up and self.roles.member.is_serving

    @property
    def word(self) -> str:
        """The state of its role."""
        return self.roles.member.status()[0]

    @property
    def state(self) -> RoleState | None:
        """On its disk."""
        return load_role(self.side)

    @property
    def identity(self) -> str:
        """Its id, on its disk; "": it was never started."""
        known = load_member(self.side)
        return known.id if known is not None else ""

    @property
    def epochs(self) -> list[tuple[int, str, str]]:
        """On its disk: number, winner, kind."""
        names = {each.identity: each.name for each in self.group.members}
        return [(entry.epoch, names.get(entry.winner, ""), entry.kind) for entry in load_epochs(self.side)]

    @property
    def line(self) -> Line:
        """To the member that is configured as the master."""
        return self.lines[self.group.first]

    @property
    def client(self) -> HAClientStatistics:
        """The slave's view."""
        return self.ha.client.statistics()

    @property
    def ha_config(self) -> HAConfig:
        return HAConfig(**{**self.group.config, **self.options})

    # Its life

    async def start(self, **options: Any) -> None:
        """Start it, with other options than before if any are given."""
        self.options = {**self.options, **options}
        await self.group.nursery.start(self._run)

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.starts += 1
        self._ended = trio.Event()
        self.parts = self.group.parts(self)
        self._closes = False
        try:
            with trio.CancelScope() as self._scope:
                async with trio.open_nursery() as self.serving:
                    await self.parts.start(self.serving)
                    self.up = True
                    task_status.started()
                    await trio.sleep_forever()
        finally:
            self.up = False
            if not self._closes:
                self.store._release()
            self._ended.set()

    def die(self) -> None:
        """End at once, in the middle of whatever it does. Bytes that a held line has not delivered are lost with it."""
        self.up = False
        self._scope.cancel()
        for each in self.group.members:
            if each.lines[self].held:
                each.lines[self].cut()

    async def kill(self) -> None:
        """As kill -9 does: the store is left as it is."""
        self.die()
        await self._ended.wait()

    async def stop(self) -> None:
        """As SIGTERM does."""
        with trio.CancelScope(shield=True):
            await self.parts.stop()
        self._closes = True
        await self.kill()
        await self.store.close()
        if self.parts.has_roles:
            self.roles.member.durable.note_clean_stop()

    async def follow(self, ha_address: str) -> Transport:
        """Connect to the HA port of another member."""
        await trio.sleep(self.line.delay)
        master = self.group.at(ha_address)
        if master is None or not self.group.is_open(self, master):
            raise HAConnectionLostError("cannot connect: connection refused")
        ours, theirs = self.lines[master].connect()
        master.serving.start_soon(
            master.ha.serve, StreamTransport(theirs), f"{self.ip}:{40_000 + self.starts}", self.ip
        )
        return StreamTransport(ours)

    # As a producer

    def put(self, count: int = 1) -> int:
        """Append small messages; returns the end of the log."""
        return put(self.store, *[b"x" * 100] * count)

    def send(self, body: bytes, *, wait: bool = True, topic: str = "T") -> Answer:
        """Put one message; the answer comes when the policy says so, at once without `wait`."""
        put = PutMessage(topic, 0, body, b"KEYS\x01k", 0, 0, 1_700_000_000_000, HOST, HOST, 0, 0, 0)
        (result,) = self.store.put([put])
        answer = Answer(trio.current_time(), result.end_offset)
        if result.status is not PutStatus.PUT_OK:
            answer.refuse([], result.status, self.store.why_not_writable)
        elif wait:
            wait_until_safe(self.store, self.ha.group_transfer, result.end_offset, answer, b"")
        else:
            answer.answer([])
        return answer

    def produce(self, body: bytes) -> None:
        """Send a message that its producer wants to be safe."""
        self.answers.append((body, self.send(body)))

    @property
    def acknowledged(self) -> list[bytes]:
        """Bodies for which producers got SEND_OK."""
        return [body for body, answer in self.answers if answer.status is PutStatus.PUT_OK]

    async def is_acknowledged(self) -> bool:
        """Whether all that it holds is safe enough for its producers."""
        with trio.move_on_after(5):
            while self.ha.group_transfer.confirmed_offset < self.store.max_offset or not self.ha.lease.held(
                trio.current_time()
            ):
                await trio.sleep(0.01)
            return True
        return False


@define(eq=False, repr=False)
class Group:
    """All members; the first one is configured as the master. `config`: HAConfig of all, read at each start.

    `isolated`: nothing gets through to or from these, and no connection ends; `deaf`: the same on their remoting ports alone.
    `size`: how many members a group has that is settled.
    """

    nursery: trio.Nursery
    root: Path
    parts: type[Parts]
    size: int = 0
    role: BrokerRole = SYNC
    config: dict[str, Any] = field(factory=dict)
    members: list[Member] = field(factory=list)
    isolated: set[Member] = field(factory=set)
    deaf: set[Member] = field(factory=set)
    registered_master: str | None = None  # What a name server says when it is asked first.
    names: tuple[str, str] = ("broker-a", "DefaultCluster")  # brokerName and cluster, read at each start.
    flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    etcd: EtcdModel | None = None  # None: no member knows one.
    keepers: dict[int, ModelKeeper] = field(factory=dict)  # By the member's number.

    def __attrs_post_init__(self) -> None:
        for number in range(self.size):
            self.add(SLAVE if number else self.role)

    def add(self, role: BrokerRole, **options: Any) -> Member:
        """Make a member that is not running yet."""
        self.members.append(Member(self, len(self.members), role, options))
        return self.members[-1]

    def keeper_of(self, member: Member) -> ModelKeeper | None:
        """The member's way to etcd, which stays from start to start."""
        if self.etcd is None:
            return None
        return self.keepers.setdefault(member.number, ModelKeeper(self.etcd))

    async def start(self) -> None:
        """Start all, until all follow and the record names them."""
        for member in self.members:
            await member.start()
        await self.settled()

    async def kill(self) -> None:
        """Kill all that are up."""
        for member in self.members:
            if member.up:
                await member.kill()

    def at(self, address: str) -> Member | None:
        """Find the member behind an address of either port, if it is up."""
        return next((each for each in self.members if each.up and address in (each.address, each.ha_address)), None)

    @property
    def first(self) -> Member:
        return self.members[0]

    async def ask_name_server(self) -> str | None:
        await trio.lowlevel.checkpoint()
        return self.registered_master

    # The network

    def isolate(self, *members: Member) -> None:
        """Cut these off from all others; nobody: everything gets through again."""
        self.isolated = set(members)
        for each in self.members:
            for other, line in each.lines.items():
                line.hold(not self.is_open(each, other))

    def is_open(self, one: Member, other: Member) -> bool:
        return one is other or not {one, other} & self.isolated

    def hears(self, one: Member, other: Member) -> bool:
        """Whether requests get through."""
        return one is other or not {one, other} & (self.isolated | self.deaf)

    # Roles

    async def change(self, verb: str, candidate: Member, **more: Any) -> ChangeState:
        """Ask for a role change, and wait for its end."""
        await candidate.roles.start(ChangeRequest(verb=verb, candidate=candidate.address, **more))
        await until(lambda: not (candidate.up and candidate.roles.state().running), f"the end of the {verb}", step=0.01)
        return candidate.roles.state()

    async def settled(self, seconds: float = 60) -> Member:
        """Wait until one serves, all others that are up follow it, and the record is in force. Returns the master."""
        await until(self._is_settled, "a settled group", seconds=seconds)
        return next(each for each in self.members if each.is_serving)

    def _is_settled(self) -> bool:
        up = [each for each in self.members if each.up]
        masters = [each for each in up if each.is_serving and each.word == "serving"]
        if len(masters) != 1:
            return False
        (master,), record = masters, masters[0].roles.member.group
        return (
            record is not None
            and len(record.members) == self.size
            and master.roles.leases.is_settled
            and all(each.roles.member.group == record for each in up)
            and len({each.max_offset for each in up}) == 1
            and all(each is master or self._follows(each, master) for each in up)
        )

    @staticmethod
    def _follows(slave: Member, master: Member) -> bool:
        client = slave.ha.client
        return client.state == "streaming" and client.master_address == master.ha_address and slave.word == "following"

    def are_equal(self) -> bool:
        """Whether all that are up have one log."""
        return len({log_bytes(each.store) for each in self.members if each.up}) == 1


async def until(condition: Callable[[], object], what: str, *, seconds: float = 60, step: float = 0.05) -> float:
    """Wait in virtual time; returns how long it took."""
    began = trio.current_time()
    with trio.move_on_after(seconds) as scope:
        while not condition():
            await trio.sleep(step)
    assert not scope.cancelled_caught, f"not within {seconds:g} virtual seconds: {what}"
    return trio.current_time() - began


def same_log(one: Member, other: Member) -> bool:
    """Byte for byte, over what both have."""
    first, second = log_bytes(one.store), log_bytes(other.store)
    start = max(one.store.min_offset, other.store.min_offset)
    return first[start - one.store.min_offset :] == second[start - other.store.min_offset :]


def queues(member: Member) -> dict[tuple[str, int], bytes]:
    """The units of each queue."""
    found = {}
    for topic, number, queue in member.store.queues():
        at, pieces = queue.min_offset, []
        while units := queue.read(at, 10_000):
            pieces.append(units)
            at += len(units) // 20
        found[topic, number] = b"".join(pieces)
    return found


def files_of(member: Member) -> list[Path]:
    """Its commit log files."""
    return sorted(Path(name) for name in (member.root / "commitlog").iterdir() if os.fspath(name)[-1].isdigit())


async def level(master, slave, *, seconds: float = 60) -> float:
    return await until(lambda: slave.up and slave.max_offset == master.max_offset, "both level", seconds=seconds)


async def started(group, *, slaves: int = 1, **options):
    master = group.add(SYNC)
    others = [group.add(SLAVE, **options) for _ in range(slaves)]
    await master.start()
    for each in others:
        await each.start()
    await until(lambda: len(master.ha.group_transfer.slaves) == slaves, "all slaves connected")
    return master, *others


def fill(member, files: int) -> None:
    """So many more files."""
    end = member.max_offset + files * FILE_SIZE
    while member.max_offset < end:
        member.send(b"x" * 1500, wait=False)


def step_states(state: ChangeState) -> dict[str, str]:
    """Each step of a role change, and its state."""
    return {step.name: step.state for step in state.steps}
