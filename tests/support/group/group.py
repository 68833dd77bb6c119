"""A master and its slaves in one process, in virtual time: the product's own stores and replication, lines between them.

A member can be killed (what it wrote stays, as after kill -9), stopped, started again with another configuration, and its disk
can refuse every write.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from tests.helpers import log_bytes
from tests.support.group.line import Line
from twinlog.cluster.broker.send.acks import wait_until_safe
from twinlog.ha.config import HAConfig
from twinlog.ha.errors import HAConnectionLostError, HAPeerError
from twinlog.ha.peer import PeerLog, RangeDigests
from twinlog.ha.service import HAService
from twinlog.ha.statistics import HAClientStatistics
from twinlog.ha.wire.transport import StreamTransport, Transport
from twinlog.store.config import BrokerRole, StoreConfig
from twinlog.store.hooks import StoreHooks
from twinlog.store.integrity.range_digests import RangeDigester
from twinlog.store.log.commit_log import PutMessage
from twinlog.store.log.offset_waiters import PutStatus
from twinlog.store.message_store import MessageStore

HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
FILE_SIZE = 16_384


@define
class Answer:
    """What a producer hears, and when."""

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
    """One broker's store and replication."""

    group: "Group"
    name: str
    ip: str
    role: BrokerRole
    root: Path
    options: Mapping[str, Any]
    line: Line = field(factory=Line)  # A slave's, to its master.
    store: MessageStore = field(init=False)
    ha: HAService = field(init=False)
    up: bool = False
    starts: int = 0
    disk_refuses: int = 0  # An errno.
    serving: trio.Nursery = field(init=False)
    _scope: trio.CancelScope = field(init=False)
    _ended: trio.Event = field(factory=trio.Event)

    @property
    def address(self) -> str:
        return f"{self.ip}:10912"

    @property
    def min_offset(self) -> int:
        return self.store.min_offset

    @property
    def max_offset(self) -> int:
        return self.store.max_offset

    @property
    def is_slave(self) -> bool:
        return self.role is BrokerRole.SLAVE

    async def start(self, **options: Any) -> None:
        """Start it, with other options than before if any are given."""
        self.options = {**self.options, **options}
        await self.group.nursery.start(self._run)

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.starts += 1
        self._ended = trio.Event()
        config = StoreConfig(
            root=self.root,
            broker_role=self.role,
            mapped_file_size_commit_log=FILE_SIZE,
            mapped_file_size_consume_queue=50 * 20,
            max_hash_slot_num=100,
            max_index_num=400,
        )
        self.store = MessageStore(config, StoreHooks(disk_usage=lambda _: 0.5, clock=trio.current_time))
        self.store.load()
        self.ha = HAService(
            self.store, HAConfig(**self.options), self.group.slave_ips, lambda: None, peer_of=self.group.peer_of
        )
        self.ha.client.connect = self._connect
        self.store.hooks.retention_floor = self.ha.lowest_needed
        self.store.hooks.soft_retention_floor = self.ha.disconnected_slaves.floor
        self.store.retention.shortened.append(self.ha.disconnected_slaves.shortened)
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.store.run)
                await nursery.start(self.ha.run)
                self.serving = nursery
                self.up = True
                if self.is_slave:
                    self.ha.set_master(self.group.master.address)
                task_status.started()
                await trio.sleep_forever()
        self._ended.set()

    async def _connect(self, address: str) -> Transport:
        await trio.sleep(self.line.delay)
        master = self.group.at(address)
        if master is None:
            raise HAConnectionLostError("cannot connect: connection refused")
        ours, theirs = self.line.connect()
        master.serving.start_soon(
            master.ha.serve, StreamTransport(theirs), f"{self.ip}:{40_000 + self.starts}", self.ip
        )
        return StreamTransport(ours)

    async def kill(self) -> None:
        """As kill -9 does: nobody is told, and the store is left as it is."""
        await self._end()
        self.store._release()

    async def stop(self) -> None:
        """As SIGTERM does."""
        await self._end()
        await self.store.close()

    async def _end(self) -> None:
        self.up = False
        self._scope.cancel()
        await self._ended.wait()

    @property
    def client(self) -> HAClientStatistics:
        """The slave's view."""
        return self.ha.client.statistics()

    # As a producer

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


@define(eq=False, repr=False)
class Group:
    """All members. `master` comes first."""

    nursery: trio.Nursery
    root: Path
    members: list[Member] = field(factory=list)

    def add(self, role: BrokerRole, **options: Any) -> Member:
        """A member that is not running yet."""
        number = len(self.members)
        member = Member(self, f"m{number}", f"10.0.0.{number + 1}", role, self.root / f"m{number}", options)
        self.members.append(member)
        return member

    @property
    def master(self) -> Member:
        return next(each for each in self.members if not each.is_slave)

    def slave_ips(self) -> list[str]:
        """Who is registered."""
        return [each.ip for each in self.members if each.is_slave]

    def at(self, address: str) -> Member | None:
        return next((each for each in self.members if each.address == address and each.up), None)

    def peer_of(self, address: str) -> "LocalPeer":
        return LocalPeer(self, address)


@define(eq=False)
class LocalPeer:
    """A member's remoting port."""

    group: Group
    address: str

    def _store(self) -> MessageStore:
        found = self.group.at(self.address)
        if found is None:
            raise HAPeerError(f"{self.address}: connection refused")
        return found.store

    async def log(self) -> PeerLog:
        await trio.lowlevel.checkpoint()
        store, member = self._store(), self.group.at(self.address)
        assert member is not None
        return PeerLog(
            is_twinlog=True,
            min_offset=store.min_offset,
            max_offset=store.max_offset,
            boot_ms=member.starts,
            file_size=FILE_SIZE,
            is_master=not member.is_slave,
        )

    async def digests(self, start: int, end: int, *, blocks_per_digest: int = 1) -> RangeDigests | None:
        store = self._store()
        digester = RangeDigester(store.commit_log, store.digest)
        found = await digester.answer(start, end, blocks_per_digest=blocks_per_digest, digests_max=64)
        return RangeDigests(found.start, found.end, found.blocks_per_digest, found.digests)

    async def record(self, phy_offset: int) -> bytes | None:
        await trio.lowlevel.checkpoint()
        view = self._store().message_at(phy_offset)
        return bytes(view) if view is not None else None


async def until(condition: Callable[[], object], what: str, *, seconds: float = 60) -> float:
    """Wait in virtual time; returns how long it took."""
    began = trio.current_time()
    with trio.move_on_after(seconds) as scope:
        while not condition():
            await trio.sleep(0.05)
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
    master = group.add(BrokerRole.SYNC_MASTER)
    others = [group.add(BrokerRole.SLAVE, **options) for _ in range(slaves)]
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
