"""Histories of epochs, and a slave that writes down what it adopts."""

import trio
from attrs import define, field

from tests.ha.following import Master, follow
from twinlog.ha.errors import HAPeerError
from twinlog.ha.peer import NoRole, PeerHistory
from twinlog.ha.slave.client import HAClient
from twinlog.store.config import BrokerRole
from twinlog.store.epoch_file import FIRST, EpochEntry, EpochId
from twinlog.store.message_store import MessageStore
from twinlog.store.role_file import GroupMember, GroupRecord

A, B, C = "a:10911", "b:10911", "c:10911"
SYNC = BrokerRole.SYNC_MASTER


def entry(epoch: int, winner: str, start: int, kind: str = "failover") -> EpochEntry:
    return EpochEntry(epoch=epoch, winner=winner, start_offset=start, kind=kind, at_ms=1_700_000_000_000)


def member(address: str, broker_id: int) -> GroupMember:
    return GroupMember(
        address=address, ha_address=address.replace("10911", "10912"), broker_id=broker_id, name=address[0]
    )


def group(*addresses: str, **more: object) -> GroupRecord:
    members = tuple(member(address, number) for number, address in enumerate(addresses))
    return GroupRecord(version=1, members=members, acks_needed=2, master_role=SYNC, **more)


def history(*entries: EpochEntry, record: GroupRecord | None = None, role: BrokerRole = SYNC) -> PeerHistory:
    return PeerHistory(
        id=entries[-1].id,
        entries=entries,
        promised=entries[-1].id,
        role=role,
        group=record,
        min_offset=0,
        max_offset=0,
        boot_ms=1,
        address=A,
        ha_address="a:10912",
    )


@define(eq=False)
class Slave:
    """What a slave has written down, and what was done to it, in order."""

    store: MessageStore
    entries: tuple[EpochEntry, ...] = (FIRST,)
    promised: EpochId = FIRST.id
    record: GroupRecord | None = None
    address: str | None = B
    master: Master | None = None
    done: list[str] = field(factory=list)
    not_yet: str = ""

    async def adopt(self, told: PeerHistory) -> None:
        await trio.lowlevel.checkpoint()
        if self.not_yet:
            raise HAPeerError(self.not_yet)
        assert self.master is None or not self.master.connections, "adopted first, then connected"
        self.entries, self.promised, self.record = told.entries, told.id, told.group
        self.done.append(f"adopted epoch {told.id.epoch} at {self.store.max_offset}")

    async def doubt(self, _why: str) -> None:
        await trio.lowlevel.checkpoint()
        self.done.append(f"in doubt at {self.store.max_offset}")

    def follow(self, nursery: trio.Nursery, master: Master, **config: object) -> HAClient:
        self.master = master
        client = follow(nursery, self.store, master, **config)
        client.role = SlaveRole(self)
        return client


@define(eq=False)
class SlaveRole(NoRole):
    """What the slave has written down, as its client asks for it."""

    slave: Slave

    @property
    def group(self) -> GroupRecord | None:  # type: ignore[override]
        return self.slave.record

    def epochs(self) -> tuple[EpochEntry, ...]:
        return self.slave.entries

    def promised(self) -> EpochId:
        return self.slave.promised

    def me(self) -> GroupMember | None:
        return member(self.slave.address, 1) if self.slave.address is not None else None

    async def adopt(self, master: PeerHistory) -> None:
        await self.slave.adopt(master)

    async def suspect_tail(self, why: str) -> None:
        await self.slave.doubt(why)
