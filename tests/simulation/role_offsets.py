"""Consumers' offsets of a member whose role changes: the product's tables, and what must not happen to them.

I9  within an epoch a slave's offsets only rise, whoever committed them; from a newer master each is taken as it is told; what a
    switchover hands over is there afterwards; a master that comes back has the greatest that anybody tells
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from tests.simulation.ledger import Violation
from twinlog.cluster.broker.tables.offsets import ConsumerOffsetManager, MasterOffsets, read_offsets
from twinlog.ha.errors import HAError

if TYPE_CHECKING:
    from tests.simulation.roles import RoleMember

TOPIC, GROUP, QUEUES = "T", "G", 3
COMMIT_SECONDS, SYNC_SECONDS = 2.0, 5.0
SLAVE_SHARE = 0.3  # Of the times, a consumer that reads from a slave commits there.
Table = Mapping[str, Mapping[int, int]]


@define(eq=False)
class Offsets:
    """`table` is on the disk; what the master told is forgotten with the process."""

    name: str
    table: ConsumerOffsetManager = field(factory=ConsumerOffsetManager)
    master: MasterOffsets = field(factory=MasterOffsets)

    def take(self, told: Table, life: object, epoch: int | None) -> None:
        """As a slave does every few seconds. Raises Violation."""
        before, known = self.copy(), self.master.epoch
        is_newer = epoch is not None and known is not None and epoch > known
        self.table.update(self.master.merge(self.table.table, told, life, epoch=epoch)[0])
        self._check(told if is_newer else before, "although its master is the same", exactly=is_newer)

    def take_over(self, told: Table) -> None:
        """What the master before hands over. Raises Violation."""
        self.table.update(self.master.merge_last(self.table.table, told))
        self._check(told, "although the master before handed it over")

    def raise_to(self, told: Table) -> None:
        """What somebody tells a master that comes back. Raises Violation."""
        self.table.fill(told, or_raise=True)
        self._check(told, "although another member has it")

    def copy(self) -> dict[str, dict[int, int]]:
        """For others."""
        return {key: dict(queues) for key, queues in self.table.table.items()}

    def _check(self, least: Table, why: str, *, exactly: bool = False) -> None:
        for key, queues in least.items():
            for queue_id, offset in queues.items():
                now = self.table.table.get(key, {}).get(queue_id, -1)
                if now < offset or (exactly and now != offset):
                    raise Violation(f"I9: {self.name} has offset {now} of {key}, queue {queue_id}, not {offset}, {why}")


async def consume(member: "RoleMember") -> None:
    """Consumers commit here, mostly if it is the master."""
    rng, positions = member.group.consumer_rng, member.group.positions
    while True:
        await trio.sleep(COMMIT_SECONDS)
        if member.writable or rng.random() < SLAVE_SHARE:
            queue_id = rng.randrange(QUEUES)
            positions[queue_id] = positions.get(queue_id, 0) + rng.randint(1, 9)
            member.offsets.table.commit(GROUP, TOPIC, queue_id, positions[queue_id])


async def synchronize(member: "RoleMember") -> None:
    """A slave copies its master's."""
    while True:
        await trio.sleep(SYNC_SECONDS)
        master = member.service.member.master
        if member.service.member.status()[0] == "following" and master is not None:
            try:
                told, starts = await member.calls.offsets(master.address)
            except HAError:
                continue
            epoch = member.service.member.promised().epoch
            if member.service.member.master is not None and member.service.member.master.address == master.address:
                life = (master.address, starts)
                member.world.guard(lambda: member.offsets.take(told, life, epoch))  # noqa: B023


async def pull(member: "RoleMember", addresses: tuple[str, ...]) -> None:
    """A master that comes back asks all who may have gone on."""
    for address in addresses:
        try:
            told, _ = await member.calls.offsets(address)
        except HAError:
            continue
        member.world.guard(lambda: member.offsets.raise_to(told))  # noqa: B023


def handed_over(member: "RoleMember", offsets: Mapping[str, object]) -> None:
    """Out of what a master says that holds."""
    told = read_offsets(offsets)
    member.world.guard(lambda: member.offsets.take_over(told))
